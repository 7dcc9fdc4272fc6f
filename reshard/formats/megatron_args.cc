// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_args.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/pickle_json.h"
#include "reshard/layout/flat_buffer.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

// Reads arguments by name; the first error stays.
class Fields {
 public:
  explicit Fields(json arguments) : arguments_(std::move(arguments)) {}

  // Null if it is not there, as older versions have fewer.
  const json& Of(const char* name) const {
    static const json& missing = *new json();
    const auto it = arguments_.find(name);
    return it == arguments_.end() ? missing : *it;
  }

  void Int(const char* name, int64_t& value) {
    const json& found = Of(name);
    if (found.is_null()) return;
    if (!found.is_number_integer()) return Refuse(name, "an integer", found);
    value = found.get<int64_t>();
  }
  void NeededInt(const char* name, int64_t& value) {
    if (Of(name).is_null()) return Refuse(name, "an integer", Of(name));
    Int(name, value);
  }
  void Double(const char* name, double& value) {
    const json& found = Of(name);
    if (found.is_null()) return;
    if (!found.is_number()) return Refuse(name, "a number", found);
    value = found.get<double>();
  }
  void Bool(const char* name, bool& value) {
    const json& found = Of(name);
    if (found.is_null()) return;
    if (!found.is_boolean()) return Refuse(name, "true or false", found);
    value = found.get<bool>();
  }
  std::string Text(const char* name) const {
    return Of(name).is_string() ? Of(name).get<std::string>() : std::string();
  }

  void Refuse(const char* name, absl::string_view expected, const json& found) {
    status_.Update(absl::DataLossError(absl::StrCat(
        "args.", name, " is ", found.dump(), ", expected ", expected)));
  }
  void Update(absl::Status status) { status_.Update(std::move(status)); }

  const absl::Status& status() const { return status_; }
  json TakeArguments() { return std::move(arguments_); }

 private:
  json arguments_;
  absl::Status status_;
};

// An argument that must have one value, if it is there at all.
struct Demand {
  const char* name;
  json value;
};

absl::Status CheckModelKind(const Fields& fields) {
  static const auto& demands = *new std::vector<Demand>{
      {"apply_layernorm_1p", false},
      {"layernorm_zero_centered_gamma", false},
      {"squared_relu", false},
      {"quick_geglu", false},
      {"glu_linear_offset", 0.0},
      {"activation_func_clamp_value", json()},
      {"rotary_percent", 1.0},
      {"rope_type", "rope"},
      {"no_rope_freq", json()},
      {"window_size", json()},
      {"softmax_type", "vanilla"},
      {"qk_l2_norm", false},
      {"apply_residual_connection_post_layernorm", false},
      {"multi_latent_attention", false},
      {"attention_output_gate", false},
      {"linear_attention_freq", json()},
      {"mtp_num_layers", json()},
      {"heterogeneous_layers_config_path", json()},
      {"moe_layer_freq", 1},
      {"moe_router_score_function", "softmax"},
      {"moe_router_enable_expert_bias", false},
      {"moe_router_num_groups", json()},
      {"moe_router_topk_scaling_factor", json()},
      {"moe_latent_size", json()},
      // Rows of gate and up in turn, in blocks of so many.
      {"moe_mlp_glu_interleave_size", json()},
      {"pipeline_model_parallel_layout", json()}};
  for (const auto& [name, value] : demands) {
    const json& found = fields.Of(name);
    if (found.is_null() || found == value) continue;
    return absl::UnimplementedError(absl::StrCat(
        "args.", name, " is ", found.dump(),
        ", of which no model here is; "
        "`reshard --generic` takes the tensors under their own names"));
  }
  return absl::OkStatus();
}

void ReadRotation(Fields& fields, ModelConfig& model) {
  model.position_embedding = PositionEmbedding::kRope;
  fields.Bool("rotary_interleaved", model.rotary_interleaved);
  fields.Double("rotary_seq_len_interpolation_factor",
                model.rotary_seq_len_interpolation_factor);
  fields.Bool("use_rope_scaling", model.use_rope_scaling);
  // There whether it is used or not.
  if (model.use_rope_scaling) {
    fields.Double("rope_scaling_factor", model.rope_scaling_factor);
  }
}

void ReadModel(Fields& fields, ModelConfig& model) {
  fields.NeededInt("num_layers", model.num_layers);
  fields.NeededInt("hidden_size", model.hidden_size);
  fields.NeededInt("ffn_hidden_size", model.ffn_hidden_size);
  fields.NeededInt("num_attention_heads", model.num_attention_heads);
  model.num_query_groups = model.num_attention_heads;
  bool grouped = false;
  fields.Bool("group_query_attention", grouped);
  if (grouped) fields.NeededInt("num_query_groups", model.num_query_groups);
  fields.NeededInt("kv_channels", model.kv_channels);
  fields.NeededInt("max_position_embeddings", model.max_position_embeddings);
  fields.NeededInt("padded_vocab_size", model.padded_vocab_size);
  // The name in older versions, and in newer ones.
  fields.Double("norm_epsilon", model.norm_epsilon);
  fields.Double("layernorm_epsilon", model.norm_epsilon);
  fields.Double("rotary_base", model.rotary_base);
  fields.Bool("swiglu", model.swiglu);
  fields.Bool("add_bias_linear", model.add_bias_linear);
  fields.Bool("add_qkv_bias", model.add_qkv_bias);
  fields.Bool("qk_layernorm", model.qk_layernorm);
  fields.Bool("untie_embeddings_and_output_weights",
              model.untie_embeddings_and_output_weights);
  if (fields.Text("normalization") == "RMSNorm") {
    model.normalization = Normalization::kRmsNorm;
  }
  const std::string position = fields.Text("position_embedding_type");
  if (position == "rope") {
    ReadRotation(fields, model);
  } else if (position != "learned_absolute") {
    fields.Refuse("position_embedding_type", "learned_absolute or rope",
                  fields.Of("position_embedding_type"));
  }
  fields.Int("num_experts", model.num_experts);
  if (!model.has_experts()) return;
  model.moe_ffn_hidden_size = model.ffn_hidden_size;
  fields.Int("moe_ffn_hidden_size", model.moe_ffn_hidden_size);
  fields.Int("moe_router_topk", model.moe_router_topk);
  fields.Bool("moe_router_pre_softmax", model.moe_router_pre_softmax);
  fields.Int("moe_shared_expert_intermediate_size",
             model.moe_shared_expert_intermediate_size);
  fields.Bool("moe_shared_expert_gate", model.moe_shared_expert_gate);
}

