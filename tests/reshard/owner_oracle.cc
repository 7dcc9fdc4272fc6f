// SPDX-License-Identifier: Apache-2.0
#include "tests/reshard/owner_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reshard/layout/parameters.h"
#include "tests/reshard/oracle.h"
#include "tests/reshard/sample.h"

namespace shardshift::reshard {
namespace {

using Names = std::vector<std::string>;

bool IsTied(const ModelConfig& model) {
  return !model.untie_embeddings_and_output_weights;
}

// The layers of every chunk, dealt out one by one. Embedding and loss are dealt
// out as layers where they count as such.
std::vector<std::vector<int64_t>> LayersByChunk(const ModelConfig& model,
                                                const Layout& layout) {
  std::vector<int64_t> sizes = layout.stage_layers;
  std::vector<int64_t> hand;
  constexpr int64_t kNoLayer = -1;
  if (layout.account_for_embedding) hand.push_back(kNoLayer);
  for (int64_t i = 0; i < model.num_layers; ++i) hand.push_back(i);
  if (layout.account_for_loss) hand.push_back(kNoLayer);
  if (sizes.empty()) {
    const int64_t first = layout.first_stage_layers;
    const int64_t last = layout.last_stage_layers;
    std::vector<int64_t> stages(layout.pipeline, 0);
    int64_t left = std::ssize(hand) - first - last;
    stages.front() += first;
    stages.back() += last;
    while (left > 0) {
      for (int64_t p = 0; p < layout.pipeline; ++p) {
        if (p == 0 && first > 0) continue;
        if (p + 1 == layout.pipeline && last > 0) continue;
        ++stages[p];
        --left;
      }
    }
    int64_t chunks = 1;
    if (layout.virtual_stages > 0) chunks = layout.virtual_stages;
    if (layout.layers_per_virtual_stage > 0) {
      chunks = stages[0] / layout.layers_per_virtual_stage;
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      for (const int64_t stage : stages) sizes.push_back(stage / chunks);
    }
  }
  std::vector<std::vector<int64_t>> layers(sizes.size());
  size_t next = 0;
  for (size_t chunk = 0; chunk < sizes.size(); ++chunk) {
    for (int64_t i = 0; i < sizes[chunk]; ++i) {
      const int64_t layer = hand.at(next++);
      if (layer != kNoLayer) layers[chunk].push_back(layer);
    }
  }
  return layers;
}

// Adds "x.weight" and, if there is one, "x.bias".
void Add(const std::string& name, bool has_bias, Names& names) {
  names.push_back(name + ".weight");
  if (has_bias) names.push_back(name + ".bias");
}

void AddNorm(const ModelConfig& model, const std::string& name, Names& names) {
  Add(name, model.normalization == Normalization::kLayerNorm, names);
}

void AddExperts(const ModelConfig& model, const std::string& prefix,
                int64_t first, int64_t end, Names& names) {
  for (int64_t e = first; e < end; ++e) {
    const std::string expert = absl::StrCat(prefix, "mlp.experts.", e, ".");
    Add(expert + "fc1", model.add_bias_linear, names);
    Add(expert + "fc2", model.add_bias_linear, names);
  }
}

void AddAttention(const ModelConfig& model, const std::string& prefix,
                  Names& names) {
  const bool bias = model.add_bias_linear;
  Add(prefix + "attention.proj", bias, names);
  AddNorm(model, prefix + "attention_norm", names);
  Add(prefix + "attention.qkv", bias || model.add_qkv_bias, names);
  if (model.qk_layernorm) {
    AddNorm(model, prefix + "attention.q_norm", names);
    AddNorm(model, prefix + "attention.k_norm", names);
  }
  AddNorm(model, prefix + "mlp_norm", names);
}

bool IsDense(const ModelConfig& model, int64_t layer) {
  return model.num_experts == 0 ||
         std::ranges::count(model.dense_layers, layer) > 0;
}

// A layer's parameters in the order in which they are registered; with its
// experts only if these are not kept apart.
void AddLayer(const ModelConfig& model, int64_t layer, bool with_experts,
              Names& names) {
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  AddAttention(model, prefix, names);
  if (IsDense(model, layer)) {
    Add(prefix + "mlp.fc1", model.add_bias_linear, names);
    Add(prefix + "mlp.fc2", model.add_bias_linear, names);
    return;
  }
  Add(prefix + "mlp.router", model.add_bias_linear, names);
  if (with_experts) AddExperts(model, prefix, 0, model.num_experts, names);
  const std::string shared = prefix + "mlp.shared_experts.";
  if (model.moe_shared_expert_gate) Add(shared + "output_gate", false, names);
  if (model.moe_shared_expert_intermediate_size > 0) {
    Add(shared + "fc1", false, names);
    Add(shared + "fc2", false, names);
  }
}

Names DenseNames(const ModelConfig& model, const Layout& layout, int64_t chunk,
                 const std::vector<std::vector<int64_t>>& layers,
                 bool with_experts) {
  Names names;
  if (chunk == 0) {
    names.emplace_back("embedding.word.weight");
    if (model.position_embedding == PositionEmbedding::kLearnedAbsolute) {
      names.emplace_back("embedding.position.weight");
    }
  }
  for (const int64_t layer : layers[chunk]) {
    AddLayer(model, layer, with_experts, names);
  }
  if (chunk + 1 == std::ssize(layers)) {
    AddNorm(model, "final_norm", names);
    if (!IsTied(model) || layout.pipeline > 1) {
      names.emplace_back("output.weight");
    }
  }
  return names;
}

// A flat buffer, element by element.
class Buffer {
 public:
  Buffer(const Layout& layout, int64_t data_ranks)
      : distributed_(layout.distributed_optimizer), data_ranks_(data_ranks) {}

