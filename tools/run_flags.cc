// SPDX-License-Identifier: Apache-2.0
#include "tools/run_flags.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "reshard/layout/stages.h"
#include "tools/flag_group.h"
#include "tools/training_flags.h"

namespace shardshift {
namespace {

void AddMixtureFlags(CLI::App& app, ModelFlags& flags) {
  FlagGroup group(app, "Experts");
  group.Int("--num-experts", flags.num_experts, 1,
            "experts of a layer, in place of its feed-forward block (none)");
  app.add_option("--moe-layer-freq", flags.moe_layer_freq,
                 "experts in every N-th layer from the first on, or a 0 or 1 "
                 "for each layer: '[0,1,1,1]', '([0]*1+[1]*3)' (1)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("N|LIST")
      ->group("Experts");
  group.Int("--moe-ffn-hidden-size", flags.moe_ffn_hidden_size, 1,
            "width of an expert (--ffn-hidden-size)");
  group.Int("--moe-router-topk", flags.moe_router_topk, 1,
            "experts a token goes to (2)");
  group.Int("--moe-shared-expert-intermediate-size",
            flags.moe_shared_expert_intermediate_size, 1,
            "width of an expert that all tokens go to (none)");
  group.Switch("--moe-shared-expert-gate,!--no-moe-shared-expert-gate",
               flags.moe_shared_expert_gate,
               "weigh the output of the shared expert");
  group.Switch("--moe-router-pre-softmax,!--no-moe-router-pre-softmax",
               flags.moe_router_pre_softmax,
               "weigh experts by a softmax over all of them, not over those "
               "chosen");
}

// "(4095,0)" or "4095,0": how many positions before and after its own one
// attends to, -1 for all. As a sliding window, 0 for all.
std::optional<int64_t> ParseWindow(absl::string_view text) {
  absl::ConsumePrefix(&text, "(");
  absl::ConsumeSuffix(&text, ")");
  const std::vector<std::string> sides = absl::StrSplit(text, ',');
  int64_t before = 0;
  if (sides.size() != 2 || !absl::SimpleAtoi(sides[0], &before) ||
      absl::StripAsciiWhitespace(sides[1]) != "0" || before < -1 ||
      before >= kMaxInt) {
    return std::nullopt;
  }
  return before + 1;
}

void AddAttentionFlags(CLI::App& app, ModelFlags& flags) {
  FlagGroup group(app, "Model");
  group.Switch("--qk-layernorm,!--no-qk-layernorm", flags.qk_layernorm,
               "norms of query and key heads, before they are rotated");
  group.Number("--rotary-base", flags.rotary_base, 1.0, kMaxNumber,
               "base of the rotary embedding (10000)");
  group.Switch("--rotary-interleaved,!--no-rotary-interleaved",
               flags.rotary_interleaved,
               "rotate neighbours of a head, not what lies half a head apart");
  group.Number("--rotary-seq-len-interpolation-factor",
               flags.rotary_seq_len_interpolation_factor, 1e-6, kMaxNumber,
               "divide positions by this before they are rotated (1)");
  group.Switch("--use-rope-scaling,!--no-use-rope-scaling",
               flags.use_rope_scaling, "the rotation of Llama 3");
  group.Number("--rope-scaling-factor", flags.rope_scaling_factor, 1e-6,
               kMaxNumber, "its factor (8)");
  const auto set = [&flags](const std::string& text) {
    flags.sliding_window = ParseWindow(text);
    if (flags.sliding_window.has_value()) return;
    throw CLI::ValidationError(
        "--window-size is " + text +
        ", expected positions before, or -1 for all, and 0 after: 4095,0");
  };
  app.add_option_function<std::string>(
         "--window-size", set,
         "positions before and after its own that one attends to: 4095,0 "
         "(all before)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("N,0")
      ->group("Model");
}

void AddModelFlags(CLI::App& app, ModelFlags& flags) {
  FlagGroup group(app, "Model");
  app.add_option("--hf-config", flags.hf_config,
                 "config.json of a Hugging Face model, which says all of this "
                 "group; flags beside it must not contradict it")
      ->type_name("FILE")
      ->group("Model");
  group.Int("--num-layers", flags.num_layers, 1, "transformer layers");
  group.Int("--hidden-size", flags.hidden_size, 1, "width of the model");
  group.Int("--ffn-hidden-size", flags.ffn_hidden_size, 1,
            "width of the feed-forward block (4 x hidden; with --swiglu 8/3 "
            "x hidden, down to a multiple of 64)");
  group.Int("--num-attention-heads", flags.num_attention_heads, 1,
            "query heads");
  group.Switch("--group-query-attention,!--no-group-query-attention",
               flags.group_query_attention,
               "fewer key/value heads than query heads");
  group.Int("--num-query-groups", flags.num_query_groups, 1,
            "key/value heads (as many as query heads; with "
            "--group-query-attention 1)");
  group.Int("--kv-channels", flags.kv_channels, 1,
            "width of a head (hidden / heads)");
  group.Int("--max-position-embeddings", flags.max_position_embeddings, 1,
            "positions the model knows (the sequence length)");
  group.Int("--vocab-size", flags.vocab_size, 2,
            "tokens of the vocabulary, before padding");
  group.Int("--make-vocab-size-divisible-by",
            flags.make_vocab_size_divisible_by, 1,
            "the padded vocabulary is a multiple of this times the tensor "
            "granularity (128)");
  group.Choice("--normalization", flags.normalization, {"LayerNorm", "RMSNorm"},
               "LayerNorm (default) or RMSNorm");
  group.Number("--norm-epsilon", flags.norm_epsilon, 1e-30, 1.0,
               "epsilon of the norms (1e-5)");
  group.Switch("--swiglu,!--no-swiglu", flags.swiglu,
               "gated feed-forward block in place of GeLU");
  group.Switch("--disable-bias-linear,!--no-disable-bias-linear",
               flags.disable_bias_linear, "no biases in linear layers");
  group.Switch("--add-qkv-bias,!--no-add-qkv-bias", flags.add_qkv_bias,
               "a bias in the QKV projection all the same");
  group.Choice("--position-embedding-type", flags.position_embedding_type,
               {"learned_absolute", "rope"},
               "learned_absolute (default) or rope");
  group.Switch(
      "--untie-embeddings-and-output-weights,"
      "!--no-untie-embeddings-and-output-weights",
      flags.untie_embeddings, "an output matrix of its own");
}

void AddOptimizerFlags(CLI::App& app, RunFlags& flags) {
  FlagGroup group(app, "Optimizer and schedule");
  group.Number("--lr", flags.lr, 0, kMaxNumber, "highest learning rate");
  group.Number("--min-lr", flags.min_lr, 0, kMaxNumber,
               "learning rate at the end of the decay (0)");
  group.Number("--lr-warmup-init", flags.lr_warmup_init, 0, kMaxNumber,
               "learning rate at the start of the warm-up (0)");
  group.Choice("--lr-decay-style", flags.lr_decay_style,
               {"constant", "linear", "cosine", "inverse-square-root"},
               "constant, linear (default), cosine or inverse-square-root");
  group.Int("--lr-decay-iters", flags.lr_decay_iters, 1,
            "iterations to decay over (--train-iters of the first start)");
  group.Int("--lr-warmup-iters", flags.lr_warmup_iters, 0,
            "iterations of linear warm-up (0)");
  group.Number("--weight-decay", flags.weight_decay, 0, kMaxNumber,
               "decay of weight matrices (0.01)");
  group.Number("--adam-beta1", flags.adam_beta1, 0, 0.9999999, "(0.9)");
  group.Number("--adam-beta2", flags.adam_beta2, 0, 0.9999999, "(0.999)");
  group.Number("--adam-eps", flags.adam_eps, 1e-30, 1.0, "(1e-8)");
  group.Number("--clip-grad", flags.clip_grad, 0, kMaxNumber,
               "largest gradient norm (1.0); 0 clips nothing");
  app.add_flag("--override-opt-param-scheduler", flags.override_schedule,
               "let a resumed run change optimizer and schedule")
      ->group("Optimizer and schedule");
}

void AddExpertFlags(CLI::App& app, LayoutFlags& flags) {
  FlagGroup group(app, "Layout");
  group.Int("--expert-model-parallel-size,--ep", flags.expert, 1,
            "ranks that the experts of a layer are handed out to (1)");
  group.Int("--expert-tensor-parallel-size,--etp", flags.expert_tensor, 1,
            "ranks that each expert is cut over "
            "(--tensor-model-parallel-size)");
}

void AddStageFlags(CLI::App& app, LayoutFlags& flags) {
  FlagGroup group(app, "Layout");
  group.Int("--num-layers-per-virtual-pipeline-stage",
            flags.layers_per_virtual_stage, 1,
            "interleaved stages: layers of each chunk of a stage");
  group.Int("--num-virtual-stages-per-pipeline-rank", flags.virtual_stages, 1,
            "interleaved stages: chunks of each stage");
  group.Int("--decoder-first-pipeline-num-layers", flags.first_stage_layers, 1,
            "layers of the first stage; the others share the rest evenly");
  group.Int("--decoder-last-pipeline-num-layers", flags.last_stage_layers, 1,
            "layers of the last stage");
  group.Switch("--account-for-embedding-in-pipeline-split",
               flags.account_for_embedding,
               "the embedding counts as a layer of the first stage");
  group.Switch("--account-for-loss-in-pipeline-split", flags.account_for_loss,
               "the output layer counts as a layer of the last stage");
  const auto set = [&flags](const std::string& text) {
    absl::StatusOr<std::vector<int64_t>> sizes =
        reshard::ParseStageLayout(text);
    if (!sizes.ok()) {
      throw CLI::ValidationError(std::string(sizes.status().message()));
    }
    flags.stage_layers = *std::move(sizes);
  };
  app.add_option_function<std::string>(
         "--pipeline-model-parallel-layout", set,
         "all stages spelled out, '|' between them: E embedding, t layer, L "
         "loss; (tt|)*3 repeats")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("TEXT")
      ->group("Layout");
}

}  // namespace

reshard::Layout ApplyLayout(const LayoutFlags& flags, reshard::Layout layout) {
  layout.tensor = flags.tensor.value_or(layout.tensor);
  layout.pipeline = flags.pipeline.value_or(layout.pipeline);
  layout.data = flags.data.value_or(layout.data);
  layout.distributed_optimizer =
      flags.distributed_optimizer.value_or(layout.distributed_optimizer);
  layout.expert = flags.expert.value_or(layout.expert);
  layout.expert_tensor = flags.expert_tensor.value_or(layout.expert_tensor);
  layout.layers_per_virtual_stage =
      flags.layers_per_virtual_stage.value_or(layout.layers_per_virtual_stage);
  layout.virtual_stages = flags.virtual_stages.value_or(layout.virtual_stages);
  layout.first_stage_layers =
      flags.first_stage_layers.value_or(layout.first_stage_layers);
  layout.last_stage_layers =
      flags.last_stage_layers.value_or(layout.last_stage_layers);
  layout.account_for_embedding =
      flags.account_for_embedding.value_or(layout.account_for_embedding);
  layout.account_for_loss =
      flags.account_for_loss.value_or(layout.account_for_loss);
  layout.stage_layers = flags.stage_layers.value_or(layout.stage_layers);
  return layout;
}

void AddLayoutFlags(CLI::App& app, LayoutFlags& flags) {
  FlagGroup group(app, "Layout");
  group.Int("--tensor-model-parallel-size,--tensor-parallel-size,--tp",
            flags.tensor, 1, "tensor-parallel ranks");
  group.Int("--pipeline-model-parallel-size,--pipeline-parallel-size,--pp",
            flags.pipeline, 1, "pipeline stages");
  group.Int("--data-parallel-size,--dp", flags.data, 1,
            "data-parallel replicas");
  group.Switch("--use-distributed-optimizer,!--no-use-distributed-optimizer",
               flags.distributed_optimizer,
               "cut the optimizer state over the data-parallel ranks");
  AddStageFlags(app, flags);
  AddExpertFlags(app, flags);
}

void AddSequenceParallelFlag(CLI::App& app, bool& flag) {
  app.add_flag("--sequence-parallel", flag,
               "accepted; checkpoints do not depend on it")
      ->group("Layout");
}

void AddCodecFlag(CLI::App& app, ckpt::Codec& codec) {
  const auto set = [&codec](const std::string& name) {
    codec = name == "zstd" ? ckpt::Codec::kShuffleZstd : ckpt::Codec::kNone;
  };
  app.add_option_function<std::string>(
         "--codec", set, "how tensors are stored: none (default) or zstd")
      ->check(CLI::IsMember({"none", "zstd"}).description(""))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("NAME");
}

void AddRunFlags(CLI::App& app, RunFlags& flags, FlagScope scope) {
  AddLayoutFlags(app, flags.layout);
  if (scope == FlagScope::kTrain) AddTrainingFlags(app, flags);
  AddModelFlags(app, flags.model);
  AddAttentionFlags(app, flags.model);
  AddMixtureFlags(app, flags.model);
  FlagGroup group(app, "Run");
  group.Int("--seq-length", flags.seq_length, 1, "tokens of a sample");
  group.Int("--micro-batch-size", flags.micro_batch_size, 1,
            "samples a rank works on at a time");
  group.Int("--global-batch-size", flags.global_batch_size, 1,
            "samples of an iteration (micro-batch x data-parallel)");
  group.Int("--train-iters", flags.train_iters, 0,
            "iterations of the whole run");
  group.Int("--seed", flags.seed, 0, "of weights and data order (1234)");
  group.Number("--init-method-std", flags.init_method_std, 0, 1e6,
               "standard deviation of initial weights (0.02)");
  group.Number("--attention-dropout", flags.attention_dropout, 0, 0.999,
               "share of attention probabilities to drop (0)");
  group.Number("--hidden-dropout", flags.hidden_dropout, 0, 0.999,
               "share to drop of what embedding, attention and feed-forward "
               "blocks put out (0)");
  group.Int("--tensor-granularity", flags.tensor_granularity, 1,
            "leaves of every sum that tensor parallelism can split; a "
            "constant of the run (8, or the largest that fits)");
  group.Int("--data-granularity", flags.data_granularity, 1,
            "groups of samples a batch is summed in; a constant of the run "
            "(the largest divisor of the batch up to 16, or up to "
            "--data-parallel-size if that is more)");
  AddOptimizerFlags(app, flags);
}

}  // namespace shardshift
