// Writes the checkpoint that h5py_reads_test.py reads: element i of a tensor
// has the value i % 100 in its dtype (BOOL its lowest bit, C64 v - v*i).
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>

#include "absl/strings/ascii.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {
namespace {

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

// The columns [begin, end) of a [5,9] tensor; every value of other shapes.
absl::Status AppendBox(PartWriter& writer, int64_t index,
                       const FragmentSpec& spec) {
  std::vector<std::byte> bytes;
  const bool is_matrix = spec.shape.size() == 2;
  const int64_t width = is_matrix ? spec.box.extent[1] : 1;
  for (int64_t i = 0; i < NumElements(spec.box); ++i) {
    const int64_t global =
        is_matrix ? i / width * 9 + spec.box.start[1] + i % width : i;
    PutValue(spec.dtype, static_cast<int>(global % 100), bytes);
  }
  return writer.Append(index, bytes);
}

absl::Status Write(const std::string& run_dir) {
  SS_ASSIGN_OR_RETURN(const std::string partial, BeginCheckpoint(run_dir, 1));
  std::vector<PartReceipt> receipts;
  for (int64_t part = 0; part < 2; ++part) {
    const Box columns = part == 0 ? Box{{0, 0}, {5, 4}} : Box{{0, 4}, {5, 5}};
    std::vector<FragmentSpec> specs;
    for (int d = 0; d < kNumDTypes; ++d) {
      const auto dtype = static_cast<DType>(d);
      const std::string name = "t." + std::string(Name(dtype));
      specs.push_back({name, "matrix%b", dtype, {5, 9}, columns});
      if (part == 0) {
        specs.push_back({name, "scalar", dtype, {}, {}});
        specs.push_back({name, "empty", dtype, {0, 3}, WholeBox({0, 3})});
      }
    }
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                        PartWriter::Create(partial, part, specs));
    for (size_t i = 0; i < specs.size(); ++i) {
      SS_RETURN_IF_ERROR(AppendBox(*writer, static_cast<int64_t>(i), specs[i]));
    }
    SS_ASSIGN_OR_RETURN(PartReceipt receipt, writer->Close());
    receipts.push_back(std::move(receipt));
  }
  return CommitCheckpoint(run_dir, 1, receipts, R"({"step":1})", "",
                          /*replace_existing=*/false);
}

}  // namespace
}  // namespace shardshift::ckpt

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const absl::Status status = shardshift::ckpt::Write(argv[1]);
  if (!status.ok()) std::cerr << status.ToString() << std::endl;
  return status.ok() ? 0 : 1;
}
