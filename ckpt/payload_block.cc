// SPDX-License-Identifier: Apache-2.0
#include "ckpt/payload_block.h"

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "ckpt/block_io.h"
#include "ckpt/core/crc32.h"
#include "ckpt/io/aligned_buffer.h"

namespace shardshift::ckpt {

void PayloadBlock::Check(const File& file, const Table& table) {
  const Fragment& in = table.fragments[fragment];
  const Tensor& tensor = table.tensors[in.tensor];
  absl::StatusOr<StagingBuffer> buffer = StagingBuffer::Take();
  status = buffer.status();
  if (!status.ok()) return;
  BoxFingerprint sum(FingerprintKey(tensor.name, tensor.role, tensor.dtype),
                     tensor.dtype, tensor.shape, in.box, block * kBlockBytes);
  status = StreamBlock(file, table, in, block, buffer->bytes(),
                       [&](ElementRange, std::span<const std::byte> values) {
                         sum.Update(values);
                         if (table.is_foreign) {
                           crc32 = UpdateCrc32(crc32, values);
                         }
                       });
  fingerprint = sum.fingerprint();
}

std::vector<PayloadBlock> BlocksOf(const Table& table) {
  std::vector<PayloadBlock> blocks;
  for (size_t f = 0; f < table.fragments.size(); ++f) {
    for (size_t b = 0; b < table.fragments[f].blocks.size(); ++b) {
      blocks.push_back({static_cast<int64_t>(f), static_cast<int64_t>(b)});
    }
  }
  return blocks;
}

}  // namespace shardshift::ckpt
