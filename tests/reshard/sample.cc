// SPDX-License-Identifier: Apache-2.0
#include "tests/reshard/sample.h"

#include <cstdlib>
#include <filesystem>

#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"
#include "reshard/exec/synth.h"
#include "reshard/layout/rank_state.h"
#include "tests/ckpt/sample.h"

namespace shardshift::reshard {
namespace {

constexpr int64_t kStep = 3;

int64_t OneOf(std::mt19937& random, const std::vector<int64_t>& choices) {
  return choices[Uniform(random, 0, static_cast<int64_t>(choices.size()) - 1)];
}

}  // namespace

ModelConfig GptModel() {
  return {.num_layers = 4,
          .hidden_size = 16,
          .ffn_hidden_size = 24,
          .num_attention_heads = 4,
          .num_query_groups = 4,
          .kv_channels = 4,
          .vocab_size = 251,
          .padded_vocab_size = 256,
          .max_position_embeddings = 9};
}

ModelConfig LlamaModel() {
  ModelConfig model = GptModel();
  model.num_query_groups = 2;
  model.normalization = Normalization::kRmsNorm;
  model.position_embedding = PositionEmbedding::kRope;
  model.swiglu = true;
  model.add_bias_linear = false;
  model.untie_embeddings_and_output_weights = true;
  return model;
}

ModelConfig MixtureModel() {
  ModelConfig model = LlamaModel();
  model.qk_layernorm = true;
  model.num_experts = 4;
  model.moe_ffn_hidden_size = 8;
  model.moe_shared_expert_intermediate_size = 12;
  model.moe_shared_expert_gate = true;
  return model;
}

int64_t Uniform(std::mt19937& random, int64_t min, int64_t max) {
  return std::uniform_int_distribution<int64_t>(min, max)(random);
}

ModelConfig RandomModel(std::mt19937& random) {
  const auto coin = [&random] { return Uniform(random, 0, 1) == 1; };
  ModelConfig model;
  model.num_layers = OneOf(random, {1, 2, 3, 4, 6});
  model.hidden_size = Uniform(random, 3, 17);
  model.ffn_hidden_size = OneOf(random, {8, 12, 24});
  model.num_attention_heads = OneOf(random, {2, 4, 6, 8});
  do {
    model.num_query_groups = Uniform(random, 1, model.num_attention_heads);
  } while (model.num_attention_heads % model.num_query_groups != 0);
  model.kv_channels = OneOf(random, {2, 4, 6});
  model.vocab_size = Uniform(random, 1, 60);
  model.padded_vocab_size = (model.vocab_size + 23) / 24 * 24;
  model.max_position_embeddings = Uniform(random, 1, 9);
  if (coin()) model.normalization = Normalization::kRmsNorm;
  if (coin()) model.position_embedding = PositionEmbedding::kRope;
  model.swiglu = coin();
  model.add_bias_linear = coin();
  model.add_qkv_bias = coin();
  model.untie_embeddings_and_output_weights = coin();
  return model;
}

Layout RandomLayout(const ModelConfig& model, std::mt19937& random) {
  Layout layout;
  do {
    layout = {.tensor = OneOf(random, {1, 2, 3, 4, 6, 8}),
              .pipeline = OneOf(random, {1, 2, 3, 4, 6}),
              .data = Uniform(random, 1, 5),
              .distributed_optimizer = Uniform(random, 0, 2) > 0};
  } while (layout.world_size() > 16 || !Validate(model, layout).ok());
  return layout;
}

ModelConfig RandomMixture(std::mt19937& random) {
  const auto coin = [&random] { return Uniform(random, 0, 1) == 1; };
  ModelConfig model = RandomModel(random);
  model.qk_layernorm = coin();
  if (Uniform(random, 0, 3) == 0) return model;
  model.num_experts = OneOf(random, {2, 3, 4, 6, 8});
  model.moe_ffn_hidden_size = OneOf(random, {6, 8, 12});
  for (int64_t layer = 0; layer + 1 < model.num_layers; ++layer) {
    if (Uniform(random, 0, 3) == 0) model.dense_layers.push_back(layer);
  }
  if (!model.add_bias_linear && coin()) {
    model.moe_shared_expert_intermediate_size = OneOf(random, {6, 12});
    model.moe_shared_expert_gate = coin();
  }
  return model;
}

Layout RandomWideLayout(const ModelConfig& model, std::mt19937& random) {
  const auto coin = [&random] { return Uniform(random, 0, 1) == 1; };
  Layout layout;
  do {
    layout = RandomLayout(model, random);
    layout.pipeline = Uniform(random, 1, 4);
    if (model.has_experts()) {
      layout.expert = OneOf(random, {1, 2, 3, 4, 6});
      layout.expert_tensor = OneOf(random, {0, 1, 2, 3});
    }
    switch (Uniform(random, 0, 4)) {
      case 0:
        layout.virtual_stages = Uniform(random, 1, 3);
        layout.first_stage_layers = Uniform(random, 0, 2);
        layout.last_stage_layers = Uniform(random, 0, 2);
        break;
      case 1:
        layout.layers_per_virtual_stage = Uniform(random, 1, 2);
        layout.account_for_embedding = coin();
        layout.account_for_loss = coin();
        break;
      case 2:
        for (int64_t left = model.num_layers; left > 0;) {
          layout.stage_layers.push_back(Uniform(random, 0, left));
          left -= layout.stage_layers.back();
        }
        break;
      default:
        break;
    }
  } while (layout.world_size() > 24 || !Validate(model, layout).ok());
  return layout;
}

std::vector<Parameter> LocalParameters(const ModelConfig& model,
                                       const Layout& layout,
                                       int64_t tensor_rank, int64_t stage) {
  const int64_t rank =
      RankOf(layout, RankCoordinates{.tensor = tensor_rank, .pipeline = stage});
  return MakeRankState(model, layout, rank).buffers.front().parameters;
}

ckpt::Box RandomBox(int64_t max_ndim, std::mt19937& random) {
  ckpt::Box box;
  for (int64_t left = Uniform(random, 0, max_ndim); left > 0; --left) {
    box.start.push_back(Uniform(random, 0, 4));
    box.extent.push_back(Uniform(random, 1, 6));
  }
  return box;
}

std::vector<int64_t> ElementsOf(const ckpt::Box& whole, const ckpt::Box& box) {
  std::vector<int64_t> elements;
  ckpt::Shape at = box.start;
  for (int64_t left = ckpt::NumElements(box); left > 0; --left) {
    int64_t linear = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      linear = linear * whole.extent[d] + at[d] - whole.start[d];
    }
    elements.push_back(linear);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.start[d] + box.extent[d]) break;
      at[d] = box.start[d];
    }
  }
  return elements;
}

int64_t TensorNamed(const ModelConfig& model, const std::string& name) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return static_cast<int64_t>(i);
  }
  std::abort();
}

nlohmann::json SampleState(const ModelConfig& model) {
  return {{"model", ToJson(model)}, {"lr", 0.1}};
}

nlohmann::json SampleRecord(const Layout& layout) {
  return {{"layout", ToJson(layout)}, {"host", "a"}};
}

absl::Status WriteSynth(const std::string& run_dir, const ModelConfig& model,
                        const Layout& layout, ckpt::Codec codec) {
  return WriteSynthCheckpoint(run_dir, kStep, model, layout, SampleState(model),
                              SampleRecord(layout), codec);
}

std::string StepOf(const std::string& run_dir) {
  return ckpt::JoinPath(run_dir, ckpt::StepName(kStep));
}

std::map<std::string, std::string> Snapshot(const std::string& directory) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string name =
        fs::relative(entry.path().parent_path(), directory) /
        entry.path().filename();
    if (entry.is_symlink()) {
      contents[name] = "-> " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_regular_file()) {
      contents[name] = ckpt::ReadFile(entry.path());
    }
  }
  return contents;
}

}  // namespace shardshift::reshard
