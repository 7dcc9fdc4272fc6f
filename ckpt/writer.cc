// SPDX-License-Identifier: Apache-2.0
#include "ckpt/writer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table_builder.h"
#include "ckpt/hdf5/part_file.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/worker_pool.h"

namespace shardshift::ckpt {
namespace {

// Checked here, as the number of blocks follows from the box: a bad box
// must not size anything.
absl::StatusOr<Fragment> MakeFragment(const FragmentSpec& spec) {
  Fragment fragment = {.box = spec.box};
  const absl::StatusOr<int64_t> elements = CheckedNumElements(spec.shape);
  if (!elements.ok()) return elements.status();
  if (Contains(WholeBox(spec.shape), spec.box)) {
    fragment.blocks.resize(
        NumBlocks(NumElements(spec.box) * ItemSize(spec.dtype)));
  }
  return fragment;
}

bool IsAligned(std::span<const std::byte> bytes) {
  return reinterpret_cast<uintptr_t>(bytes.data()) % kDirectBlockBytes == 0;
}

}  // namespace

PartWriter::PartWriter(int64_t part, File file, FileImage image, Table table,
                       std::vector<int64_t> table_index, UserBlock user_block)
    : part_(part),
      file_(std::move(file)),
      image_(std::move(image)),
      table_(std::move(table)),
      table_index_(std::move(table_index)),
      user_block_(user_block) {
  for (const int64_t index : table_index_) {
    const Fragment& fragment = table_.fragments[index];
    const Tensor& tensor = table_.tensors[fragment.tensor];
    keys_.push_back(FingerprintKey(tensor.name, tensor.role, tensor.dtype));
    is_written_.emplace_back(fragment.blocks.size(), false);
    blocks_left_ += static_cast<int64_t>(fragment.blocks.size());
  }
}

absl::StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(
    const std::string& directory, int64_t part, const CheckpointId& id,
    const std::vector<FragmentSpec>& specs) {
  if (specs.empty() || part < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", part, " of ", specs.size(),
                     " fragments: expected a number >= 0 and a fragment"));
  }
  TableBuilder builder;
  for (const FragmentSpec& spec : specs) {
    const Tensor tensor = {spec.tensor, spec.role, spec.dtype, spec.shape};
    absl::StatusOr<Fragment> fragment = MakeFragment(spec);
    if (!fragment.ok()) return Annotate(fragment.status(), Describe(tensor));
    SS_RETURN_IF_ERROR(builder.Add(tensor, *std::move(fragment)));
  }
  auto [table, table_index] = builder.Build();
  table.step = id.step;
  table.state = id.state;
  SS_RETURN_IF_ERROR(CheckContents(table));

  const std::string path = JoinPath(directory, PartFileName(part));
  SS_ASSIGN_OR_RETURN(FileLayout layout,
                      LayOutPartFile(path, table_index, table));
  // The library chose the places; payload will be written past it.
  const Part self = {0, layout.image.file_bytes(), {}};
  SS_RETURN_IF_ERROR(CheckPlaces(table, std::span(&self, 1)));
  SS_ASSIGN_OR_RETURN(File file, File::Create(path, PageCache::kBypass));
  SS_RETURN_IF_ERROR(file.Allocate(self.file_bytes));
  const UserBlock user_block = {
      .role = FileRole::kPart, .table_offset_bytes = layout.table_offset_bytes};
  return std::unique_ptr<PartWriter>(
      new PartWriter(part, std::move(file), std::move(layout.image),
                     std::move(table), std::move(table_index), user_block));
}

absl::Status PartWriter::WriteBlock(int64_t fragment, int64_t block,
                                    std::span<const std::byte> bytes) {
  Fragment& target = table_.fragments[table_index_[fragment]];
  const Tensor& tensor = table_.tensors[target.tensor];
  if (block >= static_cast<int64_t>(target.blocks.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(table_, target), " has ", target.blocks.size(),
                     " blocks, not one of number ", block));
  }
  Block& stored = target.blocks[block];
  if (static_cast<int64_t>(bytes.size()) != stored.stored_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(table_, target), " block ", block, ": ",
                     bytes.size(), " bytes, expected ", stored.stored_bytes));
  }
  BoxFingerprint fingerprint(keys_[fragment], tensor.dtype, tensor.shape,
                             target.box, block * kBlockBytes);
  fingerprint.Update(bytes);
  const uint64_t checksum = Checksum64(bytes);
  if (IsAligned(bytes)) {
    SS_RETURN_IF_ERROR(file_.WriteAt(stored.offset_bytes, bytes));
  } else {
    SS_ASSIGN_OR_RETURN(StagingBuffer staging, StagingBuffer::Take());
    const auto copy = staging.bytes().first(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.begin());
    SS_RETURN_IF_ERROR(file_.WriteAt(stored.offset_bytes, copy));
  }

  const std::lock_guard lock(mutex_);
  if (is_written_[fragment][block]) {
    return absl::FailedPreconditionError(absl::StrCat(
        Describe(table_, target), " block ", block, " came before"));
  }
  is_written_[fragment][block] = true;
  --blocks_left_;
  stored.checksum = checksum;
  target.fingerprint += fingerprint.fingerprint();
  return absl::OkStatus();
}

absl::Status PartWriter::WriteFragments(
    std::span<const std::span<const std::byte>> images) {
  struct Task {
    int64_t fragment;
    int64_t block;
    std::span<const std::byte> bytes;
  };
  std::vector<Task> tasks;
  for (size_t f = 0; f < images.size(); ++f) {
    const std::span<const std::byte> image = images[f];
    const int64_t num_blocks = NumBlocks(static_cast<int64_t>(image.size()));
    for (int64_t b = 0; b < num_blocks; ++b) {
      const auto rest = image.subspan(b * kBlockBytes);
      tasks.push_back({static_cast<int64_t>(f), b,
                       rest.first(std::min<size_t>(rest.size(), kBlockBytes))});
    }
  }
  return WorkerPool::Default().Run(
      static_cast<int64_t>(tasks.size()), [&](int64_t t) {
        return WriteBlock(tasks[t].fragment, tasks[t].block, tasks[t].bytes);
      });
}

absl::StatusOr<PartReceipt> PartWriter::Close() {
  const std::lock_guard lock(mutex_);
  if (blocks_left_ != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        file_.path(), ": ", blocks_left_, " blocks of payload have not come"));
  }
  SS_ASSIGN_OR_RETURN(const UserBlock sealed,
                      SealFile(file_, std::move(image_), user_block_,
                               EncodeTable(table_), PayloadRanges(table_)));
  const Part part = {part_, sealed.file_bytes, sealed.metadata_digest};
  return PartReceipt{part, std::move(table_)};
}

}  // namespace shardshift::ckpt
