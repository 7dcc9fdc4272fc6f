// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/hf_names.h"
#include "reshard/layout/json_text.h"

namespace shardshift::reshard {
namespace {

HfNaming NamingOf(const ModelConfig& model, HfFamily family,
                  std::span<const FoundTensor> found) {
  HfNaming naming{.family = family};
  if (family == HfFamily::kGpt2) {
    naming.bare = absl::c_none_of(found, [](const FoundTensor& tensor) {
      return absl::StartsWith(tensor.name, "transformer.");
    });
  }
  naming.fused_experts =
      model.has_experts() &&
      absl::c_any_of(found, [](const FoundTensor& tensor) {
        return absl::EndsWith(tensor.name, ".experts.gate_up_proj");
      });
  return naming;
}

// What a module keeps beside its parameters, and old versions saved.
bool IsBuffer(HfFamily family, absl::string_view name) {
  if (family == HfFamily::kGpt2) {
    return absl::EndsWith(name, ".attn.bias") ||
           absl::EndsWith(name, ".attn.masked_bias");
  }
  return absl::EndsWith(name, ".rotary_emb.inv_freq");
}

// A configuration may claim far more tensors than there are. A tensor of a
// file holds at most three logical ones of each expert.
absl::Status CheckNumTensors(const ModelConfig& model, size_t num_found) {
  const int64_t each = 3 * std::max<int64_t>(model.num_experts, 1);
  const int64_t at_least = NumLogicalTensors(model) / each;
  if (at_least <= static_cast<int64_t>(num_found)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a model of ", model.num_layers, " layers has at least ",
                   at_least, " tensors, but there are only ", num_found));
}

std::string Describe(absl::string_view name, const ckpt::Shape& shape) {
  return absl::StrCat("tensor ", Quoted(name), " ", ckpt::ToString(shape));
}

class Matcher {
 public:
  explicit Matcher(std::span<const FoundTensor> found)
      : found_(found), used_(found.size()) {}

  absl::Status Index() {
    positions_.reserve(found_.size());
    for (const FoundTensor& tensor : found_) {
      if (positions_.emplace(tensor.name, positions_.size()).second) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("tensor ", Quoted(tensor.name), " comes twice"));
    }
    return absl::OkStatus();
  }

  absl::Status FindAll(const std::vector<StoredTensor>& tensors,
                       std::vector<int64_t>& found) {
    // The embedding is the first logical tensor.
    const StoredTensor* embedding = nullptr;
    const StoredTensor* missing = nullptr;
    int64_t num_missing = 0;
    found.reserve(tensors.size());
    for (const StoredTensor& tensor : tensors) {
      if (tensor.pieces.front().tensor == 0) embedding = &tensor;
      SS_ASSIGN_OR_RETURN(const std::optional<int64_t> position,
                          Find(tensor.name, tensor.shape));
      if (position.has_value()) {
        found.push_back(*position);
      } else if (++num_missing == 1) {
        missing = &tensor;
      }
    }
    if (missing == nullptr) return absl::OkStatus();
    if (missing->name == kHfHeadName && num_missing == 1) {
      return absl::FailedPreconditionError(absl::StrCat(
          Describe(missing->name, missing->shape), " is missing, and by ",
          "config.json it is not ", Quoted(embedding->name),
          "; if it is that one, say \"tie_word_embeddings\": true there"));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        Describe(missing->name, missing->shape), " is missing",
        num_missing > 1 ? absl::StrCat(", and ", num_missing - 1, " more")
                        : ""));
  }

  // Errors: FailedPrecondition if it is there in another shape.
  absl::StatusOr<std::optional<int64_t>> Find(absl::string_view name,
                                              const ckpt::Shape& shape) {
    const auto it = positions_.find(name);
    if (it == positions_.end()) return std::nullopt;
    const FoundTensor& tensor = found_[it->second];
    if (tensor.shape != shape) {
      return absl::FailedPreconditionError(
          absl::StrCat(Describe(name, tensor.shape), " has another shape than ",
                       "config.json says, expected ", ckpt::ToString(shape)));
    }
    used_[it->second] = true;
    return it->second;
  }

  absl::Status IgnoreRest(const ModelConfig& model, HfFamily family,
                          std::vector<int64_t>& ignored) const {
    for (size_t i = 0; i < found_.size(); ++i) {
      if (used_[i]) continue;
      if (!IsBuffer(family, found_[i].name)) {
        return absl::FailedPreconditionError(
            absl::StrCat(Describe(found_[i].name, found_[i].shape),
                         " is no part of a ", ModelType(family), " model of ",
                         model.num_layers, " layers, as config.json has it"));
      }
      ignored.push_back(static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  }

 private:
  const std::span<const FoundTensor> found_;
  absl::flat_hash_map<absl::string_view, int64_t> positions_;
  std::vector<bool> used_;
};

}  // namespace

absl::StatusOr<HfMatch> MatchHfTensors(const ModelConfig& model,
                                       HfFamily family,
                                       std::span<const FoundTensor> found) {
  SS_RETURN_IF_ERROR(CheckNumTensors(model, found.size()));
  HfMatch match{.naming = NamingOf(model, family, found)};
  SS_ASSIGN_OR_RETURN(match.tensors, HfTensors(model, match.naming));
  Matcher matcher(found);
  SS_RETURN_IF_ERROR(matcher.Index());
  SS_RETURN_IF_ERROR(matcher.FindAll(match.tensors, match.found));
  if (!model.untie_embeddings_and_output_weights) {
    SS_ASSIGN_OR_RETURN(
        match.tied_copy,
        matcher.Find(kHfHeadName, {model.vocab_size, model.hidden_size}));
  }
  SS_RETURN_IF_ERROR(matcher.IgnoreRest(model, family, match.ignored));
  return match;
}

}  // namespace shardshift::reshard
