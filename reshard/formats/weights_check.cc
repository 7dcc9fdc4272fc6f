// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/weights_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/core/box.h"
#include "ckpt/core/convert.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table_builder.h"

namespace shardshift::reshard {
namespace {

// In memory at a time, about.
constexpr int64_t kElementsAtATime = int64_t{1} << 21;
constexpr int64_t kElementsInFront = int64_t{1} << 16;
constexpr int64_t kMaxNamed = 3;

struct Pair {
  const ckpt::Reader& state;
  const ckpt::Reader& weights;
  int64_t master;
  int64_t weight;
};

absl::StatusOr<bool> IsRounded(const Pair& pair, const ckpt::Box& box) {
  const ckpt::DType dtype = pair.weights.table().tensors[pair.weight].dtype;
  const int64_t num_bytes = ckpt::NumElements(box) * ckpt::ItemSize(dtype);
  std::vector<std::byte> rounded(num_bytes);
  std::vector<std::byte> expected(num_bytes);
  SS_RETURN_IF_ERROR(
      pair.state.ReadTensor(pair.master, box, rounded.data(), dtype));
  SS_RETURN_IF_ERROR(
      pair.weights.ReadTensor(pair.weight, box, expected.data()));
  return rounded == expected;
}

// Some whole rows at a time, so many elements about; with `limit` no more.
absl::StatusOr<bool> AreRounded(const Pair& pair,
                                std::optional<int64_t> limit) {
  const ckpt::Tensor& master = pair.state.table().tensors[pair.master];
  const ckpt::Tensor& weight = pair.weights.table().tensors[pair.weight];
  if (master.shape != weight.shape) {
    return absl::DataLossError(
        absl::StrCat(pair.state.directory(), ": the weight of ", weight.name,
                     " has shape ", ckpt::ToString(weight.shape),
                     ", its master ", ckpt::ToString(master.shape)));
  }
  if (!ckpt::CheckConversion(master.dtype, weight.dtype).ok()) return false;
  ckpt::Box box = ckpt::WholeBox(weight.shape);
  if (weight.shape.empty()) return IsRounded(pair, box);
  const int64_t num_rows = weight.shape[0];
  if (ckpt::NumElements(box) == 0) return true;
  const int64_t row_elements = ckpt::NumElements(box) / num_rows;
  const int64_t at_a_time = std::clamp<int64_t>(
      limit.value_or(kElementsAtATime) / row_elements, 1, num_rows);
  for (int64_t row = 0; row < num_rows; row += at_a_time) {
    box.start[0] = row;
    box.extent[0] = std::min(at_a_time, num_rows - row);
    SS_ASSIGN_OR_RETURN(const bool is_rounded, IsRounded(pair, box));
    if (!is_rounded || limit.has_value()) return is_rounded;
  }
  return true;
}

absl::StatusOr<std::vector<std::string>> Unlike(
    const ckpt::Reader& state, const ckpt::Reader& weights,
    const std::vector<std::string>& names, std::optional<int64_t> limit) {
  std::vector<std::string> unlike;
  for (const std::string& name : names) {
    SS_ASSIGN_OR_RETURN(const int64_t master, state.FindTensor(name, "master"));
    SS_ASSIGN_OR_RETURN(const int64_t weight,
                        weights.FindTensor(name, "weight"));
    SS_ASSIGN_OR_RETURN(const bool are_rounded,
                        AreRounded({state, weights, master, weight}, limit));
    if (!are_rounded) unlike.push_back(name);
  }
  return unlike;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> UnlikeMasters(
    const ckpt::Reader& state, const ckpt::Reader& weights,
    const std::vector<std::string>& names) {
  return Unlike(state, weights, names, std::nullopt);
}

absl::StatusOr<std::vector<std::string>> UnlikeInFront(
    const ckpt::Reader& state, const ckpt::Reader& weights,
    const std::vector<std::string>& names) {
  return Unlike(state, weights, names, kElementsInFront);
}

absl::Status KeepWeights(const std::vector<std::string>& names,
                         ForeignCheckpoint& read) {
  const absl::flat_hash_set<absl::string_view> wanted(names.begin(),
                                                      names.end());
  ckpt::ForeignFiles& files = read.files;
  ckpt::TableBuilder builder;
  for (const ckpt::Fragment& fragment : files.table.fragments) {
    SS_RETURN_IF_ERROR(
        builder.Add(files.table.tensors[fragment.tensor], fragment));
  }
  std::map<std::string, int64_t> number_of;  // by path
  for (size_t f = 0; f < files.files.size(); ++f) {
    number_of.emplace(files.files[f], static_cast<int64_t>(f));
  }
  const ckpt::Table& weights = read.weights->table;
  for (ckpt::Fragment fragment : weights.fragments) {
    const ckpt::Tensor& tensor = weights.tensors[fragment.tensor];
    if (!wanted.contains(tensor.name)) continue;
    const std::string& path = read.weights->files[fragment.part];
    const auto [found, is_new] =
        number_of.try_emplace(path, std::ssize(files.files));
    if (is_new) {
      files.files.push_back(path);
      files.table.parts.push_back(
          {found->second, weights.parts[fragment.part].file_bytes, {}});
    }
    fragment.part = found->second;
    SS_RETURN_IF_ERROR(builder.Add(tensor, std::move(fragment)));
  }
  ckpt::Table joined = builder.Build().first;
  files.table.tensors = std::move(joined.tensors);
  files.table.fragments = std::move(joined.fragments);
  read.weights.reset();
  return absl::OkStatus();
}

std::string DescribeKept(const std::vector<std::string>& names) {
  const auto count = std::ssize(names);
  const auto named = std::min(count, kMaxNamed);
  std::string text = absl::StrCat(
      count == 1 ? "the weight of 1 tensor, which is not its master, rounded: "
                 : absl::StrCat("the weights of ", count,
                                " tensors, which are not their masters, "
                                "rounded: "),
      absl::StrJoin(names.begin(), names.begin() + named, ", "));
  if (named < count) absl::StrAppend(&text, " and ", count - named, " more");
  return text;
}

std::string UnlikeMaster(const ckpt::Reader& state, absl::string_view name) {
  return absl::StrCat(state.directory(), ": the weights of ", name,
                      " are not the optimizer's masters, rounded; "
                      "--weights-only takes the weights");
}

}  // namespace shardshift::reshard
