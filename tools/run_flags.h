// The flags that describe a run: layout, model, optimizer, schedule, numerics.
// `ckpt synth` takes them all, `train` those it can run, `reshard` those of the
// layout.
// A flag that is not given stays empty: the checkpoint's value or the default
// holds (resolve_run.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RUN_FLAGS_H_
#define SHARDSHIFT_TOOLS_RUN_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/format/table.h"
#include "reshard/layout/layout.h"

namespace shardshift {

struct LayoutFlags {
  std::optional<int64_t> tensor;
  std::optional<int64_t> pipeline;
  std::optional<int64_t> data;
  std::optional<bool> distributed_optimizer;
  std::optional<int64_t> expert;
  std::optional<int64_t> expert_tensor;
  std::optional<int64_t> layers_per_virtual_stage;
  std::optional<int64_t> virtual_stages;
  std::optional<int64_t> first_stage_layers;
  std::optional<int64_t> last_stage_layers;
  std::optional<bool> account_for_embedding;
  std::optional<bool> account_for_loss;
  std::optional<std::vector<int64_t>> stage_layers;
};

// A flag that does not work in `train` yet is none of its flags.
enum class FlagScope { kTrain, kCheckpoints };

// The layout with the given axes replaced.
reshard::Layout ApplyLayout(const LayoutFlags& flags, reshard::Layout layout);

struct ModelFlags {
  std::optional<std::string> hf_config;
  std::optional<int64_t> num_layers;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> ffn_hidden_size;
  std::optional<int64_t> num_attention_heads;
  std::optional<bool> group_query_attention;
  std::optional<int64_t> num_query_groups;
  std::optional<int64_t> kv_channels;
  std::optional<int64_t> max_position_embeddings;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> make_vocab_size_divisible_by;
  std::optional<std::string> normalization;
  std::optional<double> norm_epsilon;
  std::optional<bool> swiglu;
  std::optional<bool> disable_bias_linear;
  std::optional<bool> add_qkv_bias;
  std::optional<std::string> position_embedding_type;
  std::optional<double> rotary_base;
  std::optional<bool> rotary_interleaved;
  std::optional<double> rotary_seq_len_interpolation_factor;
  std::optional<bool> use_rope_scaling;
  std::optional<double> rope_scaling_factor;
  std::optional<int64_t> sliding_window;  // --window-size's first, plus 1
  std::optional<bool> untie_embeddings;
  std::optional<bool> qk_layernorm;
  std::optional<int64_t> num_experts;
  std::optional<std::string> moe_layer_freq;
  std::optional<int64_t> moe_ffn_hidden_size;
  std::optional<int64_t> moe_router_topk;
  std::optional<int64_t> moe_shared_expert_intermediate_size;
  std::optional<bool> moe_shared_expert_gate;
  std::optional<bool> moe_router_pre_softmax;
};

// How ranks keep activations; `train` alone has these.
struct ActivationFlags {
  std::optional<bool> sequence_parallel;
  std::optional<std::string> recompute_granularity;
  std::optional<std::string> recompute_method;
  std::optional<int64_t> recompute_num_layers;
};

// In which precision, and how fp16 is kept in range; `train` alone, too.
struct PrecisionFlags {
  std::optional<std::string> precision;  // "fp32", "bf16", "fp16"
  std::optional<double> loss_scale;
  std::optional<double> initial_loss_scale;
  std::optional<double> min_loss_scale;
  std::optional<int64_t> loss_scale_window;
  std::optional<int64_t> hysteresis;
};

struct RunFlags {
  LayoutFlags layout;
  ActivationFlags activations;
  PrecisionFlags precision;
  ModelFlags model;
  std::optional<int64_t> seq_length;
  std::optional<int64_t> micro_batch_size;
  std::optional<int64_t> global_batch_size;
  std::optional<int64_t> train_iters;
  std::optional<int64_t> seed;
  std::optional<double> init_method_std;
  std::optional<double> attention_dropout;
  std::optional<double> hidden_dropout;
  std::optional<std::string> moe_router_load_balancing_type;
  std::optional<double> moe_aux_loss_coeff;
  std::optional<double> moe_z_loss_coeff;
  std::optional<double> lr;
  std::optional<double> min_lr;
  std::optional<double> lr_warmup_init;
  std::optional<std::string> lr_decay_style;
  std::optional<int64_t> lr_decay_iters;
  std::optional<int64_t> lr_warmup_iters;
  std::optional<double> weight_decay;
  std::optional<double> adam_beta1;
  std::optional<double> adam_beta2;
  std::optional<double> adam_eps;
  std::optional<double> clip_grad;
  std::optional<int64_t> tensor_granularity;
  std::optional<int64_t> data_granularity;
  bool override_schedule = false;
};

void AddLayoutFlags(CLI::App& app, LayoutFlags& flags);
// --sequence-parallel of Megatron's command lines, which changes nothing.
void AddSequenceParallelFlag(CLI::App& app, bool& flag);
// --codec: how the checkpoint to be written stores its tensors.
void AddCodecFlag(CLI::App& app, ckpt::Codec& codec);
void AddRunFlags(CLI::App& app, RunFlags& flags, FlagScope scope);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RUN_FLAGS_H_
