// SPDX-License-Identifier: Apache-2.0
#include "ckpt/foreign_files.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::ckpt {
namespace {

// From the first byte of the box to its last. A product that is too large for
// any file needs no exact value.
double SpanBytes(const Tensor& tensor, const Box& box,
                 const ForeignPlace& place) {
  auto num_bytes = static_cast<double>(ItemSize(tensor.dtype));
  if (place.column_pitch == 0) {
    for (const int64_t extent : box.extent) {
      num_bytes *= static_cast<double>(extent);
    }
    return num_bytes;
  }
  const auto rows = static_cast<double>(box.extent[0]);
  const auto columns = static_cast<double>(box.extent[1]);
  return ((columns - 1) * static_cast<double>(place.column_pitch) + rows) *
         num_bytes;
}

}  // namespace

void PlaceForeign(const ForeignPlace& place, int64_t num_bytes,
                  Fragment& fragment) {
  fragment.column_pitch = place.column_pitch;
  fragment.blocks.resize(NumBlocks(num_bytes));
  PlaceBlocks(place.offset_bytes, num_bytes, fragment);
  if (place.column_pitch == 0) return;
  for (Block& block : fragment.blocks) block.offset_bytes = place.offset_bytes;
}

absl::Status ForeignFilesBuilder::CheckPlace(const Tensor& tensor,
                                             const Box& box,
                                             const ForeignPlace& place) const {
  const auto describe = [&] {
    return absl::StrCat(files_[place.file], ": ", Describe(tensor), ", extent ",
                        ToString(box.extent));
  };
  if (place.column_pitch != 0 &&
      (box.extent.size() != 2 || place.column_pitch < box.extent[0])) {
    return absl::InvalidArgumentError(
        absl::StrCat(describe(), " cannot have columns ", place.column_pitch,
                     " elements apart"));
  }
  const int64_t file_bytes = parts_[place.file].file_bytes;
  if (place.offset_bytes >= 0 && place.offset_bytes <= file_bytes &&
      SpanBytes(tensor, box, place) <=
          static_cast<double>(file_bytes - place.offset_bytes)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(describe(), " at byte ", place.offset_bytes,
                   " is outside the file's ", file_bytes, " bytes"));
}

int64_t ForeignFilesBuilder::AddFile(std::string path, int64_t num_bytes) {
  const auto number = std::ssize(files_);
  files_.push_back(std::move(path));
  parts_.push_back({number, num_bytes, {}});
  return number;
}

int64_t ForeignFilesBuilder::AddContents(std::string name,
                                         std::vector<std::byte> bytes) {
  const int64_t number = AddFile(std::move(name), std::ssize(bytes));
  contents_[number] =
      std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return number;
}

absl::Status ForeignFilesBuilder::Add(const Tensor& tensor, Box box,
                                      const ForeignPlace& place) {
  // Before memory is taken for what it claims.
  SS_RETURN_IF_ERROR(CheckPlace(tensor, box, place));
  const int64_t num_bytes = NumElements(box) * ItemSize(tensor.dtype);
  Fragment fragment = {.box = std::move(box), .part = place.file};
  PlaceForeign(place, num_bytes, fragment);
  return Annotate(builder_.Add(tensor, std::move(fragment)), source_);
}

absl::StatusOr<ForeignFiles> ForeignFilesBuilder::Build(int64_t step,
                                                        std::string state,
                                                        std::string record) {
  ForeignFiles result;
  result.source = source_;
  result.files = std::move(files_);
  result.contents = std::move(contents_);
  result.table = builder_.Build().first;
  result.table.is_foreign = true;
  result.table.step = step;
  result.table.state = std::move(state);
  result.table.record = std::move(record);
  result.table.parts = std::move(parts_);
  SS_RETURN_IF_ERROR(Annotate(CheckContents(result.table), source_));
  SS_RETURN_IF_ERROR(Annotate(CheckCovers(result.table), source_));
  return result;
}

}  // namespace shardshift::ckpt
