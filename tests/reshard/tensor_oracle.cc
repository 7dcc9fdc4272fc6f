// SPDX-License-Identifier: Apache-2.0
#include "tests/reshard/tensor_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/exec/synth.h"
#include "tests/reshard/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {
namespace {

using Shapes = std::map<std::string, ckpt::Shape>;

void AddFeedForward(const ModelConfig& model, const std::string& prefix,
                    int64_t width, Shapes& shapes) {
  for (const char* name : {"gate", "up"}) {
    if (name == std::string("gate") && !model.swiglu) continue;
    shapes[absl::StrCat(prefix, name, ".weight")] = {width, model.hidden_size};
    if (!model.add_bias_linear) continue;
    shapes[absl::StrCat(prefix, name, ".bias")] = {width};
  }
  shapes[prefix + "down.weight"] = {model.hidden_size, width};
  if (model.add_bias_linear) shapes[prefix + "down.bias"] = {model.hidden_size};
}

void AddNormShapes(const ModelConfig& model, const std::string& name,
                   int64_t width, Shapes& shapes) {
  shapes[name + ".weight"] = {width};
  if (model.normalization == Normalization::kLayerNorm) {
    shapes[name + ".bias"] = {width};
  }
}

void AddAttentionShapes(const ModelConfig& model, const std::string& prefix,
                        Shapes& shapes) {
  const int64_t hidden = model.hidden_size;
  const int64_t head = model.kv_channels;
  for (const auto& [name, heads] : {std::pair("q", model.num_attention_heads),
                                    std::pair("k", model.num_query_groups),
                                    std::pair("v", model.num_query_groups)}) {
    const std::string path = absl::StrCat(prefix, "attention.", name);
    shapes[path + ".weight"] = {heads * head, hidden};
    if (model.add_bias_linear || model.add_qkv_bias) {
      shapes[path + ".bias"] = {heads * head};
    }
  }
  shapes[prefix + "attention.proj.weight"] = {hidden,
                                              model.num_attention_heads * head};
  if (model.add_bias_linear) shapes[prefix + "attention.proj.bias"] = {hidden};
  AddNormShapes(model, prefix + "attention_norm", hidden, shapes);
  AddNormShapes(model, prefix + "mlp_norm", hidden, shapes);
  if (!model.qk_layernorm) return;
  AddNormShapes(model, prefix + "attention.q_norm", head, shapes);
  AddNormShapes(model, prefix + "attention.k_norm", head, shapes);
}

void AddMixtureShapes(const ModelConfig& model, const std::string& mlp,
                      Shapes& shapes) {
  const int64_t hidden = model.hidden_size;
  shapes[mlp + "router.weight"] = {model.num_experts, hidden};
  if (model.add_bias_linear) shapes[mlp + "router.bias"] = {model.num_experts};
  for (int64_t e = 0; e < model.num_experts; ++e) {
    AddFeedForward(model, absl::StrCat(mlp, "experts.", e, "."),
                   model.moe_ffn_hidden_size, shapes);
  }
  const int64_t shared = model.moe_shared_expert_intermediate_size;
  if (shared > 0)
    AddFeedForward(model, mlp + "shared_experts.", shared, shapes);
  if (model.moe_shared_expert_gate) {
    shapes[mlp + "shared_experts.output_gate.weight"] = {1, hidden};
  }
}

// The whole of a tensor, put together from its fragments.
std::vector<float> ReadDense(const ckpt::Reader& reader, int64_t tensor) {
  const ckpt::Box whole = ckpt::WholeBox(reader.table().tensors[tensor].shape);
  std::vector<float> dense(ckpt::NumElements(whole), NAN);
  const int64_t count = std::ssize(reader.Fragments(tensor));
  for (int64_t i = 0; i < count; ++i) {
    const ckpt::Box& box = reader.Fragments(tensor)[i].box;
    std::vector<float> values(ckpt::NumElements(box));
    const ckpt::FragmentRead read = {
        .fragment = reader.FirstFragment(tensor) + i,
        .what = box,
        .dst = reinterpret_cast<std::byte*>(values.data()),
        .dst_box = box};
    EXPECT_OK(reader.Read({&read, 1}));
    const std::vector<int64_t> elements = ElementsOf(whole, box);
    for (size_t e = 0; e < elements.size(); ++e) {
      dense.at(elements[e]) = values[e];
    }
  }
  return dense;
}

}  // namespace

std::map<std::string, ckpt::Shape> TensorShapes(const ModelConfig& model) {
  const int64_t hidden = model.hidden_size;
  Shapes shapes;
  shapes["embedding.word.weight"] = {model.vocab_size, hidden};
  if (model.untie_embeddings_and_output_weights)
    shapes["output.weight"] = {model.vocab_size, hidden};
  if (model.position_embedding == PositionEmbedding::kLearnedAbsolute) {
    shapes["embedding.position.weight"] = {model.max_position_embeddings,
                                           hidden};
  }
  AddNormShapes(model, "final_norm", hidden, shapes);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("layers.", layer, ".");
    AddAttentionShapes(model, prefix, shapes);
    const bool is_dense = std::ranges::count(model.dense_layers, layer) > 0;
    if (model.num_experts > 0 && !is_dense) {
      AddMixtureShapes(model, prefix + "mlp.", shapes);
    } else {
      AddFeedForward(model, prefix + "mlp.", model.ffn_hidden_size, shapes);
    }
  }
  return shapes;
}

void ExpectSynthTensors(const ckpt::Reader& reader, const ModelConfig& model) {
  size_t found = 0;
  for (const auto& [name, shape] : TensorShapes(model)) {
    for (const char* role : {"master", "exp_avg", "exp_avg_sq"}) {
      ASSERT_OK_AND_ASSIGN(const int64_t tensor, reader.FindTensor(name, role));
      const ckpt::Tensor& info = reader.table().tensors[tensor];
      ASSERT_EQ(info.shape, shape) << name;
      ASSERT_EQ(info.dtype, ckpt::DType::kF32) << name;
      const std::vector<float> dense = ReadDense(reader, tensor);
      int64_t wrong = 0;
      for (size_t i = 0; i < dense.size(); ++i) {
        if (dense[i] != SynthValue(name, role, static_cast<int64_t>(i))) {
          ++wrong;
        }
      }
      EXPECT_EQ(wrong, 0) << name << " " << role;
      ++found;
    }
  }
  EXPECT_EQ(reader.table().tensors.size(), found);
}

}  // namespace shardshift::reshard
