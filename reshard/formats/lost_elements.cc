// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/lost_elements.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/status_macros.h"
#include "reshard/layout/content.h"

namespace shardshift::reshard {
namespace {

constexpr ckpt::DType kDType = ckpt::DType::kF32;
constexpr int64_t kItemSize = 4;

// Named for a tensor, and tensors named in text.
constexpr size_t kMaxBoxes = 4;
constexpr size_t kMaxNotes = 50;

// The reads that fill `dst`, the image of `box`.
void AppendReads(const ckpt::Reader& reader, int64_t tensor,
                 const ckpt::Box& box, std::byte* dst,
                 std::vector<ckpt::FragmentRead>& reads) {
  int64_t index = reader.FirstFragment(tensor);
  for (const ckpt::Fragment& fragment : reader.Fragments(tensor)) {
    std::optional<ckpt::Box> what = ckpt::Intersect(fragment.box, box);
    if (what.has_value()) {
      reads.push_back({.fragment = index,
                       .what = *std::move(what),
                       .dst = dst,
                       .dst_box = box,
                       .as = kDType});
    }
    ++index;
  }
}

std::string BoxesOf(const LostFromTensor& lost) {
  std::string text = absl::StrJoin(lost.boxes, ", ",
                                   [](std::string* out, const ckpt::Box& box) {
                                     absl::StrAppend(out, ckpt::ToString(box));
                                   });
  if (lost.more_boxes > 0) {
    absl::StrAppend(&text, " and ", lost.more_boxes, " boxes more");
  }
  return text;
}

}  // namespace

absl::Status LostElements::Add(int64_t tensor, ckpt::Box box) {
  num_elements_ += ckpt::NumElements(box);
  if (num_elements_ > kMaxElements) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "more than ", kMaxElements,
        " elements of the optimizer's masters are in no file; that is too much "
        "to be filled in. --weights-only takes the weights"));
  }
  places_.push_back({tensor, std::move(box)});
  return absl::OkStatus();
}

absl::Status LostElements::FillIn(const ckpt::Reader& weights,
                                  ckpt::ForeignFilesBuilder& builder) const {
  if (places_.empty()) return absl::OkStatus();
  int64_t longest = 0;
  for (const Place& place : places_) {
    longest = std::max(longest, ckpt::NumElements(place.box));
  }
  // All masters, then the zeros that all moments share.
  const int64_t zeros = num_elements_ * kItemSize;
  std::vector<std::byte> bytes(zeros + longest * kItemSize);
  std::vector<ckpt::FragmentRead> reads;
  int64_t offset_bytes = 0;
  for (const Place& place : places_) {
    SS_ASSIGN_OR_RETURN(
        const int64_t tensor,
        weights.FindTensor(tensors_[place.tensor].name, "weight"));
    AppendReads(weights, tensor, place.box, bytes.data() + offset_bytes, reads);
    offset_bytes += ckpt::NumElements(place.box) * kItemSize;
  }
  SS_RETURN_IF_ERROR(weights.Read(reads));
  const int64_t file =
      builder.AddContents("(values filled in)", std::move(bytes));
  offset_bytes = 0;
  for (const Place& place : places_) {
    const LogicalTensor& tensor = tensors_[place.tensor];
    for (const char* role : kOptimizerRoles) {
      const bool is_master = role == kOptimizerRoles.front();
      SS_RETURN_IF_ERROR(
          builder.Add({tensor.name, role, kDType, tensor.shape}, place.box,
                      {file, is_master ? offset_bytes : zeros, 0}));
    }
    offset_bytes += ckpt::NumElements(place.box) * kItemSize;
  }
  return absl::OkStatus();
}

std::vector<LostFromTensor> LostElements::ByTensor() const {
  std::map<int64_t, LostFromTensor> by_tensor;
  for (const Place& place : places_) {
    LostFromTensor& lost = by_tensor[place.tensor];
    lost.count += ckpt::NumElements(place.box);
    if (lost.boxes.size() < kMaxBoxes) {
      lost.boxes.push_back(place.box);
    } else {
      ++lost.more_boxes;
    }
  }
  std::vector<LostFromTensor> all;
  all.reserve(by_tensor.size());
  for (auto& [tensor, lost] : by_tensor) {
    lost.tensor = tensors_[tensor].name;
    lost.of = ckpt::NumElements(tensors_[tensor].shape);
    all.push_back(std::move(lost));
  }
  return all;
}

void DescribeLost(ForeignCheckpoint& read) {
  if (read.lost.empty()) {
    read.notes.emplace_back("no element was lost");
    return;
  }
  int64_t count = 0;
  for (const LostFromTensor& lost : read.lost) count += lost.count;
  int64_t of = 0;
  for (const ckpt::Tensor& tensor : read.files.table.tensors) {
    if (tensor.role == kOptimizerRoles.front()) {
      of += ckpt::NumElements(tensor.shape);
    }
  }
  for (size_t i = 0; i < std::min(kMaxNotes, read.lost.size()); ++i) {
    const LostFromTensor& lost = read.lost[i];
    read.notes.push_back(absl::StrCat("lost: ", lost.tensor, ": ", lost.count,
                                      " of ", lost.of, " elements, ",
                                      BoxesOf(lost)));
  }
  if (read.lost.size() > kMaxNotes) {
    read.notes.push_back(absl::StrCat("lost: the same in ",
                                      read.lost.size() - kMaxNotes,
                                      " tensors more; --json names them all"));
  }
  const std::string summary =
      absl::StrCat(count, " of ", of, " elements of each optimizer state, in ",
                   read.lost.size(),
                   " tensors, which are in no file: their masters are the "
                   "weights, exp_avg and exp_avg_sq are 0");
  read.notes.push_back(absl::StrCat("lost in all: ", summary));
  read.left_out.push_back(summary);
}

}  // namespace shardshift::reshard
