// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/slab.h"

#include <algorithm>
#include <cstring>

#include "ckpt/core/box_copy.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/worker_pool.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kPage = ckpt::kDirectBlockBytes;

// Gathered, then summed: as much as stays in a core's cache in between.
constexpr int64_t kGatherBytes = int64_t{128} << 10;

// Adds a run of what was read of a source. The place in the tensor follows from
// the source alone, so that the sum tells if it came to a wrong place.
void AddRun(const BandPlan& plan, const BandPlan::Run& run, int64_t item_size,
            std::span<const std::byte> bytes, ckpt::RunFingerprint& sum) {
  const ckpt::Box& from = plan.sources()[run.source];
  const int64_t end = run.src_offset + run.count;
  const int64_t first = ckpt::RowMajorIndex(plan.shape(), from, run.src_offset);
  const int64_t last = ckpt::RowMajorIndex(plan.shape(), from, end - 1);
  if (last - first == run.count - 1) {
    sum.Add(first * item_size, bytes);
    return;
  }
  const ckpt::Box whole = ckpt::WholeBox(plan.shape());
  for (const ckpt::Box& box : ckpt::RowMajorRange(from, run.src_offset, end)) {
    ckpt::ForEachRun(whole, box, [&](int64_t offset, int64_t count) {
      sum.Add(offset * item_size, bytes.first(count * item_size));
      bytes = bytes.subspan(count * item_size);
    });
  }
}

// Fills `dst` with elements of the task's target.
void Gather(const WriteTask& task, Range elements, std::byte* dst) {
  const TensorState& tensor = *task.tensor;
  const ckpt::DType from = tensor.from->dtype;
  const ckpt::DType to = tensor.to->dtype;
  const int64_t item_size = tensor.to_bytes();
  std::optional<ckpt::RunFingerprint> sum;
  if (tensor.sum) sum.emplace(tensor.sum->key);
  tensor.plan.Gather(
      *task.band, task.target, elements, tensor.from_bytes(),
      [&](const BandPlan::Run& run) {
        std::byte* at = dst + run.dst_offset * item_size;
        const auto num_bytes = static_cast<size_t>(run.count * item_size);
        if (from == to) {
          std::memcpy(at, run.src, num_bytes);
        } else {
          ckpt::ConvertValues(from, run.src, to, at, run.count);
        }
        if (sum) {
          AddRun(tensor.plan, run, item_size, {at, num_bytes}, *sum);
        }
      });
  if (!sum) return;
  const std::lock_guard lock(tensor.sum->mutex);
  tensor.sum->sum += sum->fingerprint();
}

absl::Status WritePiece(const WriteTask& task, BufferArena& arena) {
  OpenTarget& open = *task.open;
  if (!open.stream) {
    SS_ASSIGN_OR_RETURN(open.buffer, arena.Take());
    open.stream.emplace(*open.writer, open.fragment, open.block, open.buffer);
  }
  const int64_t item_size = task.tensor->to_bytes();
  for (int64_t begin = task.elements.begin; begin < task.elements.end;) {
    const std::span<std::byte> room = open.stream->room();
    const int64_t end =
        std::min({task.elements.end, begin + std::ssize(room) / item_size,
                  begin + kGatherBytes / item_size});
    Gather(task, {begin, end}, room.data());
    SS_RETURN_IF_ERROR(open.stream->Advance((end - begin) * item_size));
    begin = end;
  }
  if (open.stream->is_complete()) {
    open.stream.reset();
    arena.GiveBack(open.buffer);
  }
  return absl::OkStatus();
}

}  // namespace

Range PagesAround(const Range& bytes) {
  return {bytes.begin / kPage * kPage, ckpt::RoundUpToDirectBlock(bytes.end)};
}

int64_t BytesInSlab(const Band& band, int64_t item_size) {
  int64_t num_bytes = 0;
  for (const FragmentRange& source : band.sources) {
    num_bytes += PagesAround({source.elements.begin * item_size,
                              source.elements.end * item_size})
                     .size();
  }
  return num_bytes;
}

void Slab::Clear() {
  used_bytes = written_bytes = 0;
  reads.clear();
  to_finish.clear();
  writes.clear();
  complete_parts.clear();
}

absl::Status ReadSlab(const Slab& slab) {
  ckpt::WorkerPool& pool = ckpt::WorkerPool::Default();
  SS_RETURN_IF_ERROR(pool.Run(std::ssize(slab.reads), [&](int64_t i) {
    const ReadTask& task = slab.reads[i];
    return task.source->reader.Read(task.begin, task.end, task.pages);
  }));
  return pool.Run(std::ssize(slab.to_finish), [&](int64_t i) {
    return slab.to_finish[i]->reader.Finish();
  });
}

absl::Status WriteSlab(const Slab& slab, BufferArena& arena) {
  return ckpt::WorkerPool::Default().Run(
      std::ssize(slab.writes),
      [&](int64_t i) { return WritePiece(slab.writes[i], arena); });
}

}  // namespace shardshift::reshard
