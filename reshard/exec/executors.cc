// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/executors.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/worker_pool.h"
#include "reshard/plan/plan.h"

namespace shardshift::reshard {
namespace {

// Trained parameters are stored as fp32.
constexpr int64_t kItemBytes = sizeof(float);

std::span<const std::byte> Bytes(const float* data, int64_t count) {
  return std::as_bytes(std::span(data, static_cast<size_t>(count)));
}

// Blocks of a part that are filled, then written, together.
class Slab {
 public:
  explicit Slab(ckpt::AlignedBuffer buffer) : buffer_(std::move(buffer)) {}

  // Takes a block of item `item`, whose elements are `pieces` in their order,
  // unless there is no room.
  bool Add(int64_t item, int64_t block, const std::vector<ckpt::Box>& pieces,
           const WriteItem& of) {
    int64_t elements = 0;
    for (const ckpt::Box& box : pieces) elements += ckpt::NumElements(box);
    const int64_t num_bytes = elements * kItemBytes;
    const auto room = static_cast<int64_t>(buffer_.bytes().size()) - used_;
    if (num_bytes > room) return false;
    const auto bytes = buffer_.bytes().subspan(used_, num_bytes);
    auto* image = reinterpret_cast<float*>(bytes.data());
    for (const ckpt::Box& box : pieces) {
      pieces_.push_back({&of, box, image});
      image += ckpt::NumElements(box);
    }
    blocks_.push_back({item, block, bytes});
    used_ += ckpt::RoundUpToDirectBlock(num_bytes);
    return true;
  }

  absl::Status Fill(ItemSource source) const { return source(pieces_); }

  absl::Status WriteTo(ckpt::PartWriter& writer) const {
    return ckpt::WorkerPool::Default().Run(
        static_cast<int64_t>(blocks_.size()), [&](int64_t i) {
          const FilledBlock& block = blocks_[i];
          return writer.WriteBlock(block.item, block.block, block.bytes);
        });
  }

  bool empty() const { return blocks_.empty(); }
  void Clear() {
    used_ = 0;
    pieces_.clear();
    blocks_.clear();
  }

 private:
  struct FilledBlock {
    int64_t item;
    int64_t block;
    std::span<const std::byte> bytes;
  };

  ckpt::AlignedBuffer buffer_;
  int64_t used_ = 0;
  std::vector<ItemPiece> pieces_;
  std::vector<FilledBlock> blocks_;
};

// Writes parts one after another, with two slabs that take turns.
class PartStream {
 public:
  static absl::StatusOr<PartStream> Create(int64_t slab_bytes,
                                           ItemSource source) {
    SS_ASSIGN_OR_RETURN(ckpt::AlignedBuffer first,
                        ckpt::AlignedBuffer::Allocate(slab_bytes));
    SS_ASSIGN_OR_RETURN(ckpt::AlignedBuffer second,
                        ckpt::AlignedBuffer::Allocate(slab_bytes));
    return PartStream(source, Slab(std::move(first)), Slab(std::move(second)));
  }

  absl::Status Write(std::span<const WriteItem> items,
                     ckpt::PartWriter& writer) {
    const absl::Status fed = Feed(items, writer);
    // Also after an error: the write under way uses `writer`.
    const absl::Status written = write_.Wait();
    return fed.ok() ? written : fed;
  }

 private:
  PartStream(ItemSource source, Slab first, Slab second)
      : source_(source),
        filling_(std::make_unique<Slab>(std::move(first))),
        writing_(std::make_unique<Slab>(std::move(second))) {}

  absl::Status Feed(std::span<const WriteItem> items,
                    ckpt::PartWriter& writer) {
    for (size_t i = 0; i < items.size(); ++i) {
      const int64_t num_elements = ckpt::NumElements(items[i].box);
      const int64_t per_block = ckpt::kBlockBytes / kItemBytes;
      for (int64_t begin = 0; begin < num_elements; begin += per_block) {
        const std::vector<ckpt::Box> pieces = ckpt::RowMajorRange(
            items[i].box, begin, std::min(begin + per_block, num_elements));
        const auto add = [&] {
          return filling_->Add(static_cast<int64_t>(i), begin / per_block,
                               pieces, items[i]);
        };
        if (add()) continue;
        SS_RETURN_IF_ERROR(TurnOver(writer));
        if (!add()) {
          return absl::InvalidArgumentError("a block is larger than a slab");
        }
      }
    }
    return TurnOver(writer);
  }

  // Fills the slab at hand, while the other is written, then has it written.
  absl::Status TurnOver(ckpt::PartWriter& writer) {
    SS_RETURN_IF_ERROR(filling_->Fill(source_));
    SS_RETURN_IF_ERROR(write_.Wait());
    std::swap(filling_, writing_);
    filling_->Clear();
    if (writing_->empty()) return absl::OkStatus();
    write_ = ckpt::WorkerPool::Default().Submit(
        [slab = writing_.get(), &writer] { return slab->WriteTo(writer); });
    return absl::OkStatus();
  }

