// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/copy_files.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/worker_pool.h"
#include "reshard/exec/band.h"
#include "reshard/exec/buffer_arena.h"
#include "reshard/exec/part_set.h"
#include "reshard/exec/slab.h"
#include "reshard/exec/slot_pipeline.h"

namespace shardshift::reshard {
namespace {

// Less is not worth a band at the end of a slab.
constexpr int64_t kMinBandBytes = int64_t{256} << 10;

// A write is to be large, and a stream's buffer small if many are open.
constexpr int64_t kMaxBufferBytes = int64_t{4} << 20;
constexpr int64_t kMinBufferBytes = int64_t{64} << 10;

// One is planned, one read, one written, and one takes up what one of these is
// ahead of the next; few have parts to be closed.
constexpr int64_t kNumSlabs = 4;

// Threads that write at a time, about.
constexpr int64_t kTasksAtWork = 4;

// The parts in the order in which the tensors want them.
std::vector<int64_t> OrderOfFirstUse(const std::vector<TargetPart>& parts,
                                     const std::vector<TensorCopy>& tensors) {
  std::vector<int64_t> order;
  std::vector<bool> is_known(parts.size(), false);
  for (const TensorCopy& copy : tensors) {
    for (const TargetFragment& target : copy.targets) {
      if (!is_known[target.part]) order.push_back(target.part);
      is_known[target.part] = true;
    }
  }
  return order;
}

class FileCopier {
 public:
  FileCopier(const ckpt::Reader& source, const std::vector<TargetPart>& parts,
             const std::vector<TensorCopy>& tensors, const OpenSink& open,
             const CopyFilesOptions& options)
      : source_(source),
        parts_(parts),
        tensors_(tensors),
        open_(open),
        options_(options),
        sums_(tensors.size()) {}

  absl::StatusOr<CopiedFiles> Run() {
    SS_RETURN_IF_ERROR(Prepare());
    pipeline_.emplace(
        kNumSlabs,
        std::vector<SlotPipeline::Stage>{
            [this](int64_t slot) { return ReadSlab(slabs_[slot]); },
            [this](int64_t slot) { return Write(slabs_[slot]); },
            [this](int64_t slot) { return CloseParts(slabs_[slot]); }});
    SS_RETURN_IF_ERROR(TakeSlab());
    SS_RETURN_IF_ERROR(PlanAll());
    SS_RETURN_IF_ERROR(pipeline_->Finish());
    CopiedFiles result;
    result.receipts = part_set_->TakeReceipts();
    for (size_t t = 0; t < sums_.size(); ++t) {
      if (!sums_[t]) continue;
      const auto& [source, copy, targets] = tensors_[t];
      result.fingerprints[{source, copy}] = sums_[t]->sum;
    }
    return result;
  }

  // Instead of Run().
  absl::StatusOr<CopyCosts> Costs() {
    CopyCosts costs;
    int64_t most_targets = 1;
    for (const TensorCopy& copy : tensors_) {
      SS_ASSIGN_OR_RETURN(const auto state, StateOf(copy));
      most_targets = std::max(most_targets, state->plan.MaxOpenTargets());
      costs.tensors.push_back(CostOf(copy, *state));
      costs.read_bytes += costs.tensors.back().read_bytes;
    }
    // Besides the open targets' those of the tasks at work.
    costs.memory_bytes =
        kNumSlabs * SlabBytes() +
        (most_targets + kTasksAtWork) * BufferBytes(most_targets);
    return costs;
  }

 private:
  int64_t SlabBytes() const {
    return std::max(ckpt::kDirectBlockBytes,
                    options_.memory_bytes * 3 / 4 / kNumSlabs);
  }

  int64_t BufferBytes(int64_t most_targets) const {
    if (options_.codec != ckpt::Codec::kNone) return ckpt::kBlockBytes;
    const int64_t share =
        options_.memory_bytes / 4 / (most_targets + kTasksAtWork);
    return std::clamp(share / kMinBufferBytes * kMinBufferBytes,
                      kMinBufferBytes, kMaxBufferBytes);
  }

