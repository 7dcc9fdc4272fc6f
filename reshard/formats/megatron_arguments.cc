// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/megatron_arguments.h"

#include <initializer_list>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reshard/formats/torch_dtype.h"
#include "reshard/layout/stages.h"

namespace shardshift::reshard {
namespace {

using nlohmann::json;

constexpr int64_t kDefaultVocabularyMultiple = 128;

json TorchGlobal(absl::string_view name) {
  return {{"py", "global"}, {"name", absl::StrCat("torch ", name)}};
}

// Megatron has a whole number, or none.
json InterpolationFactor(const ModelConfig& model) {
  const double factor = model.rotary_seq_len_interpolation_factor;
  if (factor == 1) return nullptr;
  const auto whole = static_cast<int64_t>(factor);
  return static_cast<double>(whole) == factor ? json(whole) : json(factor);
}

json ModelArguments(const ModelConfig& model) {
  const bool is_rope = model.position_embedding == PositionEmbedding::kRope;
  return {
      {"num_layers", model.num_layers},
      {"encoder_num_layers", model.num_layers},
      {"hidden_size", model.hidden_size},
      {"ffn_hidden_size", model.ffn_hidden_size},
      {"num_attention_heads", model.num_attention_heads},
      {"group_query_attention",
       model.num_query_groups != model.num_attention_heads},
      {"num_query_groups", model.num_query_groups},
      {"kv_channels", model.kv_channels},
      {"max_position_embeddings", model.max_position_embeddings},
      {"position_embedding_type", is_rope ? "rope" : "learned_absolute"},
      {"add_position_embedding", true},
      {"use_rotary_position_embeddings", is_rope},
      {"rotary_base", model.rotary_base},
      {"rotary_percent", 1.0},
      {"rotary_interleaved", model.rotary_interleaved},
      {"rotary_seq_len_interpolation_factor", InterpolationFactor(model)},
      {"use_rope_scaling", model.use_rope_scaling},
      {"rope_scaling_factor", model.rope_scaling_factor},
      {"normalization", model.normalization == Normalization::kRmsNorm
                            ? "RMSNorm"
                            : "LayerNorm"},
      {"layernorm_epsilon", model.norm_epsilon},
      {"norm_epsilon", model.norm_epsilon},
      {"apply_layernorm_1p", false},
      {"swiglu", model.swiglu},
      {"squared_relu", false},
      {"add_bias_linear", model.add_bias_linear},
      {"add_qkv_bias", model.add_qkv_bias},
      {"qk_layernorm", model.qk_layernorm},
      {"untie_embeddings_and_output_weights",
       model.untie_embeddings_and_output_weights},
      {"apply_query_key_layer_scaling", false},
      {"attention_dropout", 0.0},
      {"hidden_dropout", 0.0},
      {"transformer_impl", "transformer_engine"},
      {"vocab_size", model.vocab_size},
      {"make_vocab_size_divisible_by", kDefaultVocabularyMultiple},
      {"tokenizer_type", nullptr},
      {"num_experts", nullptr},
  };
}

json ExpertArguments(const ModelConfig& model) {
  return {
      {"num_experts", model.num_experts},
      {"moe_layer_freq", 1},
      {"moe_ffn_hidden_size", model.moe_ffn_hidden_size},
      {"moe_router_topk", model.moe_router_topk},
      {"moe_router_pre_softmax", model.moe_router_pre_softmax},
      {"moe_router_score_function", "softmax"},
      {"moe_router_enable_expert_bias", false},
      {"moe_grouped_gemm", true},
      {"moe_shared_expert_intermediate_size",
       model.moe_shared_expert_intermediate_size == 0
           ? json()
           : json(model.moe_shared_expert_intermediate_size)},
      {"moe_shared_expert_gate", model.moe_shared_expert_gate},
  };
}

// What a run of ours was given, under Megatron's names. What the state does not
// have is Megatron's default.
struct Source {
  const char* argument;
  const char* object;  // of the state, and the key there
  const char* key;
  json absent;
};

json RunArguments(const CheckpointState& state) {
  const std::vector<Source> sources = {
      {"seq_length", "training", "seq_length",
       state.model.max_position_embeddings},
      {"global_batch_size", "training", "global_batch_size", 1},
      {"seed", "training", "seed", 1234},
      {"init_method_std", "training", "init_method_std", 0.02},
      {"lr", "schedule", "lr", nullptr},
      {"min_lr", "schedule", "min_lr", 0.0},
      {"lr_warmup_init", "schedule", "lr_warmup_init", 0.0},
      {"lr_decay_style", "schedule", "lr_decay_style", "linear"},
      {"adam_beta1", "optimizer", "adam_beta1", 0.9},
      {"adam_beta2", "optimizer", "adam_beta2", 0.999},
      {"adam_eps", "optimizer", "adam_eps", 1e-8},
      {"weight_decay", "optimizer", "weight_decay", 0.01},
      {"clip_grad", "optimizer", "clip_grad", 1.0},
  };
  json arguments = {{"optimizer", "adam"}, {"micro_batch_size", 1}};
  for (const Source& source : sources) {
    const json& found = StateValue(state.state, {source.object, source.key});
    arguments[source.argument] =
        found.is_primitive() && !found.is_null() ? found : source.absent;
  }
  return arguments;
}

json LayoutArguments(const ModelConfig& model, const Layout& layout) {
  const auto or_none = [](int64_t value) {
    return value == 0 ? json() : json(value);
  };
  // Of a stage, where these are interleaved.
  const int64_t chunks =
      std::ssize(LayersOfChunks(model, layout)) / layout.pipeline;
  const json interleaved = chunks == 1 ? json() : json(chunks);
  return {
      {"tensor_model_parallel_size", layout.tensor},
      {"pipeline_model_parallel_size", layout.pipeline},
      {"transformer_pipeline_model_parallel_size", layout.pipeline},
      {"virtual_pipeline_model_parallel_size", interleaved},
      {"num_virtual_stages_per_pipeline_rank", interleaved},
      {"num_layers_per_virtual_pipeline_stage", nullptr},
      {"decoder_first_pipeline_num_layers", or_none(layout.first_stage_layers)},
      {"decoder_last_pipeline_num_layers", or_none(layout.last_stage_layers)},
      {"account_for_embedding_in_pipeline_split", layout.account_for_embedding},
      {"account_for_loss_in_pipeline_split", layout.account_for_loss},
      {"pipeline_model_parallel_layout", nullptr},
      {"data_parallel_size", layout.data},
      {"context_parallel_size", 1},
      {"expert_model_parallel_size", layout.expert},
      {"expert_tensor_parallel_size", layout.expert_tensor_size()},
      {"world_size", layout.world_size()},
      {"use_distributed_optimizer", layout.distributed_optimizer},
  };
}

json PrecisionArguments(ckpt::DType weight_dtype) {
  return {{"bf16", weight_dtype == ckpt::DType::kBF16},
          {"fp16", weight_dtype == ckpt::DType::kF16},
          {"params_dtype", TorchGlobal(TorchName(weight_dtype))}};
}

}  // namespace

const json& StateValue(const json& state,
                       std::initializer_list<const char*> path) {
  static const json& missing = *new json();
  const json* value = &state;
  for (const char* key : path) {
    const auto it = value->is_object() ? value->find(key) : value->end();
    if (!value->is_object() || it == value->end()) return missing;
    value = &*it;
  }
  return *value;
}

json ArgumentsFor(const CheckpointState& state, const ArgumentsChoice& choice) {
  json arguments = StateValue(state.state, {"megatron", "args"});
  const bool is_megatrons = arguments.is_object();
  if (!is_megatrons) {
    arguments = ModelArguments(state.model);
    if (state.model.has_experts()) {
      arguments.update(ExpertArguments(state.model));
    }
    arguments.update(RunArguments(state));
    arguments["accumulate_allreduce_grads_in_fp32"] = true;
  }
  const json dtype = TorchGlobal(TorchName(choice.weight_dtype));
  if (!is_megatrons || arguments.value("params_dtype", json()) != dtype) {
    arguments.update(PrecisionArguments(choice.weight_dtype));
  }
  arguments.update(LayoutArguments(state.model, choice.layout));
  if (choice.layout.tensor == 1) arguments["sequence_parallel"] = false;
  arguments["ckpt_format"] = choice.format;
  if (choice.format == "torch_dist") {
    arguments["dist_ckpt_optim_fully_reshardable"] = true;
  }
  // A loader asks for no more than there is.
  arguments["no_save_rng"] = true;
  arguments["no_save_optim"] = choice.has_optimizer ? json() : json(true);
  arguments["iteration"] = choice.iteration;
  const json& samples =
      StateValue(state.state, {"progress", "consumed_samples"});
  arguments["consumed_train_samples"] =
      samples.is_number_integer() ? samples : json(0);
  return arguments;
}

}  // namespace shardshift::reshard