void ReadVocabulary(Fields& fields, std::optional<int64_t> known,
                    ModelConfig& model) {
  fields.Int("vocab_size", model.vocab_size);
  if (model.vocab_size == 0) {
    if (known.has_value()) {
      model.vocab_size = *known;
      return;
    }
    fields.Update(absl::FailedPreconditionError(absl::StrCat(
        "args.vocab_size is not set, and the embedding is padded to ",
        model.padded_vocab_size, "; tell the true one with --vocab-size")));
  }
  // Its vocabulary has one more token than the flag says, for the end of a
  // document.
  if (fields.Text("tokenizer_type") == "NullTokenizer") ++model.vocab_size;
  if (known.value_or(model.vocab_size) != model.vocab_size) {
    fields.Update(absl::InvalidArgumentError(
        absl::StrCat("--vocab-size is ", *known, ", by the arguments it is ",
                     model.vocab_size)));
  }
}

void ReadLayout(Fields& fields, Layout& layout) {
  fields.NeededInt("tensor_model_parallel_size", layout.tensor);
  fields.NeededInt("pipeline_model_parallel_size", layout.pipeline);
  fields.NeededInt("data_parallel_size", layout.data);
  fields.Bool("use_distributed_optimizer", layout.distributed_optimizer);
  fields.Int("expert_model_parallel_size", layout.expert);
  fields.Int("expert_tensor_parallel_size", layout.expert_tensor);
  if (layout.expert_tensor == layout.tensor) layout.expert_tensor = 0;
  fields.Int("virtual_pipeline_model_parallel_size", layout.virtual_stages);
  fields.Int("decoder_first_pipeline_num_layers", layout.first_stage_layers);
  fields.Int("decoder_last_pipeline_num_layers", layout.last_stage_layers);
  fields.Bool("account_for_embedding_in_pipeline_split",
              layout.account_for_embedding);
  fields.Bool("account_for_loss_in_pipeline_split", layout.account_for_loss);
}

}  // namespace

absl::StatusOr<MegatronArgs> ParseMegatronArgs(
    json arguments, std::optional<int64_t> vocab_size) {
  Fields fields(std::move(arguments));
  MegatronArgs result;
  SS_RETURN_IF_ERROR(CheckModelKind(fields));
  ReadModel(fields, result.model);
  ReadVocabulary(fields, vocab_size, result.model);
  ReadLayout(fields, result.layout);
  fields.Int("iteration", result.iteration);
  fields.Int("consumed_train_samples", result.consumed_samples);
  if (result.consumed_samples < 0) {
    fields.Refuse("consumed_train_samples", "0 or more",
                  fields.Of("consumed_train_samples"));
  }
  bool overlaps = false;
  fields.Bool("overlap_grad_reduce", overlaps);
  if (overlaps) {
    int64_t bucket_size =
        DefaultBucketSize(std::max<int64_t>(result.layout.data, 1));
    fields.Int("ddp_bucket_size", bucket_size);
    result.bucket_size = bucket_size;
  }
  SS_RETURN_IF_ERROR(fields.status());
  SS_RETURN_IF_ERROR(Validate(result.model));
  SS_RETURN_IF_ERROR(Validate(result.model, result.layout));
  result.arguments = fields.TakeArguments();
  return result;
}

absl::StatusOr<MegatronArgs> ParseMegatronArgs(
    const PickleValue& args, std::optional<int64_t> vocab_size) {
  SS_ASSIGN_OR_RETURN(const auto attributes, args.Attributes());
  json arguments = json::object();
  for (const auto& [key, value] : attributes) {
    SS_ASSIGN_OR_RETURN(const absl::string_view name, key.AsString());
    // No argument that is read is of a kind that cannot be kept.
    absl::StatusOr<json> kept = PickleToJson(value);
    if (kept.ok()) arguments[std::string(name)] = *std::move(kept);
  }
  return ParseMegatronArgs(std::move(arguments), vocab_size);
}

LayerStyle LayerStyleOf(const json& arguments) {
  LayerStyle style;
  style.fuses_norms = arguments.value("transformer_impl", json()) != "local";
  style.groups_experts =
      style.fuses_norms && arguments.value("moe_grouped_gemm", json()) == true;
  return style;
}

}  // namespace shardshift::reshard
