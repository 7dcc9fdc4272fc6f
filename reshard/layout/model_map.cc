// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/model_map.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace shardshift::reshard {
namespace {

// The part of `piece`, which begins at element `begin` of the buffer, inside
// `owned`.
void AppendOwnedPart(const Piece& piece, int64_t begin, const Range& owned,
                     std::vector<Piece>& pieces) {
  const int64_t size = ckpt::NumElements(piece.box);
  const Range part = Intersect({begin, begin + size}, owned);
  if (part.size() == size) {
    pieces.push_back({piece.tensor, piece.box, begin});
    return;
  }
  if (part.empty()) return;
  int64_t offset = part.begin;
  for (ckpt::Box& box :
       ckpt::RowMajorRange(piece.box, part.begin - begin, part.end - begin)) {
    const int64_t elements = ckpt::NumElements(box);
    pieces.push_back({piece.tensor, std::move(box), offset});
    offset += elements;
  }
}

// The first of `pieces`, which ascend, that reaches beyond `offset`.
std::vector<Piece>::const_iterator FirstBeyond(const std::vector<Piece>& pieces,
                                               int64_t offset) {
  return std::partition_point(
      pieces.begin(), pieces.end(), [offset](const Piece& piece) {
        return piece.offset + ckpt::NumElements(piece.box) <= offset;
      });
}

}  // namespace

std::vector<Piece> PiecesWithin(const LocalBuffer& buffer,
                                const std::vector<Range>& owned) {
  const std::vector<Range>& placed = buffer.buffer.parameters;
  std::vector<Piece> pieces;
  for (const Range& range : owned) {
    // Reverse registration order is ascending buffer order.
    auto at = std::partition_point(
        placed.rbegin(), placed.rend(),
        [&range](const Range& p) { return p.end <= range.begin; });
    for (; at != placed.rend() && at->begin < range.end; ++at) {
      const Parameter& parameter = buffer.parameters[placed.rend() - at - 1];
      auto piece = FirstBeyond(parameter.pieces, range.begin - at->begin);
      for (; piece != parameter.pieces.end(); ++piece) {
        const int64_t begin = at->begin + piece->offset;
        if (begin >= range.end) break;
        AppendOwnedPart(*piece, begin, range, pieces);
      }
    }
  }
  return pieces;
}

ModelMap::ModelMap(const ModelConfig& model, const Layout& layout)
    : model_(model),
      layout_(layout),
      schema_(model_),
      chunks_(LayersOfChunks(model, layout)) {}

int64_t ModelMap::num_chunks() const {
  return static_cast<int64_t>(chunks_.size()) / layout_.pipeline;
}

std::vector<BufferPlace> ModelMap::Places() const {
  std::vector<BufferPlace> places;
  for (const bool experts : {false, true}) {
    if (experts && !layout_.separates_experts()) continue;
    const int64_t tensor =
        experts ? layout_.expert_tensor_size() : layout_.tensor;
    const int64_t expert = experts ? layout_.expert : 1;
    for (int64_t i = 0; i < layout_.pipeline * num_chunks() * tensor * expert;
         ++i) {
      places.push_back({.experts = experts,
                        .stage = i / (num_chunks() * tensor * expert),
                        .chunk = i / (tensor * expert) % num_chunks(),
                        .tensor = i % tensor,
                        .expert = i / tensor % expert});
    }
  }
  return places;
}

RankRun ModelMap::RanksOf(const BufferPlace& place) const {
  if (!place.experts) {
    return {.first = RankOf(layout_, RankCoordinates{.tensor = place.tensor,
                                                     .pipeline = place.stage}),
            .stride = layout_.tensor,
            .count = layout_.data};
  }
  return {.first = RankOf(layout_, ExpertCoordinates{.tensor = place.tensor,
                                                     .expert = place.expert,
                                                     .pipeline = place.stage}),
          .stride = layout_.expert_tensor_size() * layout_.expert,
          .count = layout_.expert_data_size()};
}

void ModelMap::AppendGroup(const TensorGroup& group, const std::string& prefix,
                           int64_t first_tensor, const BufferPlace& place,
                           std::vector<Parameter>& parameters) const {
  const TensorShare share = {
      .ranks = place.experts ? layout_.expert_tensor_size() : layout_.tensor,
      .rank = place.tensor};
  const ExpertRange copies = group.per_expert
                                 ? ExpertsOf(model_, layout_, place.expert)
                                 : ExpertRange{.begin = 0, .end = group.copies};
  for (int64_t copy = copies.begin; copy < copies.end; ++copy) {
    const std::string copy_prefix = absl::StrCat(prefix, group.PrefixOf(copy));
    const int64_t first_of_copy = first_tensor + copy * group.tensors_per_copy;
    for (const ParameterRule& rule : group.rules) {
      parameters.push_back(
          CutParameter(model_, rule, first_of_copy + rule.first_tensor,
                       absl::StrCat(copy_prefix, rule.name), share));
    }
  }
}

