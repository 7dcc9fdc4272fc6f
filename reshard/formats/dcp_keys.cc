// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_keys.h"

#include <optional>

#include "absl/container/btree_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "reshard/formats/hf_names.h"
#include "reshard/layout/json_text.h"

namespace shardshift::reshard {
namespace {

constexpr absl::string_view kOuterState = "state.";
constexpr absl::string_view kInnerState = ".state.";

// Names of the embedding: with the prefix that the module of the language model
// gives it, or as the first files of GPT-2 had it.
std::vector<absl::string_view> EmbeddingNames(HfFamily family) {
  if (family == HfFamily::kGpt2) {
    return {"transformer.wte.weight", "wte.weight"};
  }
  return {"model.embed_tokens.weight"};
}

// What stands before `name` in `key`: nothing, or whole parts of a path.
std::optional<absl::string_view> PrefixOf(absl::string_view key,
                                          absl::string_view name) {
  if (!absl::ConsumeSuffix(&key, name)) return std::nullopt;
  if (key.empty() || key.back() == '.') return key;
  return std::nullopt;
}

using Prefixes = absl::btree_set<absl::string_view>;

absl::Status TooMany(const Prefixes& prefixes, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(
      "there are several ", what, ", below ",
      absl::StrJoin(prefixes, ", ",
                    [](std::string* out, absl::string_view prefix) {
                      absl::StrAppend(out, Quoted(prefix));
                    }),
      ", expected one; `reshard --generic` takes all tensors under their own "
      "names"));
}

}  // namespace

absl::string_view DcpKeys::OptimizerPrefix() const {
  const absl::string_view all = state_prefix;
  const size_t inner = all.find(kInnerState);
  return inner == absl::string_view::npos ? "" : all.substr(0, inner + 1);
}

bool DcpKeys::IsModel(absl::string_view key) const {
  const absl::string_view optimizer = OptimizerPrefix();
  const bool is_optimizer =
      !state_prefix.empty() && absl::StartsWith(key, optimizer) &&
      (!optimizer.empty() || absl::StartsWith(key, state_prefix));
  return !is_optimizer && absl::StartsWith(key, model_prefix);
}

absl::StatusOr<DcpKeys> FindDcpKeys(const std::vector<absl::string_view>& keys,
                                    HfFamily family) {
  Prefixes models;
  Prefixes states;
  const std::vector<absl::string_view> names = EmbeddingNames(family);
  for (const absl::string_view name : names) {
    for (const absl::string_view key : keys) {
      if (const auto prefix = PrefixOf(key, name)) models.insert(*prefix);
      absl::string_view stated = key;
      if (!absl::ConsumeSuffix(&stated, kFirstMoment)) continue;
      for (const absl::string_view stated_name :
           {name, absl::string_view(kHfHeadName)}) {
        const auto prefix = PrefixOf(stated, stated_name);
        if (prefix && (absl::StartsWith(*prefix, kOuterState) ||
                       absl::StrContains(*prefix, kInnerState))) {
          states.insert(*prefix);
        }
      }
    }
    if (!models.empty()) break;
  }
  if (models.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no tensor is named ", absl::StrJoin(names, " or "),
        ", behind whatever prefix, as the embedding of a ", ModelType(family),
        " model is; `reshard --generic` takes the tensors under their own "
        "names"));
  }
  if (models.size() > 1) return TooMany(models, "models");
  if (states.size() > 1) return TooMany(states, "states of the embedding");
  DcpKeys result;
  result.model_prefix = std::string(*models.begin());
  if (!states.empty()) result.state_prefix = std::string(*states.begin());
  return result;
}

absl::Status CheckNoStates(const std::vector<absl::string_view>& keys) {
  for (const absl::string_view key : keys) {
    if (!absl::EndsWith(key, kFirstMoment)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        Quoted(key),
        " is of an optimizer that has no state of the embedding, or names its "
        "tensors otherwise: save what get_optimizer_state_dict() gives; or "
        "--weights-only leaves it behind"));
  }
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
