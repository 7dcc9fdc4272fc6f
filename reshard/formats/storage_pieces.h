// What the storage of a tensor consists of, where a file is written: boxes of
// logical tensors, one after another, and zeros where there is none.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_STORAGE_PIECES_H_
#define SHARDSHIFT_RESHARD_FORMATS_STORAGE_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/block_sink.h"
#include "ckpt/core/dtype.h"
#include "ckpt/foreign_writer.h"
#include "reshard/formats/zip.h"
#include "reshard/layout/parameters.h"

namespace shardshift::reshard {

struct StoragePiece {
  ckpt::FragmentSpec spec;
  int64_t offset_bytes = 0;  // in the storage
};

// Pieces of a parameter, or of a stored tensor, as those of its storage.
std::vector<StoragePiece> StoragePiecesOf(
    const std::vector<Piece>& pieces, const std::vector<LogicalTensor>& tensors,
    const std::string& role, ckpt::DType dtype);

// The CRC-32 of zip, of so many zeros.
uint32_t Crc32OfZeros(int64_t num_bytes);

// A storage of a file that is to be written, which lies at some range of it.
class PlacedStorage {
 public:
  // Adds the pieces to `file`. REQUIRES: they ascend and do not overlap, all of
  // them within the range.
  PlacedStorage(std::vector<StoragePiece> pieces, const FileRange& range,
                ckpt::ForeignFile& file);

  // The CRC-32 of zip of the storage, from those of all specs of the file.
  uint32_t Crc(std::span<const uint32_t> spec_crcs) const;

 private:
  // Of a piece, within the storage.
  std::vector<FileRange> ranges_;
  size_t first_spec_;
  int64_t num_bytes_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_STORAGE_PIECES_H_
