// SPDX-License-Identifier: Apache-2.0
#include "ckpt/format/table.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
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
  if (const absl::Status role = CheckName(tensor.role); !role.ok()) {
    return Annotate(role, Describe(tensor) + " role");
  }
  if (absl::StrContains(tensor.role, '/')) {
    return Bad(Describe(tensor), "has a role with '/'");
  }
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
  if (NumElements(fragment.box) == 0 && fragment.fingerprint != Fingerprint()) {
    return Bad(Describe(table, fragment),
               "has a fingerprint, expected 0, as it has no elements");
  }
  if (fragment.codec > Codec::kShuffleZstd) {
    return Bad(Describe(table, fragment),
               absl::StrCat("has codec ", static_cast<int>(fragment.codec),
                            ", which this program does not know"));
  }
  if (fragment.codec != Codec::kNone &&
      FragmentBytes(table, fragment) < kMinCompressedBytes) {
    return Bad(Describe(table, fragment),
               absl::StrCat("has a codec, but fewer than ", kMinCompressedBytes,
                            " bytes"));
  }
  const int64_t num_blocks = NumBlocks(FragmentBytes(table, fragment));
  if (static_cast<int64_t>(fragment.blocks.size()) != num_blocks) {
    return Bad(Describe(table, fragment),
               absl::StrCat("has ", fragment.blocks.size(),
                            " blocks, expected ", num_blocks));
  }
  if (!IsReduced(fragment.fingerprint)) {
    return Bad(Describe(table, fragment), "has a fingerprint out of range");
  }
  return absl::OkStatus();
}

// A tensor is a dataset NAME/ROLE in HDF5, which cannot be a group as well.
absl::Status CheckNesting(const Table& table) {
  absl::flat_hash_set<std::string> datasets;
  const auto nests = [](const Tensor& tensor) {
    return absl::StrContains(tensor.name, '/');
  };
  if (std::none_of(table.tensors.begin(), table.tensors.end(), nests)) {
    return absl::OkStatus();
  }
  for (const Tensor& tensor : table.tensors) {
    datasets.insert(absl::StrCat(tensor.name, "/", tensor.role));
  }
  for (const Tensor& tensor : table.tensors) {
    const absl::string_view path = tensor.name;
    for (size_t end = path.find('/'); end != absl::string_view::npos;) {
      end = path.find('/', end + 1);
      if (!datasets.contains(path.substr(0, end))) continue;
      return Bad(Describe(tensor),
                 absl::StrCat("lies below ", path.substr(0, end),
                              ", which is the name and role of a tensor"));
    }
  }
  return absl::OkStatus();
}

// Stored bytes that follow each other.
struct Place {
  int64_t part;
  ByteRange bytes;
  const Fragment* fragment;
};

// The blocks of a fragment, those that follow each other as one place.
void AppendPlaces(const Fragment& fragment, std::vector<Place>& places) {
  bool is_first = true;
  for (const Block& block : fragment.blocks) {
    const ByteRange bytes = {block.offset_bytes,
                             block.offset_bytes + block.stored_bytes};
    if (!is_first && places.back().bytes.end == bytes.begin) {
      places.back().bytes.end = bytes.end;
    } else {
      places.push_back({fragment.part, bytes, &fragment});
    }
    is_first = false;
  }
}

// Empty fragments have no place. REQUIRES: blocks lie within files.
std::vector<Place> SortedPlaces(const Table& table) {
  std::vector<Place> places;
  places.reserve(table.fragments.size());
  for (const Fragment& fragment : table.fragments) {
    AppendPlaces(fragment, places);
  }
  const auto is_before = [](const Place& a, const Place& b) {
    return std::tie(a.part, a.bytes.begin) < std::tie(b.part, b.bytes.begin);
  };
  if (!std::is_sorted(places.begin(), places.end(), is_before)) {
    std::sort(places.begin(), places.end(), is_before);
  }
  return places;
}

