// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_file_plan.h"

#include <cstdint>
#include <memory>
#include <span>

namespace shardshift::reshard {
namespace {

struct PlacedFile {
  TorchFileLayout layout;
  std::vector<PlacedStorage> storages;
};

std::vector<ckpt::FixedBytes> Around(const PlacedFile& file,
                                     std::span<const uint32_t> spec_crcs) {
  std::vector<uint32_t> crcs;
  crcs.reserve(file.storages.size());
  for (const PlacedStorage& storage : file.storages) {
    crcs.push_back(storage.Crc(spec_crcs));
  }
  std::vector<ckpt::FixedBytes> fixed;
  for (TorchFileLayout::Piece& piece : file.layout.Rest(crcs)) {
    fixed.push_back({piece.offset_bytes, std::move(piece.bytes)});
  }
  return fixed;
}

}  // namespace

PyValue TorchFilePlan::AddTensor(ckpt::DType dtype, const ckpt::Shape& shape,
                                 std::vector<StoragePiece> pieces) {
  pieces_.push_back(std::move(pieces));
  return builder_.Tensor(
      builder_.AddStorage(dtype, ckpt::NumElements(ckpt::WholeBox(shape))),
      shape);
}

ckpt::ForeignFile TorchFilePlan::Finish(std::string name,
                                        const PyValue& root) && {
  const auto placed = std::make_shared<PlacedFile>();
  placed->layout = builder_.Layout(root);
  ckpt::ForeignFile file;
  file.name = std::move(name);
  file.file_bytes = placed->layout.total_bytes();
  placed->storages.reserve(pieces_.size());
  for (size_t i = 0; i < pieces_.size(); ++i) {
    placed->storages.emplace_back(std::move(pieces_[i]),
                                  placed->layout.Storage(i), file);
  }
  file.finish = [placed](std::span<const uint32_t> spec_crcs) {
    return Around(*placed, spec_crcs);
  };
  return file;
}

}  // namespace shardshift::reshard
