// SPDX-License-Identifier: Apache-2.0
#include "ckpt/copy.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "ckpt/block_io.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/file.h"
#include "ckpt/io/worker_pool.h"
#include "ckpt/run_dir.h"
#include "ckpt/writer.h"

namespace shardshift::ckpt {
namespace {

// A block as it lies in its part.
struct StoredBlock {
  const Fragment* fragment;
  int64_t block;
  ByteRange bytes;
};

// By part, ascending by place.
std::map<int64_t, std::vector<StoredBlock>> StoredBlocks(const Table& table) {
  std::map<int64_t, std::vector<StoredBlock>> parts;
  for (const Fragment& fragment : table.fragments) {
    int64_t number = 0;
    for (const Block& block : fragment.blocks) {
      parts[fragment.part].push_back(
          {&fragment,
           number++,
           {block.offset_bytes, block.offset_bytes + block.stored_bytes}});
    }
  }
  for (auto& [part, blocks] : parts) {
    std::sort(blocks.begin(), blocks.end(),
              [](const StoredBlock& a, const StoredBlock& b) {
                return a.bytes.begin < b.bytes.begin;
              });
  }
  return parts;
}

std::vector<ByteRange> RangesOf(const std::vector<StoredBlock>& blocks) {
  std::vector<ByteRange> ranges;
  ranges.reserve(blocks.size());
  for (const StoredBlock& block : blocks) ranges.push_back(block.bytes);
  return ranges;
}

class Copier {
 public:
  Copier(const Reader& source, const std::string& target,
         absl::FunctionRef<void(int64_t, int64_t)> progress)
      : source_(source), target_(target), progress_(progress) {}

  absl::Status Run() {
    const auto blocks = StoredBlocks(source_.table());
    const std::vector<StoredBlock> none;
    for (const Part& part : source_.table().parts) {
      SS_ASSIGN_OR_RETURN(const File from, OpenPart(source_.directory(), part));
      const auto found = blocks.find(part.number);
      SS_RETURN_IF_ERROR(
          CopyFile(from, PartFileName(part.number), FileRole::kPart,
                   found == blocks.end() ? none : found->second));
    }
    SS_ASSIGN_OR_RETURN(
        const File from,
        File::OpenForRead(JoinPath(source_.directory(), kIndexFileName)));
    SS_RETURN_IF_ERROR(CopyFile(from, kIndexFileName, FileRole::kIndex, none));
    return SyncDirectory(target_);
  }

 private:
  absl::Status CopyFile(const File& from, absl::string_view name, FileRole role,
                        const std::vector<StoredBlock>& blocks) {
    SS_ASSIGN_OR_RETURN(const UserBlock user_block, ReadUserBlock(from, role));
    SS_ASSIGN_OR_RETURN(const File to, File::Create(JoinPath(target_, name),
                                                    PageCache::kBypass));
    SS_RETURN_IF_ERROR(to.Allocate(user_block.file_bytes));
    SS_RETURN_IF_ERROR(WorkerPool::Default().Run(
        static_cast<int64_t>(blocks.size()),
        [&](int64_t b) { return CopyBlock(from, to, blocks[b]); }));

    const std::vector<ByteRange> payload = RangesOf(blocks);
    int64_t begin = 0;
    for (const ByteRange& range : payload) {
      SS_RETURN_IF_ERROR(CopyUnchecked(from, to, {begin, range.begin}));
      begin = range.end;
    }
    SS_RETURN_IF_ERROR(CopyUnchecked(from, to, {begin, user_block.file_bytes}));
    SS_RETURN_IF_ERROR(CheckRest(from, to, role, payload));
    return to.Sync();
  }

  absl::Status CopyBlock(const File& from, const File& to,
                         const StoredBlock& what) {
    SS_ASSIGN_OR_RETURN(StagingBuffer buffer, StagingBuffer::Take());
    SS_ASSIGN_OR_RETURN(const auto bytes,
                        ReadStoredBlock(from, source_.table(), *what.fragment,
                                        what.block, buffer.bytes()));
    SS_RETURN_IF_ERROR(to.WriteAt(what.bytes.begin, bytes));
    Progress(std::ssize(bytes));
    return absl::OkStatus();
  }

