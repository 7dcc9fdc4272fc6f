// SPDX-License-Identifier: Apache-2.0
#include "ckpt/reader.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/block_io.h"
#include "ckpt/core/box_copy.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/aligned_buffer.h"
#include "ckpt/io/worker_pool.h"
#include "ckpt/run_dir.h"

namespace shardshift::ckpt {

struct BlockUse {
  int64_t fragment;
  int64_t block;
  int64_t read;  // index of the FragmentRead
};

namespace {

// A file that the index names is not a wrong path of the user's.
absl::StatusOr<File> OpenListed(const std::string& path) {
  absl::StatusOr<File> file = File::OpenForRead(path, PageCache::kBypass);
  if (!absl::IsNotFound(file.status())) return file;
  return absl::DataLossError(
      absl::StrCat(path, " is missing, but the index lists it"));
}

absl::StatusOr<File> LockForReading(const std::string& step_dir) {
  absl::StatusOr<File> lock = LockDirectory(step_dir, Lock::kShared);
  if (!absl::IsFailedPrecondition(lock.status())) return lock;
  return absl::FailedPreconditionError(
      absl::StrCat(step_dir, " is being deleted"));
}

// Named in a message; the rest are counted.
constexpr size_t kMaxNamedParts = 4;

absl::Status MissingParts(const std::string& directory,
                          std::vector<std::string> missing, size_t num_parts) {
  const size_t num_missing = missing.size();
  missing.resize(std::min(num_missing, kMaxNamedParts));
  std::string message =
      absl::StrCat(directory, " lacks ", num_missing, " of ", num_parts,
                   " parts: ", absl::StrJoin(missing, ", "));
  if (num_missing > missing.size()) {
    absl::StrAppend(&message, " and ", num_missing - missing.size(), " more");
  }
  if (num_missing == num_parts) {
    absl::StrAppend(&message,
                    "; an index alone serves `reshard --dry-run` and `reshard "
                    "explain`, and nothing else");
  }
  return absl::DataLossError(message);
}

// Gives whether they are there.
absl::StatusOr<bool> CheckPartsExist(const std::string& directory,
                                     const std::vector<Part>& parts,
                                     PartFiles wanted) {
  std::vector<std::string> missing;
  for (const Part& part : parts) {
    const std::string name = PartFileName(part.number);
    SS_ASSIGN_OR_RETURN(const bool exists, Exists(JoinPath(directory, name)));
    if (!exists) missing.push_back(name);
  }
  if (missing.empty()) return true;
  if (missing.size() == parts.size() && wanted == PartFiles::kAllOrNone) {
    return false;
  }
  return MissingParts(directory, std::move(missing), parts.size());
}

// The blocks from the first to the last element of each read, those of one
// fragment after each other.
std::vector<BlockUse> BlockUses(const Table& table,
                                std::span<const FragmentRead> reads) {
  std::vector<BlockUse> uses;
  for (size_t r = 0; r < reads.size(); ++r) {
    const FragmentRead& read = reads[r];
    if (NumElements(read.what) == 0) continue;
    const Fragment& fragment = table.fragments[read.fragment];
    const int64_t per_block =
        kBlockBytes / ItemSize(table.tensors[fragment.tensor].dtype);
    const auto [first, last] = RowMajorBounds(fragment.box, read.what);
    for (int64_t b = first / per_block; b <= last / per_block; ++b) {
      uses.push_back({read.fragment, b, static_cast<int64_t>(r)});
    }
  }
  const auto place = [&table](const BlockUse& use) {
    const Fragment& fragment = table.fragments[use.fragment];
    return std::tuple(fragment.part, fragment.blocks[use.block].offset_bytes,
                      use.read);
  };
  std::sort(uses.begin(), uses.end(),
            [&place](const BlockUse& a, const BlockUse& b) {
              return place(a) < place(b);
            });
  return uses;
}

// Ranges of `uses` that want the same block.
std::vector<std::span<const BlockUse>> GroupByBlock(
    const std::vector<BlockUse>& uses) {
  std::vector<std::span<const BlockUse>> groups;
  for (size_t begin = 0; begin < uses.size();) {
    size_t end = begin + 1;
    while (end < uses.size() && uses[end].fragment == uses[begin].fragment &&
           uses[end].block == uses[begin].block) {
      ++end;
    }
    groups.push_back(std::span(uses).subspan(begin, end - begin));
    begin = end;
  }
  return groups;
}

// What a read wants of some elements of a block.
struct PieceCopy {
  const FragmentRead* read;
  Box piece;  // of the fragment, dense in those values
  Box common;
  int64_t offset;  // of the piece in the values it is copied from, in elements
};

// What `uses`, all of one block, want of some of its elements. Empty if they
// pass them over, as those of columns may.
std::vector<PieceCopy> PieceCopies(const Fragment& fragment, ElementRange range,
                                   std::span<const BlockUse> uses,
                                   std::span<const FragmentRead> reads) {
  std::vector<PieceCopy> copies;
  int64_t offset = 0;
  for (const Box& piece : RowMajorRange(fragment.box, range.begin, range.end)) {
    for (const BlockUse& use : uses) {
      const std::optional<Box> common = Intersect(piece, reads[use.read].what);
      if (common) copies.push_back({&reads[use.read], piece, *common, offset});
    }
    offset += NumElements(piece);
  }
  return copies;
}

absl::Status CheckConversions(const Table& table,
                              std::span<const FragmentRead> reads) {
  for (const FragmentRead& read : reads) {
    if (!read.as) continue;
    const Tensor& tensor = table.tensors[table.fragments[read.fragment].tensor];
    SS_RETURN_IF_ERROR(
        Annotate(CheckConversion(tensor.dtype, *read.as), Describe(tensor)));
  }
  return absl::OkStatus();
}

void CopyPiece(const PieceCopy& copy, DType dtype,
               std::span<const std::byte> values) {
  const auto& [read, piece, common, offset] = copy;
  const int64_t src_size = ItemSize(dtype);
  const std::byte* src = values.data() + offset * src_size;
  const DType as = read->as.value_or(dtype);
  if (as == dtype) {
    CopyBox(src, piece, read->dst, read->dst_box, common, src_size);
    return;
  }
  const int64_t dst_size = ItemSize(as);
  std::byte* dst = read->dst;
  ForEachRunPair(piece, read->dst_box, common,
                 [&](int64_t src_offset, int64_t dst_offset, int64_t count) {
                   ConvertValues(dtype, src + src_offset * src_size, as,
                                 dst + dst_offset * dst_size, count);
                 });
}

// Where a block goes as it is, as a whole and in one run; empty if it does not.
std::span<std::byte> OnlyTarget(std::span<const PieceCopy> copies,
                                int64_t num_elements, DType dtype) {
  const FragmentRead* read = nullptr;
  int64_t begin = 0;
  int64_t num_placed = 0;
  for (const PieceCopy& copy : copies) {
    const std::optional<RunPair> run =
        OnlyRunPair(copy.piece, copy.read->dst_box, copy.common);
    if (!run || run->src_offset != 0 || copy.offset != num_placed ||
        copy.read->as.value_or(dtype) != dtype) {
      return {};
    }
    if (read == nullptr) {
      read = copy.read;
      begin = run->dst_offset;
    }
    if (copy.read != read || run->dst_offset != begin + num_placed) return {};
    num_placed += run->count;
  }
  if (num_placed != num_elements) return {};
  return {read->dst + begin * ItemSize(dtype),
          static_cast<size_t>(num_elements * ItemSize(dtype))};
}

// Files that a reader keeps open.
constexpr size_t kMaxOpenFiles = 64;

}  // namespace

absl::StatusOr<Table> ReadIndexTable(const std::string& step_dir) {
  SS_ASSIGN_OR_RETURN(const File file,
                      File::OpenForRead(JoinPath(step_dir, kIndexFileName)));
  SS_ASSIGN_OR_RETURN(const UserBlock block,
                      ReadUserBlock(file, FileRole::kIndex));
  SS_ASSIGN_OR_RETURN(const auto bytes, ReadTableBytes(file, block));
  absl::StatusOr<Table> table = DecodeIndexTable(bytes);
  if (!table.ok()) return Annotate(table.status(), file.path());
  SS_RETURN_IF_ERROR(CheckStepName(step_dir, table->step));
  return table;
}

absl::StatusOr<File> OpenPart(const std::string& step_dir, const Part& part) {
  SS_ASSIGN_OR_RETURN(
      File file, OpenListed(JoinPath(step_dir, PartFileName(part.number))));
  SS_ASSIGN_OR_RETURN(const UserBlock block,
                      ReadUserBlock(file, FileRole::kPart));
  if (block.file_bytes != part.file_bytes) {
    return absl::DataLossError(
        absl::StrCat(file.path(), " has ", block.file_bytes,
                     " bytes, the index expects ", part.file_bytes));
  }
  if (block.metadata_digest != part.metadata_digest) {
    return absl::DataLossError(absl::StrCat(
        file.path(), " is not the file the index was written with (digest ",
        ToString(block.metadata_digest), ", expected ",
        ToString(part.metadata_digest), "): a part of another checkpoint?"));
  }
  return file;
}

Reader::Reader(std::string directory, Table table, int64_t total_bytes)
    : directory_(std::move(directory)),
      table_(std::move(table)),
      first_fragment_(table_.tensors.size() + 1,
                      static_cast<int64_t>(table_.fragments.size())),
      total_bytes_(total_bytes) {
  for (size_t i = table_.fragments.size(); i-- > 0;) {
    first_fragment_[table_.fragments[i].tensor] = static_cast<int64_t>(i);
  }
}

absl::StatusOr<std::unique_ptr<Reader>> Reader::Open(
    const std::string& step_dir, PartFiles parts) {
  SS_ASSIGN_OR_RETURN(File lock, LockForReading(step_dir));
  SS_ASSIGN_OR_RETURN(Table table, ReadIndexTable(step_dir));
  SS_ASSIGN_OR_RETURN(const bool has_parts,
                      CheckPartsExist(step_dir, table.parts, parts));
  SS_ASSIGN_OR_RETURN(const File index,
                      File::OpenForRead(JoinPath(step_dir, kIndexFileName)));
  SS_ASSIGN_OR_RETURN(int64_t total_bytes, index.Size());
  for (const Part& part : table.parts) {
    if (has_parts) SS_RETURN_IF_ERROR(OpenPart(step_dir, part).status());
    total_bytes += part.file_bytes;
  }
  std::unique_ptr<Reader> reader(
      new Reader(lock.path(), std::move(table), total_bytes));
  reader->lock_ = std::move(lock);
  reader->has_parts_ = has_parts;
  return reader;
}

absl::StatusOr<BlockReader> Reader::OpenBlock(int64_t fragment,
                                              int64_t block) const {
  const Fragment& in = table_.fragments[fragment];
  SS_ASSIGN_OR_RETURN(auto file, PartFile(in.part));
  return BlockReader(std::move(file), table_, in, block, crcs_.get());
}

std::string Reader::PathOf(int64_t part) const {
  if (table_.is_foreign) return foreign_paths_[part];
  return JoinPath(directory_, PartFileName(part));
}

absl::StatusOr<File> Reader::OpenFile(int64_t part) const {
  const auto contents = foreign_contents_.find(part);
  if (contents == foreign_contents_.end()) return OpenListed(PathOf(part));
  return File::InMemory(PathOf(part), *contents->second);
}

absl::StatusOr<int64_t> Reader::FindTensor(absl::string_view name,
                                           absl::string_view role) const {
  const auto key = std::tie(name, role);
  const auto found = std::lower_bound(
      table_.tensors.begin(), table_.tensors.end(), key,
      [](const Tensor& tensor, const auto& wanted) {
        return std::tuple<absl::string_view, absl::string_view>(
                   tensor.name, tensor.role) < wanted;
      });
  if (found == table_.tensors.end() || found->name != name ||
      found->role != role) {
    return absl::NotFoundError(
        absl::StrCat(directory_, " has no tensor \"", name, "\" (", role, ")"));
  }
  return found - table_.tensors.begin();
}

std::span<const Fragment> Reader::Fragments(int64_t tensor) const {
  const int64_t first = first_fragment_[tensor];
  return std::span(table_.fragments)
      .subspan(first, first_fragment_[tensor + 1] - first);
}

absl::StatusOr<std::shared_ptr<const File>> Reader::PartFile(
    int64_t part) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const File>& entry = files_[part];
  if (entry == nullptr) {
    // Somebody may still use what was let go.
    entry = lent_files_[part].lock();
    if (entry == nullptr) {
      absl::StatusOr<File> file = OpenFile(part);
      if (!file.ok()) {
        files_.erase(part);
        return file.status();
      }
      entry = std::make_shared<const File>(*std::move(file));
      lent_files_[part] = entry;
    }
    // Reads ascend by part: the lowest is the least likely to come again.
    if (files_.size() > kMaxOpenFiles) {
      const auto lowest = files_.begin();
      files_.erase(lowest->first == part ? std::next(lowest) : lowest);
    }
  }
  return files_.at(part);
}

