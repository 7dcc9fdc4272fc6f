// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/part_links.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"

namespace shardshift::reshard {
namespace {

bool IsSameTensor(const ckpt::Tensor& tensor, const ckpt::FragmentSpec& spec) {
  return tensor.name == spec.tensor && tensor.role == spec.role &&
         tensor.dtype == spec.dtype;
}

// The part of the source that has the fragment as it would be written.
std::optional<int64_t> PartWith(const ckpt::Reader& source, int64_t tensor,
                                const ckpt::FragmentSpec& spec,
                                ckpt::Codec codec) {
  if (!IsSameTensor(source.table().tensors[tensor], spec)) return std::nullopt;
  const std::span<const ckpt::Fragment> fragments = source.Fragments(tensor);
  const auto it =
      std::lower_bound(fragments.begin(), fragments.end(), spec.box,
                       [](const ckpt::Fragment& fragment,
                          const ckpt::Box& box) { return fragment.box < box; });
  if (it == fragments.end() || it->box != spec.box) return std::nullopt;
  const int64_t num_bytes = ckpt::FragmentBytes(source.table(), *it);
  if (it->codec != ckpt::CodecFor(num_bytes, codec)) return std::nullopt;
  return it->part;
}

// A part of the plan, and where its fragments are so far.
struct Twin {
  std::optional<int64_t> part;  // of the source
  int64_t fragments_found = 0;
  bool is_split = false;  // over several parts, or not there
};

}  // namespace

std::vector<std::optional<int64_t>> FindTwins(const ckpt::Reader& source,
                                              const CopyPlan& plan,
                                              ckpt::Codec codec) {
  if (source.table().is_foreign) {
    return std::vector<std::optional<int64_t>>(plan.parts.size());
  }
  std::vector<Twin> twins(plan.parts.size());
  for (const TensorCopy& copy : plan.tensors) {
    for (const TargetFragment& target : copy.targets) {
      Twin& twin = twins[target.part];
      if (twin.is_split) continue;
      const std::optional<int64_t> part =
          PartWith(source, copy.source,
                   plan.parts[target.part].specs[target.spec], codec);
      if (twin.fragments_found++ == 0) twin.part = part;
      twin.is_split = !part.has_value() || part != twin.part;
    }
  }
  std::map<int64_t, int64_t> fragments_of;  // by part of the source
  for (const ckpt::Fragment& fragment : source.table().fragments) {
    ++fragments_of[fragment.part];
  }
  std::vector<std::optional<int64_t>> found;
  for (const Twin& twin : twins) {
    const bool is_whole =
        !twin.is_split && fragments_of[*twin.part] == twin.fragments_found;
    found.push_back(is_whole ? twin.part : std::nullopt);
  }
  return found;
}

absl::StatusOr<LinkedParts> LinkParts(const ckpt::Reader& source,
                                      const CopyPlan& plan, ckpt::Codec codec,
                                      const std::string& directory) {
  LinkedParts linked;
  std::vector<bool> is_left(plan.parts.size(), true);
  const std::vector<std::optional<int64_t>> twins =
      FindTwins(source, plan, codec);
  for (size_t p = 0; p < twins.size(); ++p) {
    if (!twins[p].has_value()) continue;
    const int64_t number = plan.parts[p].number;
    const std::string from =
        ckpt::JoinPath(source.directory(), ckpt::PartFileName(*twins[p]));
    SS_ASSIGN_OR_RETURN(ckpt::PartReceipt receipt,
                        ckpt::ReadReceipt(from, number));
    const std::string to =
        ckpt::JoinPath(directory, ckpt::PartFileName(number));
    if (!ckpt::LinkFile(from, to).ok()) continue;
    is_left[p] = false;
    linked.receipts.push_back(std::move(receipt));
  }
  linked.rest = OnlyParts(plan, is_left);
  return linked;
}

}  // namespace shardshift::reshard
