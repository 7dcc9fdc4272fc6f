// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/weights_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ckpt/core/box.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

// In memory at a time, about.
constexpr int64_t kElementsAtATime = int64_t{1} << 21;
constexpr int64_t kElementsInFront = int64_t{1} << 16;

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

// Some whole rows at a time.
absl::StatusOr<bool> AreRounded(const Pair& pair, bool all) {
  const ckpt::Shape& shape = pair.weights.table().tensors[pair.weight].shape;
  ckpt::Box box = ckpt::WholeBox(shape);
  if (shape.empty()) return IsRounded(pair, box);
  const int64_t num_rows = shape[0];
  if (ckpt::NumElements(box) == 0) return true;
  const int64_t row_elements = ckpt::NumElements(box) / num_rows;
  const int64_t at_a_time = std::clamp<int64_t>(
      (all ? kElementsAtATime : kElementsInFront) / row_elements, 1, num_rows);
  for (int64_t row = 0; row < num_rows; row += at_a_time) {
    box.start[0] = row;
    box.extent[0] = std::min(at_a_time, num_rows - row);
    SS_ASSIGN_OR_RETURN(const bool is_rounded, IsRounded(pair, box));
    if (!is_rounded || !all) return is_rounded;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::optional<std::string>> FirstUnlikeMaster(
    const ckpt::Reader& state, const ckpt::Reader& weights,
    const std::vector<std::string>& names, bool all) {
  for (const std::string& name : names) {
    SS_ASSIGN_OR_RETURN(const int64_t master, state.FindTensor(name, "master"));
    SS_ASSIGN_OR_RETURN(const int64_t weight,
                        weights.FindTensor(name, "weight"));
    SS_ASSIGN_OR_RETURN(const bool is_rounded,
                        AreRounded({state, weights, master, weight}, all));
    if (!is_rounded) return name;
  }
  return std::nullopt;
}

std::string UnlikeMaster(const ckpt::Reader& state, absl::string_view name) {
  return absl::StrCat(
      state.directory(), ": the weights of ", name,
      " are not the optimizer's masters, rounded; a copy with the optimizer "
      "keeps the masters alone. --weights-only takes the weights");
}

absl::Status CheckMasters(const ckpt::Reader& state,
                          const ckpt::Reader& weights,
                          const std::vector<std::string>& names) {
  SS_ASSIGN_OR_RETURN(const std::optional<std::string> unlike,
                      FirstUnlikeMaster(state, weights, names, /*all=*/true));
  if (!unlike.has_value()) return absl::OkStatus();
  return absl::DataLossError(UnlikeMaster(state, *unlike));
}

}  // namespace shardshift::reshard
