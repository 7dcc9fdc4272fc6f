// Writes the checkpoint that tests in Python read: element i of a tensor has
// the value i % 100 in its dtype (BOOL its lowest bit, C64 v - v*i).
//   python_sample RUN [--changed | --compressed | --bits HEX]
// --changed: t.F32's elements [1,2] and [2,2] are larger by 1 and 3, t.U64's
// empty tensor has another shape, its scalar another role; another state.
// --compressed: with a codec; the matrices are [500,9], and there is a cube of
// several blocks.
// --bits: t.F32's element [1,2] has these.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>

#include "ckpt/core/status_macros.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {
namespace {

struct Variant {
  bool changed = false;
  bool compressed = false;
  std::optional<uint32_t> bits;
};

constexpr char kMatrix[] = "matrix%b";

template <typename T>
void Put(T value, std::vector<std::byte>& out) {
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), begin, begin + sizeof(T));
}

// The half float of a small whole number.
uint16_t Half(int value) {
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);
  const int mantissa = (value << (10 - exponent)) & 0x3ff;
  return static_cast<uint16_t>(((exponent + 15) << 10) | mantissa);
}

uint16_t Bfloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

void PutValue(DType dtype, int value, std::vector<std::byte>& out) {
  const auto real = static_cast<float>(value);
  switch (dtype) {
    case DType::kBool:
      return Put<uint8_t>(value & 1, out);
    case DType::kF16:
      return Put(Half(value), out);
    case DType::kBF16:
      return Put(Bfloat(real), out);
    case DType::kF32:
      return Put(real, out);
    case DType::kF64:
      return Put<double>(value, out);
    case DType::kC64:
      Put(real, out);
      return Put(-real, out);
    default: {
      // Little-endian whole numbers of any width; F8 are raw bytes.
      const int64_t wide = value;
      const auto* begin = reinterpret_cast<const std::byte*>(&wide);
      out.insert(out.end(), begin, begin + ItemSize(dtype));
    }
  }
}

// What --changed adds to the element at row-major index `i` of t.F32.
int64_t Change(int64_t i) { return i == 11 ? 1 : i == 20 ? 3 : 0; }

// The dense image of the box of `spec`.
std::vector<std::byte> Image(const FragmentSpec& spec, const Variant& variant) {
  const bool may_change = spec.role == kMatrix && spec.dtype == DType::kF32;
  std::vector<std::byte> bytes;
  Shape index = spec.box.start;
  for (int64_t left = NumElements(spec.box); left > 0; --left) {
    int64_t global = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      global = global * spec.shape[d] + index[d];
    }
    int64_t value = global % 100;
    if (may_change && variant.changed) value += Change(global);
    if (may_change && variant.bits && global == 11) {
      Put(*variant.bits, bytes);
    } else {
      PutValue(spec.dtype, static_cast<int>(value), bytes);
    }
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < spec.box.start[d] + spec.box.extent[d]) break;
      index[d] = spec.box.start[d];
    }
  }
  return bytes;
}

// Matrices are cut into columns 0 to 3 and 4 to 8, cubes into rows 0 to 332
// and the others of each plane; the rest is in part 0.
std::vector<FragmentSpec> SpecsOfPart(int64_t part, const Variant& variant) {
  const int64_t rows = variant.compressed ? 500 : 5;
  const Box columns =
      part == 0 ? Box{{0, 0}, {rows, 4}} : Box{{0, 4}, {rows, 5}};
  std::vector<FragmentSpec> specs;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    const bool is_other = variant.changed && dtype == DType::kU64;
    const std::string name = "t." + std::string(Name(dtype));
    specs.push_back({name, kMatrix, dtype, {rows, 9}, columns});
    if (part != 0) continue;
    specs.push_back({name, is_other ? "scalar2" : "scalar", dtype, {}, {}});
    const Shape empty = {0, is_other ? 4 : 3};
    specs.push_back({name, "empty", dtype, empty, WholeBox(empty)});
  }
  if (variant.compressed) {
    const Box cube = part == 0 ? Box{{0, 0, 0}, {3, 333, 1000}}
                               : Box{{0, 333, 0}, {3, 367, 1000}};
    specs.push_back({"t.F32", "cube", DType::kF32, {3, 700, 1000}, cube});
  }
  return specs;
}

absl::Status Write(const std::string& run_dir, const Variant& variant) {
  SS_ASSIGN_OR_RETURN(const std::string partial, BeginCheckpoint(run_dir, 1));
  const bool changed = variant.changed;
  const CheckpointId id = {1, changed ? R"({"step":2})" : R"({"step":1})"};
  const Codec codec = variant.compressed ? Codec::kShuffleZstd : Codec::kNone;
  std::vector<PartReceipt> receipts;
  for (int64_t part = 0; part < 2; ++part) {
    const std::vector<FragmentSpec> specs = SpecsOfPart(part, variant);
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                        PartWriter::Create(partial, part, id, specs, codec));
    std::vector<std::vector<std::byte>> images;
    images.reserve(specs.size());
    for (const FragmentSpec& spec : specs) {
      images.push_back(Image(spec, variant));
    }
    SS_RETURN_IF_ERROR(writer->WriteFragments(
        std::vector<std::span<const std::byte>>(images.begin(), images.end())));
    SS_ASSIGN_OR_RETURN(PartReceipt receipt, writer->Close());
    receipts.push_back(std::move(receipt));
  }
  return CommitCheckpoint(run_dir, id, receipts, "",
                          /*replace_existing=*/false);
}

}  // namespace
}  // namespace shardshift::ckpt

int main(int argc, char** argv) {
  const std::string flag = argc > 2 ? argv[2] : "";
  shardshift::ckpt::Variant variant;
  variant.changed = argc == 3 && flag == "--changed";
  variant.compressed = argc == 3 && flag == "--compressed";
  if (argc == 4 && flag == "--bits") {
    variant.bits = static_cast<uint32_t>(std::stoul(argv[3], nullptr, 16));
  }
  const bool is_plain = argc == 2;
  if (!is_plain && !variant.changed && !variant.compressed && !variant.bits) {
    return 2;
  }
  const absl::Status status = shardshift::ckpt::Write(argv[1], variant);
  if (!status.ok()) std::cerr << status.ToString() << std::endl;
  return status.ok() ? 0 : 1;
}
