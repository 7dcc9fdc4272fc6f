// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/storage_pieces.h"

#include <utility>

#include "ckpt/core/box.h"
#include "ckpt/core/crc32.h"

namespace shardshift::reshard {

std::vector<StoragePiece> StoragePiecesOf(
    const std::vector<Piece>& pieces, const std::vector<LogicalTensor>& tensors,
    const std::string& role, ckpt::DType dtype) {
  std::vector<StoragePiece> result;
  result.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    const LogicalTensor& tensor = tensors[piece.tensor];
    result.push_back({{tensor.name, role, dtype, tensor.shape, piece.box},
                      piece.offset * ckpt::ItemSize(dtype)});
  }
  return result;
}

uint32_t Crc32OfZeros(int64_t num_bytes) {
  uint32_t crc = 0;
  // Of 2^i zeros, the first bits being done.
  uint32_t run = ckpt::UpdateCrc32(0, {{std::byte{0}}});
  int64_t run_bytes = 1;
  for (; num_bytes > 0; num_bytes >>= 1) {
    if ((num_bytes & 1) != 0) crc = ckpt::CombineCrc32(crc, run, run_bytes);
    if (num_bytes > 1) run = ckpt::CombineCrc32(run, run, run_bytes);
    run_bytes *= 2;
  }
  return crc;
}

PlacedStorage::PlacedStorage(std::vector<StoragePiece> pieces,
                             const FileRange& range, ckpt::ForeignFile& file)
    : first_spec_(file.specs.size()), num_bytes_(range.num_bytes) {
  ranges_.reserve(pieces.size());
  for (StoragePiece& piece : pieces) {
    const int64_t num_bytes =
        ckpt::NumElements(piece.spec.box) * ckpt::ItemSize(piece.spec.dtype);
    ranges_.push_back({piece.offset_bytes, num_bytes});
    file.specs.push_back(std::move(piece.spec));
    file.places.push_back({0, range.offset_bytes + piece.offset_bytes, 0});
  }
}

uint32_t PlacedStorage::Crc(std::span<const uint32_t> spec_crcs) const {
  uint32_t crc = 0;
  int64_t end = 0;
  const auto add_zeros = [&](int64_t begin) {
    if (begin == end) return;
    crc = ckpt::CombineCrc32(crc, Crc32OfZeros(begin - end), begin - end);
  };
  for (size_t i = 0; i < ranges_.size(); ++i) {
    add_zeros(ranges_[i].offset_bytes);
    crc = ckpt::CombineCrc32(crc, spec_crcs[first_spec_ + i],
                             ranges_[i].num_bytes);
    end = ranges_[i].end_bytes();
  }
  add_zeros(num_bytes_);
  return crc;
}

}  // namespace shardshift::reshard
