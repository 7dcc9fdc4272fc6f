// The memory of CopyFiles: bands of tensors with the tasks that read and write
// them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_SLAB_H_
#define SHARDSHIFT_RESHARD_EXEC_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "ckpt/block_reader.h"
#include "ckpt/block_sink.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/format/table.h"
#include "ckpt/io/aligned_buffer.h"
#include "reshard/exec/band.h"
#include "reshard/exec/buffer_arena.h"
#include "reshard/exec/copy_files.h"

namespace shardshift::reshard {

// A block of a target, from its first piece to its last.
struct OpenTarget {
  ckpt::BlockSink* writer = nullptr;
  int64_t fragment = 0;
  int64_t block = 0;
  std::span<std::byte> buffer = {};
  std::optional<ckpt::BlockStream> stream = std::nullopt;
};

// A block of a source, from its first piece to its last.
struct OpenSource {
  ckpt::BlockReader reader;
  int64_t block = 0;
};

// The fingerprint of what was read of a tensor, under the name of the copy.
struct NamedSum {
  explicit NamedSum(const ckpt::Digest128& of) : key(of) {}

  const ckpt::Digest128 key;
  std::mutex mutex;
  ckpt::Fingerprint sum;  // guarded by `mutex`
};

// One TensorCopy under way.
struct TensorState {
  const ckpt::Tensor* from = nullptr;
  const ckpt::FragmentSpec* to = nullptr;  // any of the targets': names, dtype
  int64_t first_fragment = 0;              // of the source, in its table
  std::vector<TargetFragment> targets;
  BandPlan plan;
  std::shared_ptr<NamedSum> sum;          // null if the source's table tells it
  std::vector<ckpt::BlockSink*> writers;  // by target, once they are open
  // By source and target: the block that the next band goes on with.
  std::vector<std::shared_ptr<OpenSource>> open_sources;
  std::vector<std::shared_ptr<OpenTarget>> open_targets;

  int64_t from_bytes() const { return ckpt::ItemSize(from->dtype); }
  int64_t to_bytes() const { return ckpt::ItemSize(to->dtype); }
};

// Values [begin, end) of a block, in bytes, that go to `pages`.
struct ReadTask {
  std::shared_ptr<OpenSource> source;
  int64_t begin = 0;
  int64_t end = 0;
  std::span<std::byte> pages;
};

// Elements of a target that lie in one block of it and in one band.
struct WriteTask {
  std::shared_ptr<const TensorState> tensor;
  std::shared_ptr<const Band> band;
  int64_t target = 0;
  Range elements;
  std::shared_ptr<OpenTarget> open;
};

// Bands that are read, then written, together.
struct Slab {
  ckpt::AlignedBuffer memory;
  int64_t used_bytes = 0;
  std::vector<ReadTask> reads;
  std::vector<std::shared_ptr<OpenSource>> to_finish;  // after the reads
  std::vector<WriteTask> writes;
  std::vector<int64_t> complete_parts;  // once it is written
  int64_t written_bytes = 0;

  int64_t room() const { return std::ssize(memory.bytes()) - used_bytes; }
  void Clear();
};

// The pages around bytes of a fragment, in bytes.
Range PagesAround(const Range& bytes);

// What the sources of a band take in a slab.
int64_t BytesInSlab(const Band& band, int64_t item_size);

// Both use the default pool. Errors: DataLoss naming file, tensor and offset;
// as BlockSink.
absl::Status ReadSlab(const Slab& slab);
absl::Status WriteSlab(const Slab& slab, BufferArena& arena);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_SLAB_H_
