// SPDX-License-Identifier: Apache-2.0
#include "tests/ckpt/sample.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/reader.h"
#include "ckpt/verify.h"

namespace shardshift::ckpt {
namespace {

uint64_t SplitMix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

int64_t Uniform(std::mt19937& random, int64_t min, int64_t max) {
  return std::uniform_int_distribution<int64_t>(min, max)(random);
}

}  // namespace

std::string InMemory() {
  const std::string memory = "/dev/shm/";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : ::testing::TempDir();
}

TempDir::TempDir(const std::string& parent)
    : path_(absl::StrCat(parent, "ckpt-XXXXXX")) {
  if (mkdtemp(path_.data()) == nullptr) std::abort();
}

TempDir::~TempDir() { RemoveTree(path_).IgnoreError(); }

std::vector<std::byte> Payload(const Tensor& tensor, const Box& box) {
  const uint64_t seed = Checksum64(AsBytes(tensor.name + '/' + tensor.role));
  const auto item_size = static_cast<size_t>(ItemSize(tensor.dtype));
  std::vector<std::byte> bytes;
  Shape index = box.start;
  for (int64_t left = NumElements(box); left > 0; --left) {
    int64_t linear = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      linear = linear * tensor.shape[d] + index[d];
    }
    const uint64_t code = SplitMix(seed + static_cast<uint64_t>(linear));
    const auto* begin = reinterpret_cast<const std::byte*>(&code);
    bytes.insert(bytes.end(), begin, begin + item_size);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < box.start[d] + box.extent[d]) break;
      index[d] = box.start[d];
    }
  }
  return bytes;
}

