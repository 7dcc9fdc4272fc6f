// How a table lies in a file (FORMAT.md, "Tables"): step, state, record,
// parts, then each tensor with its fragments. Lists stand behind their count;
// numbers are varints unless said here.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table.h"

namespace shardshift::ckpt {
namespace {

// Least bytes of an encoded item, which bound a count before memory is taken.
constexpr int64_t kMinTensorBytes = 2 + 2 + 1 + 1 + 1;
constexpr int64_t kMinPartBytes = 1 + 1 + 16;
constexpr int64_t kMinFragmentBytes = 1 + 1 + 16 + 1;
constexpr int64_t kMinBlockBytes = 8;

void PutShape(Encoder& out, const Shape& shape) {
  for (const int64_t n : shape) out.PutVarint(n);
}

// dtype and ndim are u8.
void PutTensor(Encoder& out, const Tensor& tensor) {
  out.PutShortString(tensor.name);
  out.PutShortString(tensor.role);
  out.PutU8(static_cast<uint8_t>(tensor.dtype));
  out.PutU8(static_cast<uint8_t>(tensor.shape.size()));
  PutShape(out, tensor.shape);
}

// The digest is two u64.
void PutPart(Encoder& out, const Part& part) {
  out.PutVarint(part.number);
  out.PutVarint(part.file_bytes);
  out.PutU64(part.metadata_digest.low);
  out.PutU64(part.metadata_digest.high);
}

// codec is u8, fingerprint and checksums are u64. The tensor tells how many
// numbers start and extent are. Without a codec the place of the first block
// tells those of all.
void PutFragment(Encoder& out, const Fragment& fragment) {
  out.PutVarint(fragment.part);
  out.PutU8(static_cast<uint8_t>(fragment.codec));
  PutShape(out, fragment.box.start);
  PutShape(out, fragment.box.extent);
  out.PutU64(fragment.fingerprint.low);
  out.PutU64(fragment.fingerprint.high);
  out.PutVarint(static_cast<int64_t>(fragment.blocks.size()));
  const bool is_plain = fragment.codec == Codec::kNone;
  if (is_plain && !fragment.blocks.empty()) {
    out.PutVarint(fragment.blocks.front().offset_bytes);
  }
  for (const Block& block : fragment.blocks) {
    if (!is_plain) {
      out.PutVarint(block.offset_bytes);
      out.PutVarint(block.stored_bytes);
    }
    out.PutU64(block.checksum);
  }
}

// Items are decoded where they stay: to load, as a move does, what was just
// stored waits for all stores before it, and those go to memory that no cache
// holds.
void GetShape(Decoder& in, size_t ndim, Shape& shape) {
  for (; ndim > 0; --ndim) shape.push_back(in.GetVarint());
}

void GetTensor(Decoder& in, Tensor& tensor) {
  tensor.name = in.GetShortString();
  tensor.role = in.GetShortString();
  const uint8_t number = in.GetU8();
  if (const std::optional<DType> dtype = DTypeFromNumber(number)) {
    tensor.dtype = *dtype;
  } else {
    in.Fail(absl::StrCat(Describe(tensor), " has dtype ", number,
                         ", which this program does not know,"));
  }
  GetShape(in, in.GetU8(), tensor.shape);
}

Part GetPart(Decoder& in) {
  Part part;
  part.number = in.GetVarint();
  part.file_bytes = in.GetVarint();
  part.metadata_digest.low = in.GetU64();
  part.metadata_digest.high = in.GetU64();
  return part;
}

// The bytes of a box that nobody has checked, or -1.
int64_t UncheckedBytes(const Tensor& tensor, const Box& box) {
  const absl::StatusOr<int64_t> elements = CheckedNumElements(box.extent);
  int64_t bytes = -1;
  if (!elements.ok() ||
      __builtin_mul_overflow(*elements, ItemSize(tensor.dtype), &bytes)) {
    return -1;
  }
  return bytes;
}

void GetPlainBlocks(Decoder& in, const Tensor& tensor, Fragment& fragment) {
  const int64_t offset_bytes = in.GetVarint();
  const int64_t size = UncheckedBytes(tensor, fragment.box);
  if (size < 0 || offset_bytes > std::numeric_limits<int64_t>::max() - size) {
    in.Fail(absl::StrCat(Describe(tensor), ": place beyond 63 bits"));
    return;
  }
  PlaceBlocks(offset_bytes, size, fragment);
  for (Block& block : fragment.blocks) block.checksum = in.GetU64();
}

void GetFragment(Decoder& in, const Tensor& tensor, int64_t index,
                 Fragment& fragment) {
  const size_t ndim = tensor.shape.size();
  fragment.tensor = index;
  fragment.part = in.GetVarint();
  fragment.codec = static_cast<Codec>(in.GetU8());
  GetShape(in, ndim, fragment.box.start);
  GetShape(in, ndim, fragment.box.extent);
  fragment.fingerprint.low = in.GetU64();
  fragment.fingerprint.high = in.GetU64();
  fragment.blocks.resize(in.GetCount(kMinBlockBytes));
  if (fragment.blocks.empty()) return;
  if (fragment.codec == Codec::kNone) {
    GetPlainBlocks(in, tensor, fragment);
    return;
  }
  for (Block& block : fragment.blocks) {
    block.offset_bytes = in.GetVarint();
    block.stored_bytes = in.GetVarint();
    block.checksum = in.GetU64();
  }
}

// What a tensor and its fragments usually take at least. A count says no more
// than that this many might follow; memory is taken for what is likely.
constexpr int64_t kUsualTensorBytes = 48;

void GetTensors(Decoder& in, int64_t input_bytes, Table& table) {
  const int64_t num_tensors = in.GetCount(kMinTensorBytes);
  const int64_t likely = std::min(num_tensors, input_bytes / kUsualTensorBytes);
  table.tensors.reserve(likely);
  table.fragments.reserve(likely);
  for (int64_t t = 0; t < num_tensors && in.ok(); ++t) {
    GetTensor(in, table.tensors.emplace_back());
    int64_t count = in.GetCount(kMinFragmentBytes);
    for (; count > 0 && in.ok(); --count) {
      GetFragment(in, table.tensors.back(), t, table.fragments.emplace_back());
    }
  }
}

absl::StatusOr<Table> Decode(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  Table table;
  table.step = in.GetVarint();
  table.state = in.GetShortString();
  table.record = in.GetShortString();
  for (int64_t n = in.GetCount(kMinPartBytes); n > 0 && in.ok(); --n) {
    table.parts.push_back(GetPart(in));
  }
  GetTensors(in, static_cast<int64_t>(bytes.size()), table);
  SS_RETURN_IF_ERROR(Annotate(in.Finish(), "table"));
  return table;
}

// What is a wrong call of a writer is damage in a file.
absl::Status AsDataLoss(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::DataLossError(absl::StrCat("table: ", status.message()));
}

absl::Status CheckPartTable(const Table& table, int64_t file_bytes) {
  if (!table.parts.empty() || !table.record.empty()) {
    return absl::InvalidArgumentError("a part's table holds an index's facts");
  }
  SS_RETURN_IF_ERROR(CheckContents(table));
  const Part only = {0, file_bytes, {}};
  return CheckPlaces(table, std::span(&only, 1));
}

}  // namespace

std::string EncodeTable(const Table& table) {
  Encoder out;
  out.PutVarint(table.step);
  out.PutShortString(table.state);
  out.PutShortString(table.record);
  out.PutVarint(static_cast<int64_t>(table.parts.size()));
  for (const Part& part : table.parts) PutPart(out, part);
  out.PutVarint(static_cast<int64_t>(table.tensors.size()));
  auto fragment = table.fragments.begin();
  for (size_t t = 0; t < table.tensors.size(); ++t) {
    PutTensor(out, table.tensors[t]);
    const auto begin = fragment;
    while (fragment != table.fragments.end() &&
           fragment->tensor == static_cast<int64_t>(t)) {
      ++fragment;
    }
    out.PutVarint(fragment - begin);
    for (auto f = begin; f != fragment; ++f) PutFragment(out, *f);
  }
  return out.bytes();
}

absl::StatusOr<Table> DecodePartTable(std::span<const std::byte> bytes,
                                      int64_t file_bytes) {
  SS_ASSIGN_OR_RETURN(Table table, Decode(bytes));
  SS_RETURN_IF_ERROR(AsDataLoss(CheckPartTable(table, file_bytes)));
  return table;
}

absl::StatusOr<Table> DecodeIndexTable(std::span<const std::byte> bytes) {
  SS_ASSIGN_OR_RETURN(Table table, Decode(bytes));
  SS_RETURN_IF_ERROR(AsDataLoss(CheckIndexTable(table)));
  return table;
}

}  // namespace shardshift::ckpt
