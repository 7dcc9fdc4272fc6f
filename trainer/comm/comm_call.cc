// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/comm_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace shardshift::trainer {
namespace {

constexpr size_t kMaxRanksInMessage = 16;

}  // namespace

absl::Status CheckSameCall(absl::string_view where, int rank_a,
                           const CommCall& a, int rank_b, const CommCall& b) {
  const auto differ = [&](const auto& of_a, const auto& of_b) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": the ranks disagree: rank ", rank_a, " has ",
                     of_a, ", rank ", rank_b, " has ", of_b));
  };
  if (b.kind != a.kind) {
    return differ(CommKindName(a.kind), CommKindName(b.kind));
  }
  if (b.size != a.size) {
    return differ(absl::StrCat("size ", a.size), absl::StrCat("size ", b.size));
  }
  if (b.detail != a.detail) return differ(a.detail, b.detail);
  const auto [x, y] = std::mismatch(a.sizes_bytes.begin(), a.sizes_bytes.end(),
                                    b.sizes_bytes.begin());
  if (x == a.sizes_bytes.end()) return absl::OkStatus();
  return differ(absl::StrCat(*x, " bytes"), absl::StrCat(*y, " bytes"));
}

std::string RankList(std::vector<int> ranks) {
  const size_t left_out =
      ranks.size() - std::min(ranks.size(), kMaxRanksInMessage);
  ranks.resize(ranks.size() - left_out);
  std::string list = absl::StrJoin(ranks, ", ");
  if (left_out > 0) absl::StrAppend(&list, " and ", left_out, " more");
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", list);
}

std::string DescribeCall(CommKind kind, absl::string_view group,
                         const std::vector<int>& world_ranks) {
  return absl::StrCat(CommKindName(kind), " in group \"", group, "\" of ",
                      RankList(world_ranks));
}

}  // namespace shardshift::trainer
