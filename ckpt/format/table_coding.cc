// How a table lies in a file (FORMAT.md, "Tables"): step, state, record,
// tensors, parts, fragments, each list behind its count. Numbers are u64
// unless said here.
// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table.h"

namespace shardshift::ckpt {
namespace {

// Least bytes of an encoded item, which bound a count before memory is taken.
constexpr int64_t kMinTensorBytes = 8 + 8 + 1 + 1;
constexpr int64_t kPartBytes = 4 * 8;
constexpr int64_t kMinFragmentBytes = 2 * 8 + 1 + 2 * 8 + 8;
constexpr int64_t kBlockBytesEncoded = 3 * 8;

void PutShape(Encoder& out, const Shape& shape) {
  for (const int64_t n : shape) out.PutInt(n);
}

// dtype and ndim are u8.
void PutTensor(Encoder& out, const Tensor& tensor) {
  out.PutString(tensor.name);
  out.PutString(tensor.role);
  out.PutU8(static_cast<uint8_t>(tensor.dtype));
  out.PutU8(static_cast<uint8_t>(tensor.shape.size()));
  PutShape(out, tensor.shape);
}

void PutPart(Encoder& out, const Part& part) {
  out.PutInt(part.number);
  out.PutInt(part.file_bytes);
  out.PutU64(part.metadata_digest.low);
  out.PutU64(part.metadata_digest.high);
}

// codec is u8. The tensor tells how many numbers start and extent are.
void PutFragment(Encoder& out, const Fragment& fragment) {
  out.PutInt(fragment.tensor);
  out.PutInt(fragment.part);
  out.PutU8(static_cast<uint8_t>(fragment.codec));
  PutShape(out, fragment.box.start);
  PutShape(out, fragment.box.extent);
  out.PutU64(fragment.fingerprint.low);
  out.PutU64(fragment.fingerprint.high);
  out.PutInt(static_cast<int64_t>(fragment.blocks.size()));
  for (const Block& block : fragment.blocks) {
    out.PutInt(block.offset_bytes);
    out.PutInt(block.stored_bytes);
    out.PutU64(block.checksum);
  }
}

Shape GetShape(Decoder& in, size_t ndim) {
  Shape shape(ndim);
  for (int64_t& n : shape) n = in.GetInt();
  return shape;
}

Tensor GetTensor(Decoder& in) {
  Tensor tensor;
  tensor.name = in.GetString();
  tensor.role = in.GetString();
  if (const std::optional<DType> dtype = DTypeFromNumber(in.GetU8())) {
    tensor.dtype = *dtype;
  } else {
    in.Fail("unknown dtype");
  }
  tensor.shape = GetShape(in, in.GetU8());
  return tensor;
}

Part GetPart(Decoder& in) {
  Part part;
  part.number = in.GetInt();
  part.file_bytes = in.GetInt();
  part.metadata_digest.low = in.GetU64();
  part.metadata_digest.high = in.GetU64();
  return part;
}

Fragment GetFragment(Decoder& in, const std::vector<Tensor>& tensors) {
  Fragment fragment;
  fragment.tensor = in.GetInt();
  if (fragment.tensor >= static_cast<int64_t>(tensors.size())) {
    in.Fail("fragment of no tensor");
    return fragment;
  }
  const size_t ndim = tensors[fragment.tensor].shape.size();
  fragment.part = in.GetInt();
  fragment.codec = static_cast<Codec>(in.GetU8());
  fragment.box.start = GetShape(in, ndim);
  fragment.box.extent = GetShape(in, ndim);
  fragment.fingerprint.low = in.GetU64();
  fragment.fingerprint.high = in.GetU64();
  fragment.blocks.resize(in.GetCount(kBlockBytesEncoded));
  for (Block& block : fragment.blocks) {
    block.offset_bytes = in.GetInt();
    block.stored_bytes = in.GetInt();
    block.checksum = in.GetU64();
  }
  return fragment;
}

absl::StatusOr<Table> Decode(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  Table table;
  table.step = in.GetInt();
  table.state = in.GetString();
  table.record = in.GetString();
  for (int64_t n = in.GetCount(kMinTensorBytes); n > 0 && in.ok(); --n) {
    table.tensors.push_back(GetTensor(in));
  }
  for (int64_t n = in.GetCount(kPartBytes); n > 0 && in.ok(); --n) {
    table.parts.push_back(GetPart(in));
  }
  for (int64_t n = in.GetCount(kMinFragmentBytes); n > 0 && in.ok(); --n) {
    table.fragments.push_back(GetFragment(in, table.tensors));
  }
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
  out.PutInt(table.step);
  out.PutString(table.state);
  out.PutString(table.record);
  out.PutInt(static_cast<int64_t>(table.tensors.size()));
  for (const Tensor& tensor : table.tensors) PutTensor(out, tensor);
  out.PutInt(static_cast<int64_t>(table.parts.size()));
  for (const Part& part : table.parts) PutPart(out, part);
  out.PutInt(static_cast<int64_t>(table.fragments.size()));
  for (const Fragment& fragment : table.fragments) PutFragment(out, fragment);
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
