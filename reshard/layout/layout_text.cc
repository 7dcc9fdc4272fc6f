// How a layout is printed and stored.
// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/flat_buffer.h"
#include "reshard/layout/json_types.h"
#include "reshard/layout/layout.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

// Calls visit(key, member) for the fields that every record has.
template <typename AnyLayout, typename Visitor>
void VisitPlainFields(AnyLayout& layout, Visitor&& visit) {
  visit("tensor_model_parallel_size", layout.tensor);
  visit("pipeline_model_parallel_size", layout.pipeline);
  visit("data_parallel_size", layout.data);
  visit("use_distributed_optimizer", layout.distributed_optimizer);
}

// Calls visit(key, words for people, member) for the others. Keys are
// Megatron's names of the flags.
template <typename AnyLayout, typename Visitor>
void VisitOtherFields(AnyLayout& layout, Visitor&& visit) {
  visit("expert_model_parallel_size", "EP", layout.expert);
  visit("expert_tensor_parallel_size", "ETP", layout.expert_tensor);
  visit("num_layers_per_virtual_pipeline_stage",
        "layers-per-virtual-stage=", layout.layers_per_virtual_stage);
  visit("num_virtual_stages_per_pipeline_rank", "VPP", layout.virtual_stages);
  visit("decoder_first_pipeline_num_layers",
        "first-stage-layers=", layout.first_stage_layers);
  visit("decoder_last_pipeline_num_layers",
        "last-stage-layers=", layout.last_stage_layers);
  visit("account_for_embedding_in_pipeline_split", "account-for-embedding",
        layout.account_for_embedding);
  visit("account_for_loss_in_pipeline_split", "account-for-loss",
        layout.account_for_loss);
  visit("pipeline_model_parallel_layout", "stage-layers=", layout.stage_layers);
}

std::string Text(bool) { return ""; }
std::string Text(int64_t value) { return absl::StrCat(value); }
std::string Text(const std::vector<int64_t>& values) {
  return absl::StrJoin(values, ",");
}

// Calls visit(key, words, member) for what differs from its default.
template <typename Visitor>
void VisitChangedFields(const Layout& layout, Visitor&& visit) {
  const Layout plain;
  json defaults;
  VisitOtherFields(
      plain, [&defaults](const char* key, const char*, const auto& value) {
        defaults[key] = value;
      });
  VisitOtherFields(layout,
                   [&](const char* key, const char* words, const auto& value) {
                     if (defaults[key] != json(value)) visit(key, words, value);
                   });
}

}  // namespace

std::string ToString(const Layout& layout) {
  std::string text = absl::StrCat(
      "TP", layout.tensor, " PP", layout.pipeline, " DP", layout.data,
      layout.distributed_optimizer ? " distributed-optimizer" : "");
  VisitChangedFields(
      layout, [&text](const char*, const char* words, const auto& value) {
        absl::StrAppend(&text, " ", words, Text(value));
      });
  return text;
}

std::string ToString(const std::optional<Layout>& layout) {
  return layout.has_value() ? ToString(*layout) : "an unknown layout";
}

json ToJson(const Layout& layout) {
  json object = {{"bucket_size", DefaultBucketSize(layout.data)}};
  VisitPlainFields(layout, [&object](const char* key, const auto& value) {
    object[key] = value;
  });
  VisitChangedFields(
      layout, [&object](const char* key, const char*, const auto& value) {
        object[key] = value;
      });
  return object;
}

json ToJson(const std::optional<Layout>& layout) {
  return layout.has_value() ? ToJson(*layout) : json();
}

absl::StatusOr<Layout> LayoutFromJson(const json& object) {
  Layout layout;
  bool good = object.is_object();
  const auto read = [&](const char* key, auto& value, bool required) {
    const auto it = good ? object.find(key) : object.end();
    if (it == object.end()) {
      good = good && !required;
    } else if (HasType(*it, value)) {
      it->get_to(value);
    } else {
      good = false;
    }
  };
  VisitPlainFields(layout, [&read](const char* key, auto& value) {
    read(key, value, /*required=*/true);
  });
  VisitOtherFields(layout, [&read](const char* key, const char*, auto& value) {
    read(key, value, /*required=*/false);
  });
  if (good) return layout;
  return absl::DataLossError(
      "checkpoint record: layout is missing, incomplete or mistyped");
}

}  // namespace shardshift::reshard
