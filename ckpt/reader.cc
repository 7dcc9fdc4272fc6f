// SPDX-License-Identifier: Apache-2.0
#include "ckpt/reader.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/box_copy.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/run_dir.h"

namespace shardshift::ckpt {
namespace {

// A file that the index names is not a wrong path of the user's.
absl::StatusOr<File> OpenListed(const std::string& path) {
  absl::StatusOr<File> file = File::OpenForRead(path);
  if (!absl::IsNotFound(file.status())) return file;
  return absl::DataLossError(
      absl::StrCat(path, " is missing, but the index lists it"));
}

absl::Status CheckNoPartMissing(const std::string& directory,
                                const std::vector<Part>& parts) {
  std::vector<std::string> missing;
  for (const Part& part : parts) {
    const std::string name = PartFileName(part.number);
    SS_ASSIGN_OR_RETURN(const bool exists, Exists(JoinPath(directory, name)));
    if (!exists) missing.push_back(name);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(directory, " lacks ", missing.size(), " of ", parts.size(),
                   " parts: ", absl::StrJoin(missing, ", ")));
}

// A directory named after a step holds that step.
absl::Status CheckStepName(const std::string& directory, int64_t step) {
  const size_t end = directory.find_last_not_of('/') + 1;
  const size_t begin = directory.rfind('/', end - 1) + 1;
  const absl::string_view name(directory.data() + begin, end - begin);
  const std::optional<int64_t> named = ParseStepName(name);
  if (!named || *named == step) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(directory, " holds step ", step,
                                          "; rename it to ", StepName(step)));
}

// The blocks of one fragment, each fetched and verified when it comes up.
class BlockReader {
 public:
  BlockReader(const File& file, const Table& table, const Fragment& fragment,
              ReadScratch& scratch)
      : file_(file),
        table_(table),
        fragment_(fragment),
        size_bytes_(FragmentBytes(table, fragment)),
        scratch_(scratch) {}

  // Copies bytes [offset, offset + size) of the fragment to `dst`.
  absl::Status Copy(int64_t offset, int64_t size, std::byte* dst) {
    while (size > 0) {
      SS_RETURN_IF_ERROR(Load(offset / kBlockBytes));
      const int64_t within = offset % kBlockBytes;
      const int64_t n = std::min(size, block_bytes_ - within);
      std::copy_n(scratch_.block.data() + within, n, dst);
      offset += n;
      size -= n;
      dst += n;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Load(int64_t block) {
    if (block == loaded_) return absl::OkStatus();
    const int64_t begin = block * kBlockBytes;
    block_bytes_ = std::min(kBlockBytes, size_bytes_ - begin);
    if (scratch_.block.size() < static_cast<size_t>(block_bytes_)) {
      scratch_.block.resize(block_bytes_);
    }
    const auto bytes =
        std::span(scratch_.block).first(static_cast<size_t>(block_bytes_));
    SS_RETURN_IF_ERROR(file_.ReadAt(fragment_.offset_bytes + begin, bytes));
    if (Checksum64(bytes) != fragment_.checksums[block]) {
      return absl::DataLossError(absl::StrCat(
          file_.path(), ": ", Describe(table_, fragment_), ", the ",
          block_bytes_, " bytes at byte ", fragment_.offset_bytes + begin,
          " of the file: checksum differs"));
    }
    loaded_ = block;
    return absl::OkStatus();
  }

  const File& file_;
  const Table& table_;
  const Fragment& fragment_;
  int64_t size_bytes_;
  ReadScratch& scratch_;
  int64_t loaded_ = -1;
  int64_t block_bytes_ = 0;
};

}  // namespace

absl::StatusOr<Table> ReadIndexTable(const std::string& step_dir) {
  SS_ASSIGN_OR_RETURN(const File file,
                      File::OpenForRead(JoinPath(step_dir, kIndexFileName)));
  SS_ASSIGN_OR_RETURN(const UserBlock block,
                      ReadUserBlock(file, FileRole::kIndex));
  SS_ASSIGN_OR_RETURN(const std::string bytes, ReadTableBytes(file, block));
  absl::StatusOr<Table> table = DecodeIndexTable(AsBytes(bytes));
  if (!table.ok()) return Annotate(table.status(), file.path());
  SS_RETURN_IF_ERROR(CheckStepName(step_dir, table->step));
  return table;
}

absl::StatusOr<File> OpenPart(const std::string& step_dir, const Part& part) {
  SS_ASSIGN_OR_RETURN(
      File file, OpenListed(JoinPath(step_dir, PartFileName(part.number))));
  SS_ASSIGN_OR_RETURN(const UserBlock block,
                      ReadUserBlock(file, FileRole::kPart));
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
    const std::string& step_dir) {
  SS_ASSIGN_OR_RETURN(Table table, ReadIndexTable(step_dir));
  SS_RETURN_IF_ERROR(CheckNoPartMissing(step_dir, table.parts));
  SS_ASSIGN_OR_RETURN(const File index,
                      File::OpenForRead(JoinPath(step_dir, kIndexFileName)));
  SS_ASSIGN_OR_RETURN(int64_t total_bytes, index.Size());
  for (const Part& part : table.parts) {
    SS_RETURN_IF_ERROR(OpenPart(step_dir, part).status());
    total_bytes += part.file_bytes;
  }
  return std::unique_ptr<Reader>(
      new Reader(step_dir, std::move(table), total_bytes));
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

absl::Status Reader::ReadFragment(const Fragment& fragment, const Box& what,
                                  std::byte* dst, const Box& dst_box,
                                  ReadScratch& scratch) const {
  if (NumElements(what) == 0) return absl::OkStatus();
  SS_ASSIGN_OR_RETURN(
      const File file,
      OpenListed(JoinPath(directory_, PartFileName(fragment.part))));
  const int64_t item_size = ItemSize(table_.tensors[fragment.tensor].dtype);
  BlockReader reader(file, table_, fragment, scratch);
  absl::Status status;
  ForEachRunPair(fragment.box, dst_box, what,
                 [&](int64_t src_offset, int64_t dst_offset, int64_t count) {
                   if (!status.ok()) return;
                   status =
                       reader.Copy(src_offset * item_size, count * item_size,
                                   dst + dst_offset * item_size);
                 });
  return status;
}

absl::Status Reader::ReadTensor(int64_t tensor, const Box& what, std::byte* dst,
                                ReadScratch& scratch) const {
  const Tensor& info = table_.tensors[tensor];
  if (!Contains(WholeBox(info.shape), what)) {
    return absl::OutOfRangeError(
        absl::StrCat(Describe(info), " has shape ", ToString(info.shape),
                     ", box at ", ToString(what.start), " of extent ",
                     ToString(what.extent), " is not inside"));
  }
  for (const Fragment& fragment : Fragments(tensor)) {
    const std::optional<Box> common = Intersect(fragment.box, what);
    if (!common) continue;
    SS_RETURN_IF_ERROR(ReadFragment(fragment, *common, dst, what, scratch));
  }
  return absl::OkStatus();
}

}  // namespace shardshift::ckpt
