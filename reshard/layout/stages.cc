// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/stages.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::reshard {
namespace {

constexpr char kPipeline[] = "--pipeline-model-parallel-size";
constexpr char kLayers[] = "--num-layers";
constexpr char kPerVirtual[] = "--num-layers-per-virtual-pipeline-stage";
constexpr char kVirtual[] = "--num-virtual-stages-per-pipeline-rank";
constexpr char kFirst[] = "--decoder-first-pipeline-num-layers";
constexpr char kLast[] = "--decoder-last-pipeline-num-layers";
constexpr char kEmbedding[] = "--account-for-embedding-in-pipeline-split";
constexpr char kLoss[] = "--account-for-loss-in-pipeline-split";
constexpr char kExplicit[] = "--pipeline-model-parallel-layout";

using Sizes = std::vector<int64_t>;

absl::Status Refuse(const std::string& why) {
  return absl::InvalidArgumentError(why);
}

struct GivenFlag {
  const char* name;
  bool given;
};

// The name of the first flag that is given, or nullptr.
const char* FirstGiven(std::initializer_list<GivenFlag> flags) {
  for (const GivenFlag& flag : flags) {
    if (flag.given) return flag.name;
  }
  return nullptr;
}

absl::Status CheckTogether(const Layout& layout) {
  const GivenFlag per_virtual = {kPerVirtual,
                                 layout.layers_per_virtual_stage != 0};
  const GivenFlag virtual_stages = {kVirtual, layout.virtual_stages != 0};
  const GivenFlag first = {kFirst, layout.first_stage_layers != 0};
  const GivenFlag last = {kLast, layout.last_stage_layers != 0};
  const GivenFlag embedding = {kEmbedding, layout.account_for_embedding};
  const GivenFlag loss = {kLoss, layout.account_for_loss};
  const auto exclude = [](const GivenFlag& flag, const char* other,
                          const char* remedy) {
    if (!flag.given || other == nullptr) return absl::OkStatus();
    return Refuse(absl::StrCat(flag.name, " and ", other,
                               " exclude one another; ", remedy));
  };
  SS_RETURN_IF_ERROR(exclude(
      {kExplicit, !layout.stage_layers.empty()},
      FirstGiven({per_virtual, virtual_stages, first, last, embedding, loss}),
      "the list alone says which layers a stage has: drop the other"));
  SS_RETURN_IF_ERROR(exclude(
      per_virtual, FirstGiven({virtual_stages, first, last}),
      "of an uneven pipeline --num-virtual-stages-per-pipeline-rank says the "
      "interleaving"));
  for (const GivenFlag& end : {first, last}) {
    SS_RETURN_IF_ERROR(
        exclude(end, FirstGiven({embedding, loss}), "drop one of them"));
  }
  const char* uneven = FirstGiven({first, last});
  if (uneven == nullptr || layout.pipeline > 1) return absl::OkStatus();
  return Refuse(absl::StrCat(uneven, " needs ", kPipeline,
                             " of 2 or more, found ", layout.pipeline));
}

absl::Status CheckRange(const char* flag, int64_t value, int64_t max) {
  if (value >= 0 && value <= max) return absl::OkStatus();
  return Refuse(absl::StrCat(flag, " is ", value, ", expected 1 to ", max));
}

absl::Status CheckRanges(int64_t layers, const Layout& layout) {
  // Embedding and loss may stand for two more.
  const int64_t max = layers + 2;
  SS_RETURN_IF_ERROR(
      CheckRange(kPerVirtual, layout.layers_per_virtual_stage, max));
  SS_RETURN_IF_ERROR(CheckRange(kVirtual, layout.virtual_stages, max));
  SS_RETURN_IF_ERROR(CheckRange(kFirst, layout.first_stage_layers, layers));
  return CheckRange(kLast, layout.last_stage_layers, layers);
}

// Layers of the chunks of an explicit list.
absl::StatusOr<Sizes> ExplicitSizes(int64_t layers, const Layout& layout) {
  const auto chunks = static_cast<int64_t>(layout.stage_layers.size());
  if (chunks % layout.pipeline != 0) {
    return Refuse(absl::StrCat(kExplicit, " has ", chunks,
                               " stages, not divisible by ", kPipeline, " ",
                               layout.pipeline));
  }
  int64_t sum = 0;
  for (const int64_t size : layout.stage_layers) {
    if (size < 0 || size > layers) {
      return Refuse(absl::StrCat(kExplicit, " has a stage of ", size,
                                 " layers, expected 0 to ", kLayers, " ",
                                 layers));
    }
    sum += size;
  }
  if (sum == layers) return layout.stage_layers;
  return Refuse(absl::StrCat(kExplicit, " has ", sum,
                             " layers in all, expected ", kLayers, " ",
                             layers));
}

// "--num-layers 30", and what counts besides.
std::string LayersText(int64_t layers, const Layout& layout) {
  std::string text = absl::StrCat(kLayers, " ", layers);
  if (layout.account_for_embedding) absl::StrAppend(&text, " plus embedding");
  if (layout.account_for_loss) absl::StrAppend(&text, " plus loss");
  if (layout.first_stage_layers > 0) {
    absl::StrAppend(&text, " less ", kFirst, " ", layout.first_stage_layers);
  }
  if (layout.last_stage_layers > 0) {
    absl::StrAppend(&text, " less ", kLast, " ", layout.last_stage_layers);
  }
  return text;
}

// What each stage counts as its layers, over all of its chunks.
absl::StatusOr<Sizes> StageSizes(int64_t layers, const Layout& layout) {
  const int64_t first = layout.first_stage_layers;
  const int64_t last = layout.last_stage_layers;
  const int64_t ends = (first > 0 ? 1 : 0) + (last > 0 ? 1 : 0);
  const int64_t even_stages = layout.pipeline - ends;
  const int64_t rest = layers - first - last +
                       (layout.account_for_embedding ? 1 : 0) +
                       (layout.account_for_loss ? 1 : 0);
  const bool fits = even_stages == 0
                        ? rest == 0
                        : rest >= even_stages && rest % even_stages == 0;
  if (!fits && ends == 0) {
    return Refuse(
        absl::StrCat(LayersText(layers, layout), " is not divisible by ",
                     kPipeline, " ", layout.pipeline,
                     "; choose a size that divides it, or an uneven split (",
                     kFirst, ", ", kLast, ")"));
  }
  if (!fits) {
    return Refuse(absl::StrCat(LayersText(layers, layout), " leaves ", rest,
                               " layers for the other ", even_stages,
                               " stages of ", kPipeline, " ", layout.pipeline,
                               "; choose sizes that leave a multiple of them"));
  }
  Sizes sizes(layout.pipeline, even_stages == 0 ? 0 : rest / even_stages);
  if (first > 0) sizes.front() = first;
  if (last > 0) sizes.back() = last;
  return sizes;
}

absl::StatusOr<int64_t> ChunksOfAStage(const Layout& layout,
                                       int64_t stage_size) {
  const int64_t per_chunk = layout.layers_per_virtual_stage;
  if (per_chunk == 0) return std::max<int64_t>(1, layout.virtual_stages);
  if (stage_size % per_chunk == 0) return stage_size / per_chunk;
  return Refuse(absl::StrCat(stage_size,
                             " layers of a stage are not divisible "
                             "by ",
                             kPerVirtual, " ", per_chunk,
                             "; choose a size that divides them"));
}

absl::StatusOr<Sizes> ChunkSizes(int64_t layers, const Layout& layout) {
  SS_ASSIGN_OR_RETURN(const Sizes stages, StageSizes(layers, layout));
  SS_ASSIGN_OR_RETURN(const int64_t chunks,
                      ChunksOfAStage(layout, stages.front()));
  Sizes sizes;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (const int64_t size : stages) {
      if (size % chunks != 0) {
        return Refuse(absl::StrCat("a stage of ", size, " layers cannot be ",
                                   chunks, " virtual stages (", kVirtual,
                                   "); choose a number that divides it"));
      }
      sizes.push_back(size / chunks);
    }
  }
  if (layout.account_for_embedding) --sizes.front();
  if (layout.account_for_loss) --sizes.back();
  return sizes;
}