  absl::Status CopyUnchecked(const File& from, const File& to,
                             const ByteRange& range) {
    SS_ASSIGN_OR_RETURN(StagingBuffer buffer, StagingBuffer::Take());
    for (int64_t offset = range.begin; offset < range.end;) {
      const auto bytes = buffer.bytes().first(
          std::min<size_t>(range.end - offset, kBlockBytes));
      SS_RETURN_IF_ERROR(from.ReadAt(offset, bytes));
      SS_RETURN_IF_ERROR(to.WriteAt(offset, bytes));
      offset += std::ssize(bytes);
    }
    Progress(range.end - range.begin);
    return absl::OkStatus();
  }

  // Checks in the copy all that is not payload.
  absl::Status CheckRest(const File& from, const File& to, FileRole role,
                         const std::vector<ByteRange>& payload) {
    const auto check = [&](const File& file) -> absl::Status {
      SS_ASSIGN_OR_RETURN(const UserBlock block, ReadUserBlock(file, role));
      return CheckMetadataDigest(file, block, payload);
    };
    absl::Status status = check(to);
    if (status.ok()) return status;
    // Damage of the source is to be told as such.
    SS_RETURN_IF_ERROR(check(from));
    return status;
  }

  void Progress(int64_t num_bytes) {
    const std::lock_guard lock(mutex_);
    done_ += num_bytes;
    progress_(done_, source_.total_bytes());
  }

  const Reader& source_;
  const std::string& target_;
  const absl::FunctionRef<void(int64_t, int64_t)> progress_;
  std::mutex mutex_;  // guards done_ and calls of progress_
  int64_t done_ = 0;
};

absl::Status CheckTarget(const Reader& source, const std::string& target) {
  SS_ASSIGN_OR_RETURN(const bool exists, Exists(target));
  if (exists) {
    return absl::AlreadyExistsError(
        absl::StrCat(target, " exists; remove it or name another place"));
  }
  if (!LiesWithin(target, source.directory())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(target, " lies inside the checkpoint ", source.directory(),
                   "; name a place outside"));
}

}  // namespace

absl::Status CopyCheckpoint(
    const Reader& source, const std::string& run_dir,
    absl::FunctionRef<void(int64_t done, int64_t total)> progress) {
  const std::string target = JoinPath(run_dir, StepName(source.step()));
  SS_RETURN_IF_ERROR(CheckTarget(source, target));
  SS_ASSIGN_OR_RETURN(const bool has_run_dir, Exists(run_dir));
  SS_ASSIGN_OR_RETURN(const File lock, LockRun(run_dir));
  absl::Cleanup remove_run_dir = [&] {
    if (has_run_dir) return;
    const std::string latest = JoinPath(run_dir, "latest");
    RemoveTree(latest).IgnoreError();
    RemoveTree(latest + ".partial").IgnoreError();
    const auto names = ListDirectory(run_dir);
    if (names.ok() && names->empty()) RemoveTree(run_dir).IgnoreError();
  };
  SS_ASSIGN_OR_RETURN(std::string copy,
                      BeginCheckpoint(run_dir, source.step()));
  absl::Cleanup remove_copy = [&] { RemoveTree(copy).IgnoreError(); };

  SS_RETURN_IF_ERROR(Copier(source, copy, progress).Run());
  SS_RETURN_IF_ERROR(RenameNoReplace(copy, target));
  copy = target;
  SS_RETURN_IF_ERROR(SyncDirectory(run_dir));
  if (!has_run_dir) SS_RETURN_IF_ERROR(WriteLatest(run_dir, source.step()));
  std::move(remove_copy).Cancel();
  std::move(remove_run_dir).Cancel();
  return absl::OkStatus();
}

}  // namespace shardshift::ckpt