  TensorCost CostOf(const TensorCopy& copy, const TensorState& state) const {
    TensorCost cost = {.source = copy.source,
                       .sources = std::ssize(state.plan.sources()),
                       .targets = std::ssize(state.plan.targets()),
                       .copies = state.plan.num_copies()};
    for (const ckpt::Box& box : state.plan.targets()) {
      cost.payload_bytes += ckpt::NumElements(box) * state.to_bytes();
    }
    const int64_t num_elements = ckpt::NumElements(state.plan.shape());
    for (int64_t begin = state.plan.NextWanted(0); begin < num_elements;) {
      const Band band = FittingBand(state, begin, SlabBytes());
      cost.read_bytes += BytesInSlab(band, state.from_bytes());
      begin = state.plan.NextWanted(band.elements.end);
    }
    return cost;
  }

  absl::Status Prepare() {
    int64_t most_targets = 1;
    for (const TensorCopy& copy : tensors_) {
      SS_ASSIGN_OR_RETURN(const auto state, StateOf(copy));
      most_targets = std::max(most_targets, state->plan.MaxOpenTargets());
    }
    for (const TargetPart& part : parts_) {
      fragments_left_.push_back(std::ssize(part.specs));
    }
    part_set_.emplace(parts_, OrderOfFirstUse(parts_, tensors_), open_);
    arena_.emplace(BufferBytes(most_targets));
    for (Slab& slab : slabs_) {
      SS_ASSIGN_OR_RETURN(slab.memory,
                          ckpt::AlignedBuffer::Allocate(SlabBytes()));
    }
    return absl::OkStatus();
  }

  // Made once to check it and once to follow it: the states of all tensors
  // together would take memory as the checkpoint has fragments.
  absl::StatusOr<std::shared_ptr<TensorState>> StateOf(const TensorCopy& copy) {
    auto state = std::make_shared<TensorState>();
    state->from = &source_.table().tensors[copy.source];
    if (copy.targets.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(*state->from), ": no file is to hold a piece of it"));
    }
    state->first_fragment = source_.FirstFragment(copy.source);
    state->targets = copy.targets;
    std::shared_ptr<NamedSum>& sum = sums_[&copy - tensors_.data()];
    std::vector<ckpt::Box> sources;
    for (const ckpt::Fragment& fragment : source_.Fragments(copy.source)) {
      sources.push_back(fragment.box);
    }
    std::vector<ckpt::Box> targets;
    for (const TargetFragment& target : copy.targets) {
      state->to = &parts_[target.part].specs[target.spec];
      targets.push_back(state->to->box);
    }
    absl::StatusOr<BandPlan> plan = BandPlan::Create(
        state->from->shape, std::move(sources), std::move(targets));
    if (!plan.ok()) {
      return Annotate(plan.status(), absl::StrCat(source_.directory(), ": ",
                                                  Describe(*state->from)));
    }
    state->plan = *std::move(plan);
    SS_RETURN_IF_ERROR(
        Annotate(ckpt::CheckConversion(state->from->dtype, state->to->dtype),
                 Describe(*state->from)));
    const bool is_renamed = state->from->name != state->to->tensor ||
                            state->from->role != state->to->role ||
                            state->from->dtype != state->to->dtype;
    if ((is_renamed || source_.table().is_foreign) && sum == nullptr) {
      sum = std::make_shared<NamedSum>(ckpt::FingerprintKey(
          state->to->tensor, state->to->role, state->to->dtype));
    }
    state->sum = sum;
    state->open_sources.resize(state->plan.sources().size());
    state->open_targets.resize(copy.targets.size());
    state->writers.resize(copy.targets.size());
    return state;
  }

  absl::Status PlanAll() {
    for (const TensorCopy& copy : tensors_) {
      SS_ASSIGN_OR_RETURN(const auto state, StateOf(copy));
      SS_RETURN_IF_ERROR(OpenParts(*state));
      SS_RETURN_IF_ERROR(PlanTensor(state));
    }
    pipeline_->Push(slot_);
    return absl::OkStatus();
  }