  void Place(const std::vector<Label>& labels, bool alone) {
    if (distributed_) {
      PadTo(64);
      if (alone) CloseBucket();
    }
    labels_.insert(labels_.end(), labels.begin(), labels.end());
    if (distributed_ && alone) CloseBucket();
  }

  // What each data rank owns.
  std::vector<std::vector<Label>> Owned() {
    if (!distributed_) {
      return std::vector<std::vector<Label>>(data_ranks_, labels_);
    }
    CloseBucket();
    std::vector<std::vector<Label>> owned(data_ranks_);
    for (size_t b = 0; b + 1 < borders_.size(); ++b) {
      const size_t share = (borders_[b + 1] - borders_[b]) / data_ranks_;
      for (size_t i = borders_[b]; i < borders_[b + 1]; ++i) {
        owned[(i - borders_[b]) / share].push_back(labels_[i]);
      }
    }
    return owned;
  }

 private:
  void PadTo(size_t multiple) {
    while (labels_.size() % multiple != 0) labels_.emplace_back();
  }
  void CloseBucket() {
    if (labels_.size() == borders_.back()) return;
    while (labels_.size() % 128 != 0 || labels_.size() % data_ranks_ != 0) {
      labels_.emplace_back();
    }
    borders_.push_back(labels_.size());
  }

  const bool distributed_;
  const size_t data_ranks_;
  std::vector<Label> labels_;
  std::vector<size_t> borders_ = {0};
};

// Works out what ranks own, place by place: ranks that differ in their data
// rank alone have the same parameters.
class Owners {
 public:
  Owners(const ModelConfig& model, const Layout& layout)
      : model_(model),
        layout_(layout),
        tensors_(LogicalTensors(model)),
        layers_(LayersByChunk(model, layout)),
        owned_(layout.world_size()) {}