std::vector<Box> RandomPartition(const Box& whole, int max_boxes,
                                 std::mt19937& random) {
  std::vector<Box> boxes = {whole};
  if (whole.start.empty() || NumElements(whole) == 0) return boxes;
  for (int i = 1; i < max_boxes; ++i) {
    const int64_t victim =
        Uniform(random, 0, static_cast<int64_t>(boxes.size()) - 1);
    Box low = boxes[victim];
    const int64_t dim = Uniform(random, 0, low.ndim() - 1);
    if (low.extent[dim] < 2) continue;
    const int64_t cut = Uniform(random, 1, low.extent[dim] - 1);
    Box high = low;
    low.extent[dim] = cut;
    high.start[dim] += cut;
    high.extent[dim] -= cut;
    boxes[victim] = low;
    boxes.push_back(high);
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

std::vector<SampleTensor> RandomTensors(int num_parts, std::mt19937& random) {
  std::vector<SampleTensor> tensors;
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int64_t ndim = 0; ndim <= 5; ++ndim) {
      SampleTensor tensor;
      tensor.info = {absl::StrCat("layers.", ndim, ".w"),
                     absl::StrCat("role", dtype),
                     static_cast<DType>(dtype),
                     {}};
      for (int64_t d = 0; d < ndim; ++d) {
        tensor.info.shape.push_back(Uniform(random, ndim == 3 ? 0 : 1, 5));
      }
      for (const Box& box :
           RandomPartition(WholeBox(tensor.info.shape), 6, random)) {
        tensor.pieces.push_back({Uniform(random, 0, num_parts - 1), box});
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

absl::StatusOr<std::vector<PartReceipt>> WriteSampleParts(
    const std::string& directory, const CheckpointId& id,
    const std::vector<SampleTensor>& tensors) {
  std::map<int64_t, std::vector<FragmentSpec>> parts;
  for (const SampleTensor& tensor : tensors) {
    const Tensor& info = tensor.info;
    for (const Piece& piece : tensor.pieces) {
      parts[piece.part].push_back(
          {info.name, info.role, info.dtype, info.shape, piece.box});
    }
  }
  std::vector<PartReceipt> receipts;
  for (const auto& [part, specs] : parts) {
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                        PartWriter::Create(directory, part, id, specs));
    std::vector<std::vector<std::byte>> payloads;
    for (const FragmentSpec& spec : specs) {
      payloads.push_back(
          Payload({spec.tensor, spec.role, spec.dtype, spec.shape}, spec.box));
    }
    SS_RETURN_IF_ERROR(
        writer->WriteFragments(std::vector<std::span<const std::byte>>(
            payloads.begin(), payloads.end())));
    SS_ASSIGN_OR_RETURN(PartReceipt receipt, writer->Close());
    receipts.push_back(std::move(receipt));
  }
  return receipts;
}

absl::Status WriteSample(const std::string& run_dir, int64_t step,
                         const std::vector<SampleTensor>& tensors, bool replace,
                         const std::string& state) {
  SS_ASSIGN_OR_RETURN(const std::string partial,
                      BeginCheckpoint(run_dir, step));
  const CheckpointId id = {step, state};
  SS_ASSIGN_OR_RETURN(const std::vector<PartReceipt> receipts,
                      WriteSampleParts(partial, id, tensors));
  return CommitCheckpoint(run_dir, id, receipts, R"({"layout":{"tp":2}})",
                          replace);
}

absl::Status CheckSample(const std::string& step_dir,
                         const std::vector<SampleTensor>& tensors) {
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader,
                      Reader::Open(step_dir));
  std::string faults;
  const auto note = [&](const Fault& fault) { faults += fault.message + "; "; };
  SS_RETURN_IF_ERROR(Verify(step_dir, /*deep=*/true, note).status());
  if (!faults.empty()) return absl::DataLossError(faults);
  for (const SampleTensor& tensor : tensors) {
    const Tensor& info = tensor.info;
    const Box whole = WholeBox(info.shape);
    SS_ASSIGN_OR_RETURN(const int64_t t,
                        reader->FindTensor(info.name, info.role));
    const std::vector<std::byte> expected = Payload(info, whole);
    std::vector<std::byte> bytes(expected.size());
    SS_RETURN_IF_ERROR(reader->ReadTensor(t, whole, bytes.data()));
    if (bytes != expected) {
      return absl::DataLossError(Describe(info) + " has other values");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Reader>> WriteForeignSample(
    const std::string& path, const std::vector<SampleTensor>& tensors,
    std::mt19937& random) {
  struct Placed {
    const Tensor& info;
    const Piece& piece;
    ForeignPlace place;
  };
  std::vector<Placed> placed;
  std::vector<std::string> files;
  for (const SampleTensor& tensor : tensors) {
    for (const Piece& piece : tensor.pieces) {
      files.resize(std::max<size_t>(files.size(), piece.part + 1));
      std::string& file = files[piece.part];
      file.append(random() % 7, '?');
      ForeignPlace place = {piece.part, std::ssize(file), 0};
      const std::vector<std::byte> image = Payload(tensor.info, piece.box);
      const std::string bytes(reinterpret_cast<const char*>(image.data()),
                              image.size());
      if (piece.box.extent.size() != 2 || image.empty() || random() % 2 == 0) {
        file += bytes;
      } else {
        const int64_t rows = piece.box.extent[0];
        const int64_t columns = piece.box.extent[1];
        const auto item_size = ItemSize(tensor.info.dtype);
        place.column_pitch = rows + static_cast<int64_t>(random() % 3);
        for (int64_t c = 0; c < columns; ++c) {
          for (int64_t r = 0; r < rows; ++r) {
            file += bytes.substr((r * columns + c) * item_size, item_size);
          }
          file.append((place.column_pitch - rows) * item_size, '?');
        }
      }
      placed.push_back({tensor.info, piece, place});
    }
  }
  ForeignFilesBuilder builder(path);
  for (size_t f = 0; f < files.size(); ++f) {
    const std::string name = absl::StrCat(path, f);
    WriteFile(name, files[f]);
    builder.AddFile(name, std::ssize(files[f]));
  }
  for (const Placed& p : placed) {
    SS_RETURN_IF_ERROR(builder.Add(p.info, p.piece.box, p.place));
  }
  SS_ASSIGN_OR_RETURN(ForeignFiles made, builder.Build(5, "{}", "{}"));
  return Reader::OpenForeign(std::move(made));
}

std::vector<SampleTensor> SmallTensors() {
  return {
      {{"w", "master", DType::kF32, {6, 8}},
       {{0, {{0, 0}, {6, 4}}}, {1, {{0, 4}, {6, 4}}}}},
      {{"b", "weight", DType::kBF16, {5}}, {{1, {{0}, {5}}}}},
      {{"n", "step", DType::kI64, {}}, {{0, {{}, {}}}}},
  };
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace shardshift::ckpt
