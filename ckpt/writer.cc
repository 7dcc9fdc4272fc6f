// SPDX-License-Identifier: Apache-2.0
#include "ckpt/writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table_builder.h"
#include "ckpt/hdf5/part_file.h"

namespace shardshift::ckpt {
namespace {

// Checked here, as the number of checksums follows from the box: a bad box
// must not size anything.
absl::StatusOr<Fragment> MakeFragment(const FragmentSpec& spec, int64_t part) {
  Fragment fragment = {.box = spec.box, .part = part};
  const absl::StatusOr<int64_t> elements = CheckedNumElements(spec.shape);
  if (!elements.ok()) return elements.status();
  if (Contains(WholeBox(spec.shape), spec.box)) {
    fragment.checksums.resize(
        NumBlocks(NumElements(spec.box) * ItemSize(spec.dtype)));
  }
  return fragment;
}

}  // namespace

PartWriter::PartWriter(File file, Table table, std::vector<int64_t> table_index,
                       UserBlock user_block)
    : file_(std::move(file)),
      table_(std::move(table)),
      table_index_(std::move(table_index)),
      user_block_(user_block),
      checksums_(table_index_.size()) {}

absl::StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(
    const std::string& directory, int64_t part,
    const std::vector<FragmentSpec>& specs) {
  if (specs.empty() || part < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", part, " of ", specs.size(),
                     " fragments: expected a number >= 0 and a fragment"));
  }
  TableBuilder builder;
  for (const FragmentSpec& spec : specs) {
    const Tensor tensor = {spec.tensor, spec.role, spec.dtype, spec.shape};
    absl::StatusOr<Fragment> fragment = MakeFragment(spec, part);
    if (!fragment.ok()) return Annotate(fragment.status(), Describe(tensor));
    SS_RETURN_IF_ERROR(builder.Add(tensor, *std::move(fragment)));
  }
  auto [table, table_index] = builder.Build();
  SS_RETURN_IF_ERROR(CheckContents(table));

  const std::string path = JoinPath(directory, PartFileName(part));
  SS_ASSIGN_OR_RETURN(const FileLayout layout,
                      CreatePartFile(path, table_index, table));
  // The library chose the places; payload will be written past it.
  const Part self = {part, layout.file_bytes, {}};
  SS_RETURN_IF_ERROR(CheckPlaces(table, std::span(&self, 1)));
  SS_ASSIGN_OR_RETURN(File file, File::OpenForUpdate(path));
  const UserBlock user_block = {
      .role = FileRole::kPart,
      .part = part,
      .file_bytes = layout.file_bytes,
      .table_offset_bytes = layout.table_offset_bytes};
  return std::unique_ptr<PartWriter>(new PartWriter(
      std::move(file), std::move(table), std::move(table_index), user_block));
}

absl::Status PartWriter::Append(int64_t fragment,
                                std::span<const std::byte> bytes) {
  if (closed_) return absl::FailedPreconditionError("the part is closed");
  const Fragment& target = table_.fragments[table_index_[fragment]];
  BlockChecksums& checksums = checksums_[fragment];
  const int64_t size = FragmentBytes(table_, target);
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  if (num_bytes > size - checksums.num_bytes()) {
    return absl::OutOfRangeError(
        absl::StrCat(Describe(table_, target), ": ", num_bytes, " bytes after ",
                     checksums.num_bytes(), ", expected ", size, " in all"));
  }
  SS_RETURN_IF_ERROR(
      file_.WriteAt(target.offset_bytes + checksums.num_bytes(), bytes));
  checksums.Update(bytes);
  return absl::OkStatus();
}

absl::StatusOr<PartReceipt> PartWriter::Close() {
  if (closed_) return absl::FailedPreconditionError("the part is closed");
  for (size_t i = 0; i < checksums_.size(); ++i) {
    Fragment& fragment = table_.fragments[table_index_[i]];
    const int64_t size = FragmentBytes(table_, fragment);
    if (checksums_[i].num_bytes() != size) {
      return absl::FailedPreconditionError(
          absl::StrCat(Describe(table_, fragment), " has ",
                       checksums_[i].num_bytes(), " of its ", size, " bytes"));
    }
  }
  closed_ = true;
  for (size_t i = 0; i < checksums_.size(); ++i) {
    table_.fragments[table_index_[i]].checksums = checksums_[i].Finish();
  }
  SS_ASSIGN_OR_RETURN(
      const UserBlock sealed,
      SealFile(file_, user_block_, EncodeTable(table_), PayloadRanges(table_)));
  const Part part = {sealed.part, sealed.file_bytes, sealed.metadata_digest};
  return PartReceipt{part, std::move(table_)};
}

}  // namespace shardshift::ckpt
