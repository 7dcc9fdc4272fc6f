// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_shards.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "reshard/formats/hf_index.h"

namespace shardshift::reshard {

absl::StatusOr<int64_t> ParseShardBytes(absl::string_view text) {
  const std::string upper =
      absl::AsciiStrToUpper(absl::StripAsciiWhitespace(text));
  absl::string_view number = upper;
  double unit = 1;
  for (const auto& [suffix, bytes] :
       {std::pair{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}}) {
    if (absl::ConsumeSuffix(&number, suffix)) unit = bytes;
  }
  number = absl::StripAsciiWhitespace(number);
  double value = 0;
  constexpr double kMaxBytes = 0x1p62;
  const bool is_decimal =
      number.find_first_not_of("0123456789.") == absl::string_view::npos;
  if (!is_decimal || !absl::SimpleAtod(number, &value) ||
      !(value * unit >= 1 && value * unit <= kMaxBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text,
                     "\" is no size of a file, expected one like "
                     "5GB, 500MB or 1000000"));
  }
  return static_cast<int64_t>(value * unit);
}

std::vector<std::vector<int64_t>> PlanShards(
    std::span<const int64_t> tensor_bytes, int64_t max_bytes) {
  std::vector<std::vector<int64_t>> shards;
  std::vector<int64_t> current;
  int64_t current_bytes = 0;
  for (size_t i = 0; i < tensor_bytes.size(); ++i) {
    const int64_t bytes = tensor_bytes[i];
    const auto tensor = static_cast<int64_t>(i);
    if (bytes > max_bytes) {
      shards.push_back({tensor});
      continue;
    }
    if (bytes > max_bytes - current_bytes) {
      shards.push_back(std::exchange(current, {}));
      current_bytes = 0;
    }
    current.push_back(tensor);
    current_bytes += bytes;
  }
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
  return shards;
}

std::string ShardName(int64_t shard, int64_t num_shards) {
  if (num_shards == 1) return kHfWeightsName;
  return absl::StrCat("model-", absl::Dec(shard + 1, absl::kZeroPad5), "-of-",
                      absl::Dec(num_shards, absl::kZeroPad5), ".safetensors");
}

}  // namespace shardshift::reshard
