// SPDX-License-Identifier: Apache-2.0
#include "tests/reshard/oracle.h"

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "ckpt/core/box.h"
#include "tests/reshard/sample.h"

namespace shardshift::reshard {
namespace {

using Rows = std::vector<std::vector<Label>>;

Rows RowsOf(const ModelConfig& model, const std::string& name) {
  const int64_t tensor = TensorNamed(model, name);
  const ckpt::Shape shape = LogicalTensors(model)[tensor].shape;
  const int64_t columns = shape.size() == 1 ? 1 : shape[1];
  Rows rows(shape[0]);
  int64_t index = 0;
  for (std::vector<Label>& row : rows) {
    for (int64_t i = 0; i < columns; ++i) row.push_back({tensor, index++});
  }
  return rows;
}

void Append(const Rows& from, int64_t begin, int64_t end, Rows& to) {
  to.insert(to.end(), from.begin() + begin, from.begin() + end);
}

// An equal share of the rows, appended.
void AppendShare(const Rows& from, int64_t ranks, int64_t rank, Rows& to) {
  const auto share = static_cast<int64_t>(from.size()) / ranks;
  Append(from, rank * share, (rank + 1) * share, to);
}

Rows FusedQkv(const ModelConfig& model, const std::string& name) {
  const auto part = [&](const char* which) {
    return RowsOf(model, absl::StrReplaceAll(name, {{".qkv.", which}}));
  };
  const Rows q = part(".q.");
  const Rows k = part(".k.");
  const Rows v = part(".v.");
  const int64_t width = model.kv_channels;
  const int64_t heads = model.num_attention_heads / model.num_query_groups;
  Rows fused;
  for (int64_t group = 0; group < model.num_query_groups; ++group) {
    for (int64_t i = 0; i < heads; ++i) {
      const int64_t head = group * heads + i;
      Append(q, head * width, (head + 1) * width, fused);
    }
    Append(k, group * width, (group + 1) * width, fused);
    Append(v, group * width, (group + 1) * width, fused);
  }
  return fused;
}

Rows LocalRows(const ModelConfig& model, const std::string& name, int64_t ranks,
               int64_t rank) {
  Rows local;
  if (absl::StrContains(name, ".qkv.")) {
    AppendShare(FusedQkv(model, name), ranks, rank, local);
  } else if (absl::StrContains(name, ".fc1.")) {
    for (const char* half : {".gate.", ".up."}) {
      if (!model.swiglu && half == std::string(".gate.")) continue;
      const std::string source = absl::StrReplaceAll(name, {{".fc1.", half}});
      AppendShare(RowsOf(model, source), ranks, rank, local);
    }
  } else if (name == "embedding.word.weight" || name == "output.weight") {
    const bool tied = !model.untie_embeddings_and_output_weights;
    Rows padded = RowsOf(model, tied ? "embedding.word.weight" : name);
    padded.resize(model.padded_vocab_size,
                  std::vector<Label>(model.hidden_size));
    AppendShare(padded, ranks, rank, local);
  } else {
    const std::string source = absl::StrReplaceAll(name, {{".fc2.", ".down."}});
    local = RowsOf(model, source);
    if (IsReplicated(source)) return local;
    for (std::vector<Label>& row : local) {
      const auto share = static_cast<int64_t>(row.size()) / ranks;
      row = {row.begin() + rank * share, row.begin() + (rank + 1) * share};
    }
  }
  return local;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Label& label) {
  return out << "tensor " << label.tensor << " element " << label.index;
}

std::vector<Label> LocalLabels(const ModelConfig& model,
                               const std::string& name, int64_t ranks,
                               int64_t rank) {
  std::vector<Label> labels;
  for (const std::vector<Label>& row : LocalRows(model, name, ranks, rank)) {
    labels.insert(labels.end(), row.begin(), row.end());
  }
  return labels;
}

int64_t PlacePieces(const ModelConfig& model, const std::vector<Piece>& pieces,
                    std::vector<Label>& labels) {
  const std::vector<LogicalTensor> tensors = LogicalTensors(model);
  int64_t overwritten = 0;
  for (const Piece& piece : pieces) {
    const ckpt::Box whole = ckpt::WholeBox(tensors[piece.tensor].shape);
    int64_t at = piece.offset;
    for (const int64_t element : ElementsOf(whole, piece.box)) {
      Label& label = labels.at(at++);
      if (!label.is_padding()) ++overwritten;
      label = {piece.tensor, element};
    }
  }
  return overwritten;
}

bool IsReplicated(const std::string& tensor_name) {
  return absl::StrContains(tensor_name, "norm.") ||
         absl::StrContains(tensor_name, "position") ||
         absl::StrContains(tensor_name, "router.") ||
         absl::StrContains(tensor_name, "output_gate.") ||
         absl::EndsWith(tensor_name, "proj.bias") ||
         absl::EndsWith(tensor_name, "down.bias");
}

}  // namespace shardshift::reshard