  std::vector<OwnedElements> Take() {
    const int64_t ep = layout_.expert;
    const int64_t etp =
        layout_.expert_tensor == 0 ? layout_.tensor : layout_.expert_tensor;
    const bool apart = ep > 1 || etp != layout_.tensor;
    const int64_t ranks_of_stage = layout_.tensor * layout_.data;
    for (int64_t chunk = 0; chunk < std::ssize(layers_); ++chunk) {
      const int64_t first_rank = chunk % layout_.pipeline * ranks_of_stage;
      for (int64_t t = 0; t < layout_.tensor; ++t) {
        Place(DenseNames(model_, layout_, chunk, layers_, !apart),
              layout_.tensor, t, first_rank + t, layout_.tensor);
      }
      if (!apart) continue;
      for (int64_t e = 0; e < ep; ++e) {
        for (int64_t t = 0; t < etp; ++t) {
          Place(ExpertNames(chunk, e), etp, t, first_rank + e * etp + t,
                etp * ep);
        }
      }
    }
    return std::move(owned_);
  }

 private:
  Names ExpertNames(int64_t chunk, int64_t expert_rank) const {
    const int64_t count = model_.num_experts / layout_.expert;
    Names names;
    for (const int64_t layer : layers_[chunk]) {
      if (IsDense(model_, layer)) continue;
      AddExperts(model_, absl::StrCat("layers.", layer, "."),
                 expert_rank * count, (expert_rank + 1) * count, names);
    }
    return names;
  }

  // The buffer of tensor rank `t` of `cut`, which every `stride`-th rank of a
  // stage has, from `first` on.
  void Place(const Names& names, int64_t cut, int64_t t, int64_t first,
             int64_t stride) {
    const int64_t data_ranks = layout_.tensor * layout_.data / stride;
    Buffer buffer(layout_, data_ranks);
    for (size_t i = names.size(); i-- > 0;) {
      const bool alone =
          IsTied(model_) && layout_.pipeline > 1 &&
          (names[i] == "embedding.word.weight" || names[i] == "output.weight");
      buffer.Place(LocalLabels(model_, names[i], cut, t), alone);
    }
    const std::vector<std::vector<Label>> owned = buffer.Owned();
    for (int64_t d = 0; d < data_ranks; ++d) {
      Own(owned[d], owned_[first + d * stride]);
    }
  }

  void Own(const std::vector<Label>& labels, OwnedElements& elements) const {
    for (const Label& label : labels) {
      if (label.is_padding()) continue;
      const LogicalTensor& tensor = tensors_[label.tensor];
      std::vector<bool>& of = elements[tensor.name];
      if (of.empty()) of.resize(ckpt::NumElements(tensor.shape));
      of.at(label.index) = true;
    }
  }

  const ModelConfig model_;
  const Layout layout_;
  const std::vector<LogicalTensor> tensors_;
  const std::vector<std::vector<int64_t>> layers_;
  std::vector<OwnedElements> owned_;
};

}  // namespace

std::vector<OwnedElements> OwnedByRanks(const ModelConfig& model,
                                        const Layout& layout) {
  return Owners(model, layout).Take();
}

void ExpectPartsOfOwners(const ckpt::Reader& reader, const ModelConfig& model,
                         const Layout& layout) {
  const std::vector<OwnedElements> owned = OwnedByRanks(model, layout);
  for (int64_t t = 0; t < std::ssize(reader.table().tensors); ++t) {
    const ckpt::Tensor& tensor = reader.table().tensors[t];
    const ckpt::Box whole = ckpt::WholeBox(tensor.shape);
    std::vector<int> times(ckpt::NumElements(whole), 0);
    int64_t of_others = 0;
    for (const ckpt::Fragment& fragment : reader.Fragments(t)) {
      const OwnedElements& by_rank = owned.at(fragment.part);
      const auto mine = by_rank.find(tensor.name);
      for (const int64_t element : ElementsOf(whole, fragment.box)) {
        ++times.at(element);
        if (mine == by_rank.end() || !mine->second[element]) ++of_others;
      }
    }
    EXPECT_EQ(of_others, 0) << ckpt::Describe(tensor);
    EXPECT_EQ(times, std::vector<int>(times.size(), 1))
        << ckpt::Describe(tensor);
  }
}

}  // namespace shardshift::reshard
