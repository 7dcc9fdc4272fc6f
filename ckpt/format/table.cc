// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/table.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/cover.h"
#include "ckpt/format/user_block.h"

namespace shardshift::ckpt {
namespace {

absl::Status Bad(absl::string_view where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, " ", what));
}

absl::Status CheckTensor(const Tensor& tensor) {
  SS_RETURN_IF_ERROR(CheckName(tensor.name));
  SS_RETURN_IF_ERROR(
      Annotate(CheckName(tensor.role), Describe(tensor) + " role"));
  if (tensor.shape.size() > kMaxNdim) {
    return Bad(Describe(tensor), absl::StrCat("has ", tensor.shape.size(),
                                              " dims, more than ", kMaxNdim));
  }
  absl::StatusOr<int64_t> elements = CheckedNumElements(tensor.shape);
  if (!elements.ok()) return Bad(Describe(tensor), elements.status().message());
  if (*elements >
      std::numeric_limits<int64_t>::max() / ItemSize(tensor.dtype)) {
    return Bad(Describe(tensor), "has more bytes than 63 bits count");
  }
  return absl::OkStatus();
}

absl::Status CheckFragment(const Table& table, const Fragment& fragment) {
  const Tensor& tensor = table.tensors[fragment.tensor];
  const Box whole = WholeBox(tensor.shape);
  if (!Contains(whole, fragment.box)) {
    return Bad(Describe(tensor),
               absl::StrCat("has a fragment at ", ToString(fragment.box.start),
                            " of extent ", ToString(fragment.box.extent),
                            ", outside its shape ", ToString(tensor.shape)));
  }
  if (NumElements(fragment.box) == 0 && fragment.box != whole) {
    return Bad(Describe(table, fragment), "is empty");
  }
  const int64_t num_blocks = NumBlocks(FragmentBytes(table, fragment));
  if (static_cast<int64_t>(fragment.checksums.size()) != num_blocks) {
    return Bad(Describe(table, fragment),
               absl::StrCat("has ", fragment.checksums.size(),
                            " checksums, expected ", num_blocks));
  }
  return absl::OkStatus();
}

// Where a fragment's bytes are.
struct Place {
  int64_t part;
  ByteRange bytes;
  const Fragment* fragment;
};

// Empty fragments have no place.
std::vector<Place> SortedPlaces(const Table& table) {
  std::vector<Place> places;
  for (const Fragment& fragment : table.fragments) {
    const int64_t size = FragmentBytes(table, fragment);
    if (size == 0) continue;
    places.push_back({fragment.part,
                      {fragment.offset_bytes, fragment.offset_bytes + size},
                      &fragment});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.part, a.bytes.begin) < std::tie(b.part, b.bytes.begin);
  });
  return places;
}

// Between the user block and `end_bytes`, without overflow.
bool IsWithinFile(int64_t offset_bytes, int64_t size, int64_t end_bytes) {
  if (size == 0) return offset_bytes == 0;
  return offset_bytes >= kUserBlockBytes && size <= end_bytes &&
         offset_bytes <= end_bytes - size;
}

absl::Status CheckPartOrder(const std::vector<Part>& parts) {
  int64_t previous = -1;
  for (const Part& part : parts) {
    if (part.number <= previous) {
      return absl::InvalidArgumentError(
          absl::StrCat("part ", part.number, " is listed after ", previous));
    }
    previous = part.number;
  }
  return absl::OkStatus();
}

// The fragments of a tensor follow each other; gives the end of the run.
size_t EndOfTensor(const Table& table, size_t first) {
  size_t end = first;
  while (end < table.fragments.size() &&
         table.fragments[end].tensor == table.fragments[first].tensor) {
    ++end;
  }
  return end;
}

