// Reads bytes as a file of torch.save, or, with what is around it in order, as
// the pickle of one. No tensor leaves its storage.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "reshard/formats/torch_file.h"
#include "tests/reshard/formats/memory_file.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kMaxBytes = 4096;

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckTensor(const ckpt::File& file, const TorchTensor& tensor) {
  const FileRange& storage = tensor.storage;
  Require(storage.offset_bytes >= 0 &&
          storage.end_bytes() <= WholeFile(file)->num_bytes);
  Require(tensor.offset_bytes >= storage.offset_bytes &&
          tensor.offset_bytes <= storage.end_bytes());
  if (ckpt::NumElements(tensor.shape) > 0) {
    int64_t last = tensor.offset_bytes;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      last += (tensor.shape[d] - 1) * tensor.strides[d] *
              ckpt::ItemSize(tensor.dtype);
    }
    Require(last + ckpt::ItemSize(tensor.dtype) <= storage.end_bytes());
  }
  ReadTensor(file, tensor, kMaxBytes).IgnoreError();
}

void ReadFile(std::string bytes) {
  const MemoryFile memory(std::move(bytes));
  if (const auto zip = ZipArchive::Read(memory.file(), memory.all());
      zip.ok()) {
    int64_t end = 0;
    for (const ZipEntry& entry : zip->entries()) {
      Require(entry.payload.offset_bytes >= end);
      end = entry.payload.end_bytes();
      ReadZipEntry(memory.file(), entry, kMaxBytes).IgnoreError();
    }
    Require(end <= memory.all().num_bytes);
  }
  const auto torch_file = TorchFile::Read(memory.file());
  if (!torch_file.ok()) return;
  const Pickle& pickle = torch_file->pickle();
  for (Pickle::Id id = 0; id < pickle.num_nodes(); ++id) {
    const auto tensor = torch_file->Tensor(PickleValue(pickle, id));
    if (tensor.ok()) CheckTensor(memory.file(), *tensor);
  }
}

// The first byte chooses.
void Read(absl::string_view input) {
  if (input.empty()) return;
  const std::string bytes(input.substr(1));
  if (input.front() % 2 == 0) return ReadFile(bytes);
  ReadFile(ZipOf({{"archive/data.pkl", bytes},
                  {"archive/byteorder", "little"},
                  {"archive/data/0", std::string(24, 'x')},
                  {"archive/data/1", ""},
                  {"archive/version", "3\n"}}));
}

}  // namespace
}  // namespace shardshift::reshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardshift::reshard::Read({reinterpret_cast<const char*>(data), size});
  return 0;
}