  absl::Status PlanTensor(const std::shared_ptr<TensorState>& state) {
    const int64_t num_elements = ckpt::NumElements(state->plan.shape());
    int64_t begin = state->plan.NextWanted(0);
    while (begin < num_elements) {
      Slab& slab = slabs_[slot_];
      Band band = FittingBand(*state, begin, slab.room());
      const int64_t end = band.elements.end;
      const bool is_small =
          band.elements.size() * state->from_bytes() < kMinBandBytes &&
          end < num_elements;
      if (is_small && !slab.reads.empty()) {
        SS_RETURN_IF_ERROR(TurnOver());
        continue;
      }
      SS_RETURN_IF_ERROR(AddBand(state, std::move(band), slab));
      begin = state->plan.NextWanted(end);
      // The next band goes on with the blocks of this one.
      if (begin < num_elements) SS_RETURN_IF_ERROR(TurnOver());
    }
    for (std::shared_ptr<OpenSource>& open : state->open_sources) {
      if (open) slabs_[slot_].to_finish.push_back(std::move(open));
    }
    return absl::OkStatus();
  }

  // The longest band from `begin` on whose pages take no more than `room`.
  static Band FittingBand(const TensorState& state, int64_t begin,
                          int64_t room) {
    const int64_t item_size = state.from_bytes();
    int64_t max_elements = room / item_size;
    Band band = state.plan.BandFrom(begin, max_elements);
    int64_t num_bytes = 0;
    while ((num_bytes = BytesInSlab(band, item_size)) > room) {
      const double share =
          static_cast<double>(room) / static_cast<double>(num_bytes);
      max_elements = std::min(
          max_elements - 1,
          static_cast<int64_t>(static_cast<double>(max_elements) * share));
      band = state.plan.BandFrom(begin, max_elements);
    }
    return band;
  }

  absl::Status OpenParts(TensorState& state) {
    for (size_t t = 0; t < state.targets.size(); ++t) {
      const int64_t part = state.targets[t].part;
      SS_ASSIGN_OR_RETURN(state.writers[t], part_set_->Open(part));
      if (ckpt::NumElements(state.plan.targets()[t]) == 0) FragmentDone(part);
    }
    return absl::OkStatus();
  }

  void FragmentDone(int64_t part) {
    if (--fragments_left_[part] == 0) {
      slabs_[slot_].complete_parts.push_back(part);
    }
  }

  absl::Status AddBand(const std::shared_ptr<TensorState>& state, Band made,
                       Slab& slab) {
    const auto band = std::make_shared<Band>(std::move(made));
    for (FragmentRange& source : band->sources) {
      SS_RETURN_IF_ERROR(AddReads(*state, source, slab));
    }
    for (const FragmentRange& target : band->targets) {
      AddWrites(state, band, target, slab);
    }
    return absl::OkStatus();
  }

  // Gives the range its memory, and reads it block by block.
  absl::Status AddReads(TensorState& state, FragmentRange& range, Slab& slab) {
    const int64_t index = state.first_fragment + range.fragment;
    const Range bytes = {range.elements.begin * state.from_bytes(),
                         range.elements.end * state.from_bytes()};
    const Range pages = PagesAround(bytes);
    const auto memory =
        slab.memory.bytes().subspan(slab.used_bytes, pages.size());
    slab.used_bytes += pages.size();
    range.data = memory.data() + (bytes.begin - pages.begin);

    std::shared_ptr<OpenSource>& open = state.open_sources[range.fragment];
    for (int64_t begin = bytes.begin; begin < bytes.end;) {
      const int64_t block = begin / ckpt::kBlockBytes;
      const int64_t block_begin = block * ckpt::kBlockBytes;
      if (open && open->block != block) {
        slab.to_finish.push_back(std::exchange(open, nullptr));
      }
      if (!open) {
        SS_ASSIGN_OR_RETURN(ckpt::BlockReader reader,
                            source_.OpenBlock(index, block));
        open =
            std::make_shared<OpenSource>(OpenSource{std::move(reader), block});
      }
      const int64_t block_end = block_begin + open->reader.num_bytes();
      const int64_t end = std::min(bytes.end, block_end);
      slab.reads.push_back({open, begin - block_begin, end - block_begin,
                            memory.subspan(begin / ckpt::kDirectBlockBytes *
                                               ckpt::kDirectBlockBytes -
                                           pages.begin)});
      if (end == block_end) open.reset();
      begin = end;
    }
    return absl::OkStatus();
  }