absl::Status CheckCovers(const Table& table) {
  for (size_t first = 0; first < table.fragments.size();) {
    const size_t end = EndOfTensor(table, first);
    const Tensor& tensor = table.tensors[table.fragments[first].tensor];
    std::vector<Box> boxes;
    for (; first < end; ++first) boxes.push_back(table.fragments[first].box);
    // CheckContents leaves an empty tensor its one empty box.
    if (NumElements(tensor.shape) == 0) continue;
    SS_RETURN_IF_ERROR(
        Annotate(CheckExactCover(WholeBox(tensor.shape), std::move(boxes)),
                 Describe(tensor)));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t FragmentBytes(const Table& table, const Fragment& fragment) {
  return NumElements(fragment.box) *
         ItemSize(table.tensors[fragment.tensor].dtype);
}

std::string Describe(const Tensor& tensor) {
  return absl::StrCat("tensor \"", tensor.name, "\" (", tensor.role, ")");
}

std::string Describe(const Table& table, const Fragment& fragment) {
  return absl::StrCat(Describe(table.tensors[fragment.tensor]), " ",
                      ToString(fragment.box));
}

std::string PartFileName(int64_t part) {
  return absl::StrFormat("part-%05d.h5", part);
}

absl::Status CheckName(absl::string_view name) {
  const auto is_allowed = [](char c) {
    return c > ' ' && c <= '~' && c != '/';
  };
  if (!name.empty() && name.size() <= kMaxNameBytes && name != "." &&
      name != ".." && std::all_of(name.begin(), name.end(), is_allowed)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "name \"", name, "\" is not allowed: expected 1 to ", kMaxNameBytes,
      " printable ASCII characters other than '/' and space"));
}

absl::Status CheckContents(const Table& table) {
  const Tensor* previous = nullptr;
  for (const Tensor& tensor : table.tensors) {
    SS_RETURN_IF_ERROR(CheckTensor(tensor));
    if (previous != nullptr && std::tie(previous->name, previous->role) >=
                                   std::tie(tensor.name, tensor.role)) {
      return Bad(Describe(tensor), "is listed twice or out of order");
    }
    previous = &tensor;
  }
  const auto num_tensors = static_cast<int64_t>(table.tensors.size());
  int64_t next_tensor = 0;
  const Fragment* before = nullptr;
  for (const Fragment& fragment : table.fragments) {
    const bool same = before != nullptr && before->tensor == fragment.tensor;
    if (!same &&
        (fragment.tensor != next_tensor++ || fragment.tensor >= num_tensors)) {
      return absl::InvalidArgumentError(
          "fragments are out of order, or a tensor has none");
    }
    SS_RETURN_IF_ERROR(CheckFragment(table, fragment));
    if (same && before->box >= fragment.box) {
      return Bad(Describe(table, fragment), "is listed twice or out of order");
    }
    before = &fragment;
  }
  if (next_tensor == num_tensors) return absl::OkStatus();
  return Bad(Describe(table.tensors[next_tensor]), "has no fragment");
}

absl::Status CheckPlaces(const Table& table, std::span<const Part> parts) {
  for (const Fragment& fragment : table.fragments) {
    const auto part = std::lower_bound(
        parts.begin(), parts.end(), fragment.part,
        [](const Part& p, int64_t number) { return p.number < number; });
    if (part == parts.end() || part->number != fragment.part) {
      return Bad(
          Describe(table, fragment),
          absl::StrCat("is in part ", fragment.part, ", which is not listed"));
    }
    if (!IsWithinFile(fragment.offset_bytes, FragmentBytes(table, fragment),
                      part->file_bytes)) {
      return Bad(
          Describe(table, fragment),
          absl::StrCat("at byte ", fragment.offset_bytes, " of ",
                       PartFileName(fragment.part), " is outside the file's ",
                       part->file_bytes, " bytes"));
    }
  }
  const std::vector<Place> places = SortedPlaces(table);
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].part == places[i - 1].part &&
        places[i].bytes.begin < places[i - 1].bytes.end) {
      return Bad(
          Describe(table, *places[i].fragment),
          absl::StrCat("shares bytes of ", PartFileName(places[i].part),
                       " with ", Describe(table, *places[i - 1].fragment)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIndexTable(const Table& table) {
  SS_RETURN_IF_ERROR(CheckContents(table));
  SS_RETURN_IF_ERROR(CheckPartOrder(table.parts));
  SS_RETURN_IF_ERROR(CheckPlaces(table, table.parts));
  return CheckCovers(table);
}

std::vector<ByteRange> PayloadRanges(const Table& table) {
  std::vector<ByteRange> ranges;
  for (const Place& place : SortedPlaces(table)) ranges.push_back(place.bytes);
  return ranges;
}

}  // namespace shardshift::ckpt
