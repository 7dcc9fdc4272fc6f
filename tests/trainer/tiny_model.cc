// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/tiny_model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "kernels/kernels.h"
#include "trainer/comm/thread_communicator.h"

namespace shardshift::trainer {
namespace {

RunConfig Tiny() {
  RunConfig config;
  config.model = {.num_layers = 4,
                  .hidden_size = 32,
                  .ffn_hidden_size = 64,
                  .num_attention_heads = 8,
                  .num_query_groups = 8,
                  .kv_channels = 4,
                  .vocab_size = 61,
                  .padded_vocab_size = 64,
                  .max_position_embeddings = 20};
  config.seq_length = 16;
  config.global_batch_size = 16;
  config.init_method_std = 0.1;
  config.schedule = {.style = LrDecayStyle::kCosine,
                     .max_lr = 1e-2,
                     .min_lr = 1e-3,
                     .init_lr = 2e-3,
                     .warmup_samples = 3 * config.global_batch_size,
                     .decay_samples = 20 * config.global_batch_size};
  config.numerics = {.tensor_granularity = 8, .data_granularity = 16};
  return config;
}

std::string UniquePath(const std::string& stem) {
  static std::atomic<int> count = 0;
  return absl::StrCat(::testing::TempDir(), stem, ".", getpid(), ".", ++count);
}

absl::StatusOr<std::vector<std::string>> ReadBits(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const nlohmann::json line = nlohmann::json::parse(text);
    lines.push_back(
        absl::StrCat(line["iteration"].get<int64_t>(), " ",
                     line["lm_loss_bits"].get<std::string>(), " ",
                     line["grad_norm_bits"].get<std::string>(), " ",
                     static_cast<int64_t>(line["loss_scale"].get<double>()),
                     " ", line["skipped"].get<int64_t>()));
  }
  return lines;
}

}  // namespace

RunConfig TinyGpt() { return Tiny(); }

RunConfig TinyLlama() {
  RunConfig config = Tiny();
  config.model.num_query_groups = 2;
  config.model.normalization = reshard::Normalization::kRmsNorm;
  config.model.position_embedding = reshard::PositionEmbedding::kRope;
  config.model.swiglu = true;
  config.model.add_bias_linear = false;
  config.model.untie_embeddings_and_output_weights = true;
  return config;
}

RunConfig TinyQwen() {
  RunConfig config = TinyLlama();
  config.model.qk_layernorm = true;
  config.model.add_qkv_bias = true;
  config.model.sliding_window = 5;
  config.model.untie_embeddings_and_output_weights = false;
  return config;
}

RunConfig TinyMultiQuery() {
  RunConfig config = TinyLlama();
  config.model.num_query_groups = 1;
  // The fused width is one that eight leaves divide.
  config.model.kv_channels = 8;
  config.model.add_bias_linear = true;
  config.model.rotary_interleaved = true;
  config.model.use_rope_scaling = true;
  config.model.rope_original_max_position_embeddings = 16;
  config.attention_dropout = 0.1;
  config.hidden_dropout = 0.2;
  return config;
}

RunConfig TinyExactGelu() {
  RunConfig config = Tiny();
  config.model.num_query_groups = 4;
  config.model.exact_gelu = true;
  config.model.qk_layernorm = true;
  config.model.position_embedding = reshard::PositionEmbedding::kRope;
  config.model.rotary_seq_len_interpolation_factor = 3;
  return config;
}

RunConfig TinyMixtral() {
  RunConfig config = TinyLlama();
  config.model.num_experts = 4;
  config.model.moe_ffn_hidden_size = 32;
  config.model.moe_router_topk = 2;
  config.moe_loss = {.load_balancing = LoadBalancing::kLoadBalancingLoss,
                     .aux_coeff = 0.05};
  return config;
}

RunConfig TinyQwenMoe() {
  RunConfig config = TinyMixtral();
  config.model.qk_layernorm = true;
  config.model.swiglu = false;
  config.model.untie_embeddings_and_output_weights = false;
  config.model.moe_router_pre_softmax = true;
  config.model.dense_layers = {1};
  config.model.moe_shared_expert_intermediate_size = 48;
  config.model.moe_shared_expert_gate = true;
  config.moe_loss = {.aux_coeff = 0.05, .z_coeff = 0.01};
  config.hidden_dropout = 0.1;
  return config;
}

