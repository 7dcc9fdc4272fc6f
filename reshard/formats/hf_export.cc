// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_export.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/hf_index.h"
#include "reshard/formats/hf_shards.h"
#include "reshard/formats/hf_target.h"
#include "reshard/layout/content.h"

namespace shardshift::reshard {
namespace {

// What a run would need and a folder cannot hold.
void NameLeftOut(const CheckpointState& state, Content content,
                 ExportPlan& plan) {
  if (content == Content::kTraining) {
    plan.left_out.emplace_back("optimizer state (exp_avg, exp_avg_sq)");
  }
  NameState(state.state, {"model", "huggingface"}, plan.left_out);
}

}  // namespace

absl::Status AddShards(const std::vector<SafetensorsEntry>& entries,
                       const std::vector<LogicalTensor>& tensors,
                       const ExportChoice& choice, ExportPlan& plan) {
  absl::StatusOr<int64_t> max_bytes = ParseShardBytes(choice.max_shard_size);
  if (!max_bytes.ok()) return Annotate(max_bytes.status(), "--max-shard-size");
  std::vector<int64_t> sizes;
  int64_t total_bytes = 0;
  int64_t total_elements = 0;
  for (const SafetensorsEntry& entry : entries) {
    const int64_t num_elements =
        ckpt::NumElements(ckpt::WholeBox(entry.stored.shape));
    sizes.push_back(num_elements * ckpt::ItemSize(entry.dtype));
    total_bytes += sizes.back();
    total_elements += num_elements;
  }
  const auto shards = PlanShards(sizes, *max_bytes);
  std::vector<HfPlace> places;
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name =
        ShardName(static_cast<int64_t>(s), static_cast<int64_t>(shards.size()));
    std::vector<SafetensorsEntry> in_file;
    for (const int64_t e : shards[s]) {
      in_file.push_back(entries[e]);
      places.push_back({entries[e].stored.name, name});
    }
    SS_ASSIGN_OR_RETURN(ckpt::ForeignFile file,
                        LayOutSafetensorsFile(name, in_file, tensors));
    plan.files.push_back(std::move(file));
  }
  if (shards.size() > 1) {
    plan.texts.push_back(
        {kHfIndexName, HfIndexText(places, total_bytes, total_elements)});
  }
  return absl::OkStatus();
}

absl::StatusOr<ExportPlan> PlanHfExport(const ckpt::Reader& source,
                                        const ExportChoice& choice) {
  if (choice.choice.select != "*") {
    return absl::InvalidArgumentError(
        "--select makes no whole model, as a Hugging Face folder has to be; "
        "with --generic it does");
  }
  SS_ASSIGN_OR_RETURN(const WholeModel model, ReadWholeModel(source));
  const auto& [state, tensors, content] = model;
  SS_ASSIGN_OR_RETURN(const HfTarget target,
                      PlanHfTarget(state, HfForm::kFiles));
  ExportPlan plan;
  SS_ASSIGN_OR_RETURN(const std::vector<ckpt::DType> dtypes,
                      AddHfWeights(source, content, tensors, target,
                                   choice.choice.dtype, plan));
  std::vector<SafetensorsEntry> entries;
  entries.reserve(dtypes.size());
  for (size_t i = 0; i < dtypes.size(); ++i) {
    entries.push_back({target.stored[i], dtypes[i], kWeightRoles[0]});
  }
  SS_RETURN_IF_ERROR(AddShards(entries, tensors, choice, plan));
  SS_ASSIGN_OR_RETURN(std::string config,
                      HfConfigText(target, state.model, dtypes.front()));
  plan.texts.push_back({kHfConfigName, std::move(config)});
  NameLeftOut(state, content, plan);
  return plan;
}

}  // namespace shardshift::reshard