// Whether a block lies between the user block and the end of the file, and
// has a size that its codec can give.
absl::Status CheckBlocks(const Table& table, const Fragment& fragment,
                         const Part& part) {
  const int64_t size = FragmentBytes(table, fragment);
  for (size_t b = 0; b < fragment.blocks.size(); ++b) {
    const Block& block = fragment.blocks[b];
    const int64_t begin = static_cast<int64_t>(b) * kBlockBytes;
    const bool is_plain = fragment.codec == Codec::kNone;
    const bool has_size =
        is_plain
            ? block.stored_bytes == std::min(kBlockBytes, size - begin)
            : block.stored_bytes > 0 && block.stored_bytes <= kMaxStoredBytes;
    if (!has_size || (is_plain && block.offset_bytes - begin !=
                                      fragment.blocks.front().offset_bytes)) {
      return Bad(
          Describe(table, fragment),
          absl::StrCat("block ", b, " at byte ", block.offset_bytes, " has ",
                       block.stored_bytes, " bytes, which do not fit its box"));
    }
    if (is_plain && size >= kPageBytes &&
        block.offset_bytes % kPageBytes != 0) {
      return Bad(
          Describe(table, fragment),
          absl::StrCat("block ", b, " at byte ", block.offset_bytes,
                       " begins within a page of ", kPageBytes, " bytes"));
    }
    // Without sums, which might overflow.
    if (block.offset_bytes < kUserBlockBytes ||
        block.stored_bytes > part.file_bytes ||
        block.offset_bytes > part.file_bytes - block.stored_bytes) {
      return Bad(
          Describe(table, fragment),
          absl::StrCat("at byte ", block.offset_bytes, " of ",
                       PartFileName(part.number), " is outside the file's ",
                       part.file_bytes, " bytes"));
    }
  }
  return absl::OkStatus();
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

absl::Status CheckPartsAreUsed(const Table& table) {
  absl::flat_hash_set<int64_t> used;
  for (const Fragment& fragment : table.fragments) used.insert(fragment.part);
  for (const Part& part : table.parts) {
    if (used.contains(part.number)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("part ", part.number, " has no fragment"));
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

}  // namespace

int64_t FragmentBytes(const Table& table, const Fragment& fragment) {
  return NumElements(fragment.box) *
         ItemSize(table.tensors[fragment.tensor].dtype);
}

int64_t BlockBytes(const Table& table, const Fragment& fragment,
                   int64_t block) {
  return std::min(kBlockBytes,
                  FragmentBytes(table, fragment) - block * kBlockBytes);
}

int64_t ChunkBytes(const Table& table, const Fragment& fragment) {
  return BlockBytes(table, fragment, 0);
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

void PlaceBlocks(int64_t offset_bytes, int64_t num_bytes, Fragment& fragment) {
  for (Block& block : fragment.blocks) {
    block.offset_bytes = offset_bytes;
    block.stored_bytes = std::min(kBlockBytes, num_bytes);
    offset_bytes += block.stored_bytes;
    num_bytes -= block.stored_bytes;
  }
}

std::vector<Fingerprint> TensorFingerprints(const Table& table) {
  std::vector<Fingerprint> fingerprints(table.tensors.size());
  for (const Fragment& fragment : table.fragments) {
    fingerprints[fragment.tensor] += fragment.fingerprint;
  }
  return fingerprints;
}

Digest128 RootFingerprintOf(const Table& table) {
  const std::vector<Fingerprint> fingerprints = TensorFingerprints(table);
  RootFingerprint root;
  for (size_t t = 0; t < table.tensors.size(); ++t) {
    const Tensor& tensor = table.tensors[t];
    root.Add(tensor.name, tensor.role, tensor.dtype, tensor.shape,
             fingerprints[t]);
  }
  return root.Digest();
}

absl::Status CheckName(absl::string_view name) {
  const auto is_allowed = [](char c) { return c > ' ' && c <= '~'; };
  bool is_good = name.size() <= kMaxNameBytes &&
                 std::all_of(name.begin(), name.end(), is_allowed);
  for (const absl::string_view component : absl::StrSplit(name, '/')) {
    is_good =
        is_good && !component.empty() && component != "." && component != "..";
  }
  if (is_good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "name \"", absl::CHexEscape(name), "\" is not allowed: expected 1 to ",
      kMaxNameBytes,
      " printable ASCII characters other than space, and between '/' neither "
      "nothing nor \".\" or \"..\""));
}

absl::Status CheckContents(const Table& table) {
  for (const std::string* text : {&table.state, &table.record}) {
    if (static_cast<int64_t>(text->size()) <= kMaxTextBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("state or record has ", text->size(), " bytes, more than ",
                     kMaxTextBytes));
  }
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
  if (next_tensor == num_tensors) return CheckNesting(table);
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
    SS_RETURN_IF_ERROR(CheckBlocks(table, fragment, *part));
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

absl::Status CheckCovers(const Table& table) {
  std::vector<Box> boxes;
  for (size_t first = 0; first < table.fragments.size();) {
    const size_t end = EndOfTensor(table, first);
    const Tensor& tensor = table.tensors[table.fragments[first].tensor];
    if (table.fragments[first].box.extent == tensor.shape && end == first + 1) {
      first = end;
      continue;
    }
    boxes.clear();
    for (; first < end; ++first) boxes.push_back(table.fragments[first].box);
    SS_RETURN_IF_ERROR(Annotate(CheckExactCover(WholeBox(tensor.shape), boxes),
                                Describe(tensor)));
  }
  return absl::OkStatus();
}

absl::Status CheckIndexTable(const Table& table) {
  SS_RETURN_IF_ERROR(CheckContents(table));
  SS_RETURN_IF_ERROR(CheckPartOrder(table.parts));
  SS_RETURN_IF_ERROR(CheckPlaces(table, table.parts));
  SS_RETURN_IF_ERROR(CheckPartsAreUsed(table));
  return CheckCovers(table);
}

std::vector<ByteRange> PayloadRanges(const Table& table) {
  std::vector<ByteRange> ranges;
  for (const Place& place : SortedPlaces(table)) ranges.push_back(place.bytes);
  return ranges;
}

}  // namespace shardshift::ckpt
