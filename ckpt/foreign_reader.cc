// What a Reader of foreign files has of its own.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>
#include <vector>

#include "ckpt/core/status_macros.h"
#include "ckpt/foreign_files.h"
#include "ckpt/io/worker_pool.h"
#include "ckpt/payload_block.h"
#include "ckpt/reader.h"

namespace shardshift::ckpt {

std::unique_ptr<Reader> Reader::OpenForeign(ForeignFiles files) {
  int64_t total_bytes = 0;
  for (const Part& part : files.table.parts) total_bytes += part.file_bytes;
  std::unique_ptr<Reader> reader(
      new Reader(std::move(files.source), std::move(files.table), total_bytes));
  reader->foreign_paths_ = std::move(files.files);
  reader->foreign_contents_ = std::move(files.contents);
  return reader;
}

absl::Status Reader::TakeFingerprints() {
  if (!table_.is_foreign) return absl::OkStatus();
  std::vector<PayloadBlock> blocks = BlocksOf(table_);
  const absl::Status read =
      WorkerPool::Default().Run(std::ssize(blocks), [&](int64_t b) {
        const int64_t part = table_.fragments[blocks[b].fragment].part;
        SS_ASSIGN_OR_RETURN(const auto file, PartFile(part));
        blocks[b].Check(*file, table_);
        return blocks[b].status;
      });
  SS_RETURN_IF_ERROR(read);
  for (Fragment& fragment : table_.fragments) fragment.fingerprint = {};
  for (const PayloadBlock& block : blocks) {
    Fragment& fragment = table_.fragments[block.fragment];
    fragment.fingerprint += block.fingerprint;
    if (crcs_ == nullptr || fragment.column_pitch != 0) continue;
    crcs_->Add(fragment.part, fragment.blocks[block.block].offset_bytes,
               {BlockBytes(table_, fragment, block.block), block.crc32});
  }
  return absl::OkStatus();
}

}  // namespace shardshift::ckpt
