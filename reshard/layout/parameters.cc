// SPDX-License-Identifier: Apache-2.0
#include "reshard/layout/parameters.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace shardshift::reshard {
namespace {

// Cuts one parameter out of its logical tensors.
class Cutter {
 public:
  Cutter(const ParameterRule& rule, int64_t first_tensor,
         const TensorShare& share, Parameter& parameter)
      : rule_(rule),
        first_tensor_(first_tensor),
        share_(share),
        parameter_(parameter) {}

  void Cut(const ModelConfig& model) {
    ckpt::Shape& shape = parameter_.shape;
    shape = rule_.sources[0].shape;
    switch (rule_.split) {
      case Split::kReplicated:
        AddRows(0, 0, shape[0]);
        break;
      case Split::kRows:
        CutRows();
        break;
      case Split::kColumns:
        CutColumns();
        break;
      case Split::kQkv:
        CutQkv(model);
        break;
      case Split::kVocabulary:
        shape[0] = model.padded_vocab_size / share_.ranks;
        AddRows(0, share_.rank * shape[0],
                std::min((share_.rank + 1) * shape[0], model.vocab_size));
        break;
    }
  }

 private:
  void AddPiece(size_t source, ckpt::Box box) {
    const int64_t offset = end_;
    end_ += ckpt::NumElements(box);
    parameter_.pieces.push_back(
        {.tensor = first_tensor_ + static_cast<int64_t>(source),
         .box = std::move(box),
         .offset = offset});
  }

  // Adds rows [begin, end) of the source, if any.
  void AddRows(size_t source, int64_t begin, int64_t end) {
    if (begin >= end) return;
    ckpt::Box box = ckpt::WholeBox(rule_.sources[source].shape);
    box.start[0] = begin;
    box.extent[0] = end - begin;
    AddPiece(source, std::move(box));
  }

  void CutRows() {
    parameter_.shape[0] = 0;
    for (size_t i = 0; i < rule_.sources.size(); ++i) {
      const int64_t rows = rule_.sources[i].shape[0] / share_.ranks;
      AddRows(i, share_.rank * rows, (share_.rank + 1) * rows);
      parameter_.shape[0] += rows;
    }
  }

  void CutColumns() {
    ckpt::Box box = ckpt::WholeBox(parameter_.shape);
    box.extent[1] /= share_.ranks;
    box.start[1] = share_.rank * box.extent[1];
    parameter_.shape[1] = box.extent[1];
    AddPiece(0, std::move(box));
  }

  // Rows of the fused matrix run group by group: the group's query heads, its
  // key head, its value head. A rank has an equal contiguous share of them.
  void CutQkv(const ModelConfig& model) {
    const int64_t rows = model.qkv_width() / share_.ranks;
    const int64_t begin = share_.rank * rows;
    const int64_t end = begin + rows;
    const int64_t head = model.kv_channels;
    const int64_t query = model.query_width() / model.num_query_groups;
    const int64_t run_rows[] = {query, head, head};
    const int64_t group_rows = query + 2 * head;
    for (int64_t group = begin / group_rows; group * group_rows < end;
         ++group) {
      int64_t fused = group * group_rows;
      for (size_t part = 0; part < 3; ++part) {
        const int64_t first = group * run_rows[part];
        const int64_t from = std::max(begin, fused);
        const int64_t to = std::min(end, fused + run_rows[part]);
        AddRows(part, first + from - fused, first + to - fused);
        fused += run_rows[part];
      }
    }
    parameter_.shape[0] = rows;
  }

  const ParameterRule& rule_;
  const int64_t first_tensor_;
  const TensorShare& share_;
  Parameter& parameter_;
  int64_t end_ = 0;  // of the last piece
};

void AppendTensors(const TensorGroup& group, const std::string& prefix,
                   std::vector<LogicalTensor>& tensors) {
  for (int64_t copy = 0; copy < group.copies; ++copy) {
    const std::string copy_prefix = absl::StrCat(prefix, group.PrefixOf(copy));
    for (const ParameterRule& rule : group.rules) {
      for (const TensorSource& source : rule.sources) {
        tensors.push_back(
            {absl::StrCat(copy_prefix, source.name), source.shape});
      }
    }
  }
}

}  // namespace

int64_t NumLogicalTensors(const ModelConfig& model) {
  const TensorSchema schema(model);
  return schema.output.first_tensor + schema.output.num_tensors();
}

int64_t Parameter::num_elements() const {
  return ckpt::NumElements(ckpt::WholeBox(shape));
}

std::vector<LogicalTensor> LogicalTensors(const ModelConfig& model) {
  const TensorSchema schema(model);
  std::vector<LogicalTensor> tensors;
  tensors.reserve(schema.output.first_tensor + schema.output.num_tensors());
  AppendTensors(schema.embedding, "", tensors);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    for (const TensorGroup& group : schema.LayerOf(layer).groups) {
      AppendTensors(group, LayerPrefix(layer), tensors);
    }
  }
  AppendTensors(schema.output, "", tensors);
  return tensors;
}

Parameter CutParameter(const ModelConfig& model, const ParameterRule& rule,
                       int64_t first_tensor, std::string name,
                       const TensorShare& share) {
  Parameter parameter{.name = std::move(name), .split = rule.split};
  Cutter(rule, first_tensor, share, parameter).Cut(model);
  return parameter;
}

}  // namespace shardshift::reshard