std::vector<TinyFamily> TinyFamilies() {
  return {{"Gpt", TinyGpt()},
          {"Llama", TinyLlama()},
          {"Qwen", TinyQwen()},
          {"MultiQuery", TinyMultiQuery()},
          {"ExactGelu", TinyExactGelu()}};
}
namespace {

// Ways to hand out four layers to stages other than evenly and at once.
std::vector<reshard::Layout> UnevenStages() {
  return {
      {.pipeline = 2, .layers_per_virtual_stage = 1},
      {.pipeline = 2, .first_stage_layers = 1},
      {.pipeline = 3, .first_stage_layers = 1, .last_stage_layers = 1},
      {.pipeline = 3,
       .virtual_stages = 2,
       .account_for_embedding = true,
       .account_for_loss = true},
      // Chunks without a layer, the last but for the loss.
      {.pipeline = 2, .stage_layers = {1, 0, 1, 2, 0, 0}},
  };
}

}  // namespace

std::vector<reshard::Layout> TinyLayouts() {
  constexpr int64_t kMaxRanks = 8;
  std::vector<reshard::Layout> layouts;
  for (const bool distributed : {false, true}) {
    for (const int64_t tensor : {1, 2, 4}) {
      for (const int64_t pipeline : {1, 2, 4}) {
        for (const int64_t data : {1, 2, 4, 8}) {
          if (tensor * pipeline * data > kMaxRanks) continue;
          layouts.push_back({.tensor = tensor,
                             .pipeline = pipeline,
                             .data = data,
                             .distributed_optimizer = distributed});
        }
      }
    }
  }
  for (reshard::Layout layout : UnevenStages()) {
    for (const bool distributed : {false, true}) {
      for (const auto& [tensor, data] : {std::pair(1, 2), {2, 1}, {2, 2}}) {
        layout.tensor = tensor;
        layout.data = data;
        layout.distributed_optimizer = distributed;
        if (layout.world_size() <= kMaxRanks) layouts.push_back(layout);
      }
    }
  }
  return layouts;
}

std::vector<reshard::Layout> TinyExpertLayouts() {
  constexpr int64_t kMaxRanks = 8;
  const RunConfig config = TinyMixtral();
  std::vector<reshard::Layout> layouts;
  const auto add = [&](const reshard::Layout& layout) {
    if (layout.world_size() > kMaxRanks) return;
    if (Validate(config, layout, /*micro_batch_size=*/1).ok()) {
      layouts.push_back(layout);
    }
  };
  for (const int64_t tensor : {1, 2, 4}) {
    for (const int64_t data : {1, 2, 4, 8}) {
      for (const int64_t expert : {1, 2, 4}) {
        for (const int64_t expert_tensor : {1, 2, 4}) {
          reshard::Layout layout = {.tensor = tensor,
                                    .data = data,
                                    .expert = expert,
                                    .expert_tensor = expert_tensor};
          layout.distributed_optimizer = layouts.size() % 2 == 0;
          add(layout);
          layout.pipeline = 2;
          layout.layers_per_virtual_stage = layouts.size() % 3 == 0 ? 1 : 0;
          add(layout);
        }
      }
    }
  }
  return layouts;
}

std::vector<reshard::Layout> EveryNth(
    const std::vector<reshard::Layout>& layouts, size_t turn, size_t turns) {
  std::vector<reshard::Layout> chosen;
  for (size_t i = turn % turns; i < layouts.size(); i += turns) {
    chosen.push_back(layouts[i]);
  }
  return chosen;
}