absl::StatusOr<Sizes> SizesOfChunks(const ModelConfig& model,
                                    const Layout& layout) {
  SS_RETURN_IF_ERROR(CheckTogether(layout));
  SS_RETURN_IF_ERROR(CheckRanges(model.num_layers, layout));
  absl::StatusOr<Sizes> sizes = layout.stage_layers.empty()
                                    ? ChunkSizes(model.num_layers, layout)
                                    : ExplicitSizes(model.num_layers, layout);
  if (!sizes.ok() || layout.pipeline > 1 || sizes->size() == 1) return sizes;
  return Refuse(absl::StrCat(sizes->size(), " virtual stages need ", kPipeline,
                             " of 2 or more, found ", layout.pipeline,
                             "; drop the interleaving"));
}

}  // namespace

absl::Status ValidateStages(const ModelConfig& model, const Layout& layout) {
  return SizesOfChunks(model, layout).status();
}

std::vector<LayerRange> LayersOfChunks(const ModelConfig& model,
                                       const Layout& layout) {
  const Sizes sizes = SizesOfChunks(model, layout).value();
  std::vector<LayerRange> chunks;
  chunks.reserve(sizes.size());
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    chunks.push_back({.begin = begin, .end = begin + size});
    begin += size;
  }
  return chunks;
}

std::vector<LayerRange> LayersOfChunksOn(const ModelConfig& model,
                                         const Layout& layout, int64_t stage) {
  const std::vector<LayerRange> chunks = LayersOfChunks(model, layout);
  std::vector<LayerRange> of_stage;
  for (auto number = static_cast<size_t>(stage); number < chunks.size();
       number += static_cast<size_t>(layout.pipeline)) {
    of_stage.push_back(chunks[number]);
  }
  return of_stage;
}

LayerRange LayersOfStage(const ModelConfig& model, const Layout& layout,
                         int64_t stage) {
  return LayersOfChunks(model, layout)[stage];
}

}  // namespace shardshift::reshard