void ModelMap::AppendLayer(int64_t layer, const BufferPlace& place,
                           std::vector<Parameter>& parameters) const {
  const std::string prefix = LayerPrefix(layer);
  const int64_t first_tensor = schema_.FirstTensorOf(layer);
  for (const TensorGroup& group : schema_.LayerOf(layer).groups) {
    const bool elsewhere =
        layout_.separates_experts() && group.per_expert != place.experts;
    if (elsewhere) continue;
    AppendGroup(group, prefix, first_tensor + group.first_tensor, place,
                parameters);
  }
}

std::vector<Parameter> ModelMap::MakeParameters(
    const BufferPlace& place) const {
  const int64_t number = place.chunk * layout_.pipeline + place.stage;
  const bool is_first = number == 0 && !place.experts;
  const bool is_last =
      number + 1 == static_cast<int64_t>(chunks_.size()) && !place.experts;
  const bool shared =
      layout_.pipeline > 1 && !model_.untie_embeddings_and_output_weights;
  std::vector<Parameter> parameters;
  if (is_first) {
    AppendGroup(schema_.embedding, "", 0, place, parameters);
    parameters[0].shared_embedding = shared;
  }
  const LayerRange& layers = chunks_[number];
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    AppendLayer(layer, place, parameters);
  }
  if (!is_last) return parameters;
  AppendGroup(schema_.output, "", schema_.output.first_tensor, place,
              parameters);
  if (shared) {
    AppendGroup(schema_.tied_output, "", 0, place, parameters);
    parameters.back().shared_embedding = true;
    parameters.back().is_copy = true;
  }
  return parameters;
}

LocalBuffer ModelMap::MakeBuffer(const BufferPlace& place) const {
  LocalBuffer made{.chunk = place.chunk,
                   .experts = place.experts,
                   .parameters = MakeParameters(place)};
  std::vector<FlatParameter> flat;
  flat.reserve(made.parameters.size());
  for (const Parameter& parameter : made.parameters) {
    flat.push_back({.num_elements = parameter.num_elements(),
                    .shared_embedding = parameter.shared_embedding});
  }
  FlatBufferOptions options{
      .data_ranks = RanksOf(place).count,
      .distributed_optimizer = layout_.distributed_optimizer};
  if (place.stage == 0 && place.chunk == 0) {
    options.bucket_size = DefaultBucketSize(layout_.data);
  }
  made.buffer = MakeFlatBuffer(flat, options);
  return made;
}

RankState ModelMap::StateOf(int64_t rank) const {
  const RankCoordinates at = CoordinatesOf(layout_, rank);
  const ExpertCoordinates expert_at = ExpertCoordinatesOf(layout_, rank);
  RankState state;
  for (const bool experts : {false, true}) {
    if (experts && !layout_.separates_experts()) continue;
    for (int64_t chunk = 0; chunk < num_chunks(); ++chunk) {
      LocalBuffer buffer =
          MakeBuffer({.experts = experts,
                      .stage = at.pipeline,
                      .chunk = chunk,
                      .tensor = experts ? expert_at.tensor : at.tensor,
                      .expert = experts ? expert_at.expert : 0});
      buffer.owned =
          buffer.buffer.OwnedRanges(experts ? expert_at.data : at.data);
      buffer.pieces = PiecesWithin(buffer, buffer.owned);
      state.buffers.push_back(std::move(buffer));
    }
  }
  return state;
}

std::vector<RankSize> SizesOfRanks(const ModelConfig& model,
                                   const Layout& layout) {
  std::vector<RankSize> sizes(layout.world_size());
  const ModelMap map(model, layout);
  for (const BufferPlace& place : map.Places()) {
    const FlatBuffer buffer = map.MakeBuffer(place).buffer;
    const RankRun ranks = map.RanksOf(place);
    for (int64_t i = 0; i < ranks.count; ++i) {
      RankSize& size = sizes[ranks.first + i * ranks.stride];
      size.parameters += buffer.num_elements;
      for (const Range& owned : buffer.OwnedRanges(i)) {
        size.owned += owned.size();
      }
    }
  }
  return sizes;
}

}  // namespace shardshift::reshard