std::string NameOf(const reshard::Layout& layout) {
  std::string name =
      absl::StrCat("TP", layout.tensor, "PP", layout.pipeline, "DP",
                   layout.data, layout.distributed_optimizer ? "Dist" : "");
  const std::vector<reshard::Layout> uneven = UnevenStages();
  for (size_t i = 0; i < uneven.size(); ++i) {
    reshard::Layout same = uneven[i];
    same.tensor = layout.tensor;
    same.data = layout.data;
    same.distributed_optimizer = layout.distributed_optimizer;
    if (same == layout) absl::StrAppend(&name, "Stages", i);
  }
  return name;
}

Batch MockBatch(const RunConfig& config, int64_t first) {
  const std::unique_ptr<TokenSource> source = MakeMockTokenSource(
      config.seed, config.seq_length, config.model.vocab_size);
  Batch batch{.number_in_run = first,
              .num_samples = config.global_batch_size,
              .micro_batch_size = 1};
  std::vector<int32_t> sample(config.seq_length + 1);
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    EXPECT_TRUE(source->Sample(first + i, sample).ok());
    batch.tokens.insert(batch.tokens.end(), sample.begin(), sample.end() - 1);
    batch.labels.insert(batch.labels.end(), sample.begin() + 1, sample.end());
  }
  return batch;
}

Batch ShareOf(const Batch& batch, const Mesh& mesh) {
  const int64_t share = batch.num_samples / mesh.layout().data;
  const int64_t tokens =
      share * static_cast<int64_t>(batch.tokens.size()) / batch.num_samples;
  const int64_t begin = mesh.at().data * tokens;
  const auto cut = [begin, tokens](const std::vector<int32_t>& all) {
    return std::vector<int32_t>(all.begin() + begin,
                                all.begin() + begin + tokens);
  };
  return {.number_in_run = batch.number_in_run + mesh.at().data * share,
          .num_samples = share,
          .micro_batch_size = batch.micro_batch_size,
          .tokens = cut(batch.tokens),
          .labels = cut(batch.labels)};
}

absl::Status OnEveryRank(
    const RunConfig& config, const reshard::Layout& layout,
    const std::function<absl::Status(Mesh&, RankModel&)>& body,
    const ActivationOptions& activations) {
  SS_RETURN_IF_ERROR(Validate(config, layout, /*micro_batch_size=*/1));
  SS_RETURN_IF_ERROR(Validate(activations, config.model, layout));
  return RunRanks(static_cast<int>(layout.world_size()), {},
                  [&](Communicator& world) -> absl::Status {
                    SS_ASSIGN_OR_RETURN(
                        const std::unique_ptr<Mesh> mesh,
                        Mesh::Create(world, config.model, layout));
                    RankModel model(kernels::KernelsFor(kernels::DetectIsa()),
                                    *mesh, config, activations);
                    return body(*mesh, model);
                  });
}

TrainOptions MockRun(const RunConfig& config, const reshard::Layout& layout,
                     int64_t train_iters) {
  TrainOptions run;
  run.config = config;
  run.layout = layout;
  run.train_iters = train_iters;
  run.isa = kernels::DetectIsa();
  run.data = MakeMockTokenSource(config.seed, config.seq_length,
                                 config.model.vocab_size);
  run.print = [](const std::string&) {};
  return run;
}

void SetPrecision(Precision precision, TrainOptions& run) {
  run.activations.precision = precision;
  // About what these models bear, tried anew after each iteration.
  run.config.loss_scaling = {.initial = 0x1p22, .window = 1, .hysteresis = 1};
}

absl::StatusOr<std::vector<std::string>> TrainAndLog(TrainOptions options) {
  SS_RETURN_IF_ERROR(
      Validate(options.config, options.layout, options.micro_batch_size));
  SS_RETURN_IF_ERROR(
      Validate(options.activations, options.config.model, options.layout));
  const std::string log = UniquePath("log");
  options.log_jsonl = log;
  const absl::Status status =
      RunRanks(static_cast<int>(options.layout.world_size()), {},
               [&options](Communicator& world) {
                 return Train(world, options).status();
               });
  SS_RETURN_IF_ERROR(status);
  absl::StatusOr<std::vector<std::string>> lines = ReadBits(log);
  std::filesystem::remove(log);
  return lines;
}

}  // namespace shardshift::trainer