absl::Status Reader::Read(std::span<const FragmentRead> reads) const {
  SS_RETURN_IF_ERROR(CheckConversions(table_, reads));
  const std::vector<BlockUse> uses = BlockUses(table_, reads);
  const auto groups = GroupByBlock(uses);
  return WorkerPool::Default().Run(
      static_cast<int64_t>(groups.size()),
      [&](int64_t g) { return ReadUses(groups[g], reads); });
}

absl::Status Reader::ReadUses(std::span<const BlockUse> uses,
                              std::span<const FragmentRead> reads) const {
  const int64_t block = uses.front().block;
  const Fragment& fragment = table_.fragments[uses.front().fragment];
  const DType dtype = table_.tensors[fragment.tensor].dtype;
  const ElementRange elements = BlockElements(table_, fragment, block);
  const std::vector<PieceCopy> copies =
      PieceCopies(fragment, elements, uses, reads);
  if (copies.empty()) return absl::OkStatus();
  SS_ASSIGN_OR_RETURN(const std::shared_ptr<const File> file,
                      PartFile(fragment.part));
  if (fragment.codec == Codec::kNone) {
    const std::span<std::byte> target =
        OnlyTarget(copies, elements.end - elements.begin, dtype);
    if (!target.empty() && file->TakesDirectly(target)) {
      return ReadBlock(*file, table_, fragment, block, target).status();
    }
  }
  SS_ASSIGN_OR_RETURN(StagingBuffer buffer, StagingBuffer::Take());
  return StreamBlock(
      *file, table_, fragment, block, buffer.bytes(),
      [&](ElementRange range, std::span<const std::byte> values) {
        for (const PieceCopy& copy :
             PieceCopies(fragment, range, uses, reads)) {
          CopyPiece(copy, dtype, values);
        }
      });
}

absl::Status Reader::ReadTensor(int64_t tensor, const Box& what, std::byte* dst,
                                std::optional<DType> as) const {
  const Tensor& info = table_.tensors[tensor];
  if (!Contains(WholeBox(info.shape), what)) {
    return absl::OutOfRangeError(
        absl::StrCat(Describe(info), " has shape ", ToString(info.shape),
                     ", box at ", ToString(what.start), " of extent ",
                     ToString(what.extent), " is not inside"));
  }
  std::vector<FragmentRead> reads;
  for (int64_t f = FirstFragment(tensor); f < FirstFragment(tensor + 1); ++f) {
    const std::optional<Box> common = Intersect(table_.fragments[f].box, what);
    if (common) reads.push_back({f, *common, dst, what, as});
  }
  return Read(reads);
}

}  // namespace shardshift::ckpt
