// Writes the checkpoint that tests in Python read: element i of a tensor has
// the value i % 100 in its dtype (BOOL its lowest bit, C64 v - v*i).
//   python_sample RUN [--changed]
// --changed: t.F32's elements [1,2] and [2,2] are larger by 1 and 3, t.U64's
// empty tensor has another shape, its scalar another role; another state.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>

#include "ckpt/core/status_macros.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {
namespace {

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

absl::Status AppendBox(PartWriter& writer, int64_t index,
                       const FragmentSpec& spec, bool changed) {
  std::vector<std::byte> bytes;
  if (NumElements(spec.box) == 0) return absl::OkStatus();
  const bool is_matrix = spec.role == kMatrix;
  for (int64_t i = 0; i < NumElements(spec.box); ++i) {
    int64_t global = i;
    if (is_matrix) {
      const int64_t width = spec.box.extent[1];
      global = i / width * 9 + spec.box.start[1] + i % width;
    }
    int64_t value = global % 100;
    if (changed && is_matrix && spec.dtype == DType::kF32) {
      value += Change(global);
    }
    PutValue(spec.dtype, static_cast<int>(value), bytes);
  }
  return writer.WriteBlock(index, 0, bytes);
}

// Matrices are cut into columns 0 to 3 and 4 to 8; the rest is in part 0.
std::vector<FragmentSpec> SpecsOfPart(int64_t part, bool changed) {
  const Box columns = part == 0 ? Box{{0, 0}, {5, 4}} : Box{{0, 4}, {5, 5}};
  std::vector<FragmentSpec> specs;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    const bool is_other = changed && dtype == DType::kU64;
    const std::string name = "t." + std::string(Name(dtype));
    specs.push_back({name, kMatrix, dtype, {5, 9}, columns});
    if (part != 0) continue;
    specs.push_back({name, is_other ? "scalar2" : "scalar", dtype, {}, {}});
    const Shape empty = {0, is_other ? 4 : 3};
    specs.push_back({name, "empty", dtype, empty, WholeBox(empty)});
  }
  return specs;
}

absl::Status Write(const std::string& run_dir, bool changed) {
  SS_ASSIGN_OR_RETURN(const std::string partial, BeginCheckpoint(run_dir, 1));
  const CheckpointId id = {1, changed ? R"({"step":2})" : R"({"step":1})"};
  std::vector<PartReceipt> receipts;
  for (int64_t part = 0; part < 2; ++part) {
    const std::vector<FragmentSpec> specs = SpecsOfPart(part, changed);
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                        PartWriter::Create(partial, part, id, specs));
    for (size_t i = 0; i < specs.size(); ++i) {
      SS_RETURN_IF_ERROR(
          AppendBox(*writer, static_cast<int64_t>(i), specs[i], changed));
    }
    SS_ASSIGN_OR_RETURN(PartReceipt receipt, writer->Close());
    receipts.push_back(std::move(receipt));
  }
  return CommitCheckpoint(run_dir, id, receipts, "",
                          /*replace_existing=*/false);
}

}  // namespace
}  // namespace shardshift::ckpt

int main(int argc, char** argv) {
  const bool changed = argc == 3 && std::string(argv[2]) == "--changed";
  if (argc != 2 && !changed) return 2;
  const absl::Status status = shardshift::ckpt::Write(argv[1], changed);
  if (!status.ok()) std::cerr << status.ToString() << std::endl;
  return status.ok() ? 0 : 1;
}