  ItemSource source_;
  std::unique_ptr<Slab> filling_;
  std::unique_ptr<Slab> writing_;
  ckpt::WorkerPool::Pending write_;  // of writing_; destroyed before it
};

}  // namespace

std::vector<ckpt::FragmentSpec> FragmentSpecs(
    const std::vector<LogicalTensor>& tensors,
    std::span<const WriteItem> items) {
  std::vector<ckpt::FragmentSpec> specs;
  specs.reserve(items.size());
  for (const WriteItem& item : items) {
    specs.push_back({.tensor = tensors[item.tensor].name,
                     .role = kOptimizerRoles[item.role],
                     .dtype = ckpt::DType::kF32,
                     .shape = tensors[item.tensor].shape,
                     .box = item.box});
  }
  return specs;
}

absl::Status AppendReads(const ckpt::Reader& reader, int64_t tensor,
                         std::span<const BoxBuffer> buffers,
                         std::vector<ckpt::FragmentRead>& reads) {
  std::vector<ckpt::Box> sources;
  for (const ckpt::Fragment& fragment : reader.Fragments(tensor)) {
    sources.push_back(fragment.box);
  }
  std::vector<ckpt::Box> targets;
  targets.reserve(buffers.size());
  for (const BoxBuffer& buffer : buffers) targets.push_back(buffer.box);

  absl::StatusOr<std::vector<BoxCopy>> copies = PlanCopies(sources, targets);
  if (!copies.ok()) {
    return Annotate(copies.status(),
                    absl::StrCat(reader.directory(), ": ",
                                 Describe(reader.table().tensors[tensor])));
  }
  for (BoxCopy& copy : *copies) {
    const BoxBuffer& target = buffers[copy.target];
    reads.push_back({reader.FirstFragment(tensor) + copy.source,
                     std::move(copy.box), target.data, target.box});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ckpt::FragmentRead>> PlanLoad(
    const ckpt::Reader& reader, const std::vector<LogicalTensor>& tensors,
    std::span<const Piece> pieces,
    absl::FunctionRef<float*(const Piece&, int64_t role)> memory) {
  std::map<int64_t, std::vector<const Piece*>> by_tensor;
  for (const Piece& piece : pieces) by_tensor[piece.tensor].push_back(&piece);
  std::vector<BoxBuffer> buffers;
  std::vector<ckpt::FragmentRead> reads;
  for (const auto& [tensor, owned] : by_tensor) {
    for (size_t role = 0; role < kOptimizerRoles.size(); ++role) {
      SS_ASSIGN_OR_RETURN(
          const int64_t stored,
          reader.FindTensor(tensors[tensor].name, kOptimizerRoles[role]));
      buffers.clear();
      for (const Piece* piece : owned) {
        float* data = memory(*piece, static_cast<int64_t>(role));
        buffers.push_back({piece->box, reinterpret_cast<std::byte*>(data)});
      }
      SS_RETURN_IF_ERROR(AppendReads(reader, stored, buffers, reads));
    }
  }
  return reads;
}

std::vector<std::span<const std::byte>> ImagesOf(
    std::span<const WriteItem> items, std::span<const Piece> pieces,
    absl::FunctionRef<const float*(const Piece&, int64_t role)> memory) {
  std::map<std::pair<int64_t, ckpt::Box>, const Piece*> by_box;
  for (const Piece& piece : pieces) {
    by_box[{piece.tensor, piece.box}] = &piece;
  }
  std::vector<std::span<const std::byte>> images;
  images.reserve(items.size());
  for (const WriteItem& item : items) {
    const Piece& piece = *by_box.at({item.tensor, item.box});
    images.push_back(
        Bytes(memory(piece, item.role), ckpt::NumElements(item.box)));
  }
  return images;
}

absl::StatusOr<std::optional<ckpt::PartReceipt>> WritePartFromMemory(
    const std::string& directory, int64_t part, const ckpt::CheckpointId& id,
    const std::vector<LogicalTensor>& tensors, std::span<const WriteItem> items,
    std::span<const std::span<const std::byte>> images) {
  if (items.empty()) return std::nullopt;
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::PartWriter> writer,
                      ckpt::PartWriter::Create(directory, part, id,
                                               FragmentSpecs(tensors, items)));
  SS_RETURN_IF_ERROR(writer->WriteFragments(images));
  SS_ASSIGN_OR_RETURN(ckpt::PartReceipt receipt, writer->Close());
  return receipt;
}

absl::StatusOr<std::vector<ckpt::PartReceipt>> WriteParts(
    const std::string& directory, const ckpt::CheckpointId& id,
    const std::vector<LogicalTensor>& tensors,
    std::span<const std::vector<WriteItem>> parts, int64_t slab_bytes,
    ckpt::Codec codec, ItemSource source) {
  SS_ASSIGN_OR_RETURN(PartStream stream,
                      PartStream::Create(slab_bytes, source));
  std::vector<ckpt::PartReceipt> receipts;
  for (size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].empty()) continue;
    SS_ASSIGN_OR_RETURN(
        const std::unique_ptr<ckpt::PartWriter> writer,
        ckpt::PartWriter::Create(directory, static_cast<int64_t>(part), id,
                                 FragmentSpecs(tensors, parts[part]), codec));
    SS_RETURN_IF_ERROR(stream.Write(parts[part], *writer));
    SS_ASSIGN_OR_RETURN(ckpt::PartReceipt receipt, writer->Close());
    receipts.push_back(std::move(receipt));
  }
  return receipts;
}

}  // namespace shardshift::reshard