  void AddWrites(const std::shared_ptr<TensorState>& state,
                 const std::shared_ptr<const Band>& band,
                 const FragmentRange& range, Slab& slab) {
    const TargetFragment& target = state->targets[range.fragment];
    const int64_t per_block = ckpt::kBlockBytes / state->to_bytes();
    const int64_t num_elements =
        ckpt::NumElements(state->plan.targets()[range.fragment]);
    std::shared_ptr<OpenTarget>& open = state->open_targets[range.fragment];
    for (int64_t begin = range.elements.begin; begin < range.elements.end;) {
      const int64_t block = begin / per_block;
      const int64_t block_end = std::min((block + 1) * per_block, num_elements);
      const int64_t end = std::min(range.elements.end, block_end);
      if (!open) {
        open = std::make_shared<OpenTarget>(
            OpenTarget{.writer = state->writers[range.fragment],
                       .fragment = target.spec,
                       .block = block});
      }
      slab.writes.push_back({state, band, range.fragment, {begin, end}, open});
      slab.written_bytes += (end - begin) * state->to_bytes();
      if (end == block_end) open.reset();
      begin = end;
    }
    if (range.elements.end == num_elements) FragmentDone(target.part);
  }

  absl::Status TakeSlab() {
    SS_ASSIGN_OR_RETURN(slot_, pipeline_->Take());
    slabs_[slot_].Clear();
    return absl::OkStatus();
  }

  // Hands on the slab at hand and takes another.
  absl::Status TurnOver() {
    pipeline_->Push(slot_);
    return TakeSlab();
  }

  absl::Status Write(Slab& slab) {
    SS_RETURN_IF_ERROR(WriteSlab(slab, *arena_));
    if (slab.written_bytes > 0) {
      options_.progress(done_bytes_ += slab.written_bytes);
    }
    return absl::OkStatus();
  }

  absl::Status CloseParts(const Slab& slab) {
    return ckpt::WorkerPool::Default().Run(
        std::ssize(slab.complete_parts),
        [&](int64_t i) { return part_set_->Close(slab.complete_parts[i]); });
  }

  const ckpt::Reader& source_;
  const std::vector<TargetPart>& parts_;
  const std::vector<TensorCopy>& tensors_;
  const OpenSink open_;
  const CopyFilesOptions& options_;

  std::vector<int64_t> fragments_left_;  // by part, that are not planned yet
  std::vector<std::shared_ptr<NamedSum>> sums_;  // by tensor, if any has one
  int64_t done_bytes_ = 0;                       // of the stage that writes
  std::optional<PartSet> part_set_;
  std::optional<BufferArena> arena_;
  std::array<Slab, kNumSlabs> slabs_;
  int64_t slot_ = 0;                      // of the slab that is being planned
  std::optional<SlotPipeline> pipeline_;  // destroyed first
};

}  // namespace

absl::StatusOr<CopyCosts> CostOfCopies(const ckpt::Reader& source,
                                       const std::vector<TargetPart>& parts,
                                       const std::vector<TensorCopy>& tensors,
                                       const CopyFilesOptions& options) {
  return FileCopier(source, parts, tensors, {}, options).Costs();
}

absl::StatusOr<CopiedFiles> CopyFiles(const ckpt::Reader& source,
                                      const std::vector<TargetPart>& parts,
                                      const std::vector<TensorCopy>& tensors,
                                      const OpenSink& open,
                                      const CopyFilesOptions& options) {
  return FileCopier(source, parts, tensors, open, options).Run();
}

}  // namespace shardshift::reshard
