// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/attention.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "kernels/tree.h"
#include "trainer/layers/copy_rows.h"

namespace shardshift::trainer {
namespace {

// The gradient of keys and values that each query head of a group adds.
class HeadGradients {
 public:
  HeadGradients(int64_t heads, int64_t size)
      : size_(size), values_(2 * heads * size) {}

  float* key(int64_t head) { return values_.data() + 2 * head * size_; }
  float* value(int64_t head) { return key(head) + size_; }
  // Keys and values together, [2, size], summed over the heads of `node` of
  // the group's tree; head 0 here is leaf `first` there.
  void Sum(int64_t first, const kernels::TreeNode& node, float* out) {
    std::vector<kernels::NodeValue> leaves;
    for (int64_t leaf = node.begin; leaf < node.end; ++leaf) {
      leaves.push_back({{leaf, leaf + 1}, key(leaf - first)});
    }
    kernels::CombineNodes(node, leaves, 2 * size_, out);
  }

 private:
  int64_t size_;
  Buffer values_;
};

}  // namespace

Attention::Attention(LayerContext& context, const std::string& layer,
                     const RopeTable& rope)
    : context_(context),
      core_(context, layer, rope),
      qkv_(context, absl::StrCat(layer, "attention.qkv"), {}),
      proj_(context, absl::StrCat(layer, "attention.proj")) {}

absl::Status Attention::GatherGroup(const Buffer& local, int64_t rows,
                                    Buffer& qkv) {
  Communicator& comm = *context_.mesh.query_group();
  const int64_t width = qkv_.out();
  Buffer gathered(comm.size() * local.size());
  SS_RETURN_IF_ERROR(comm.AllGather(std::as_bytes(local.span()),
                                    std::as_writable_bytes(gathered.span())));
  // Columns [first, first + count) of the group, which lie on several ranks.
  const auto take = [&](int64_t first, int64_t count, float* to) {
    while (count > 0) {
      const int64_t owner = first / width;
      const int64_t column = first % width;
      const int64_t run = std::min(count, width - column);
      CopyRows(gathered.data() + owner * local.size() + column, width, rows,
               run, to, core_.group_width());
      first += run;
      count -= run;
      to += run;
    }
  };
  const int64_t queries = core_.heads() * core_.head_dim();
  take(comm.rank() * queries, queries, qkv.data());
  take(comm.size() * queries, 2 * core_.head_dim(), qkv.data() + queries);
  return absl::OkStatus();
}

absl::Status Attention::Forward(const float* x, const MicroBatch& batch,
                                float* y, Cache& cache) {
  const int64_t rows = batch.num_samples * context_.seq_length;
  cache = core_.MakeCache(batch.num_samples);
  if (context_.mesh.query_group() == nullptr) {
    SS_RETURN_IF_ERROR(qkv_.Forward(x, rows, cache.qkv.data()));
  } else {
    Buffer local(rows * qkv_.out());
    SS_RETURN_IF_ERROR(qkv_.Forward(x, rows, local.data()));
    SS_RETURN_IF_ERROR(GatherGroup(local, rows, cache.qkv));
  }
  core_.Forward(batch, cache);
  return proj_.Forward(cache.context.data(), rows, y);
}

absl::Status Attention::BackwardWholeGroups(const Cache& cache,
                                            const float* d_context,
                                            const MicroBatch& batch,
                                            float* d_qkv) {
  const int64_t positions = context_.seq_length;
  const int64_t width = core_.qkv_width();
  const int64_t head_dim = core_.head_dim();
  const int64_t size = positions * head_dim;
  HeadGradients gradients(core_.heads(), size);
  Buffer sum(2 * size);
  for (int64_t sample = 0; sample < batch.num_samples; ++sample) {
    core_.OpenSample(batch.first_sample + sample);
    for (int64_t group = 0; group < core_.groups(); ++group) {
      for (int64_t head = 0; head < core_.heads(); ++head) {
        core_.BackwardHead(cache, d_context, batch, {sample, group, head},
                           {d_qkv, gradients.key(head), gradients.value(head)});
      }
      gradients.Sum(0, {0, core_.heads()}, sum.data());
      float* d_keys = d_qkv + sample * positions * width +
                      group * core_.group_width() + core_.heads() * head_dim;
      CopyRows(sum.data(), head_dim, positions, head_dim, d_keys, width);
      CopyRows(sum.data() + size, head_dim, positions, head_dim,
               d_keys + head_dim, width);
    }
    SS_RETURN_IF_ERROR(core_.CloseSample(batch.first_sample + sample));
  }
  return absl::OkStatus();
}

absl::Status Attention::BackwardSharedGroup(const Cache& cache,
                                            const float* d_context,
                                            const MicroBatch& batch,
                                            float* d_local) {
  Communicator& comm = *context_.mesh.query_group();
  const int64_t positions = context_.seq_length;
  const int64_t rows = batch.num_samples * positions;
  const int64_t width = qkv_.out();
  const int64_t head_dim = core_.head_dim();
  const int64_t heads = core_.heads();
  const int64_t queries = heads * head_dim;
  const int64_t first_head = comm.rank() * heads;
  const int64_t leaves = comm.size() * heads;
  const std::vector<kernels::TreeNode> nodes =
      kernels::CompleteNodes(leaves, first_head, first_head + heads);

  // One image of the whole group's gradient a node, laid out by the rank that
  // receives it: [rank][R][width]. Queries have one owner; they travel with the
  // first node, and all others add +0.
  const int64_t image_size = comm.size() * rows * width;
  std::vector<Buffer> images;
  for (size_t i = 0; i < nodes.size(); ++i) {
    images.emplace_back(image_size);
    std::fill_n(images.back().data(), image_size, 0.0F);
  }
  const auto put = [&](const float* from, int64_t from_stride, int64_t row,
                       int64_t first, int64_t count, Buffer& image) {
    while (count > 0) {
      const int64_t owner = first / width;
      const int64_t column = first % width;
      const int64_t run = std::min(count, width - column);
      CopyRows(from, from_stride, positions, run,
               image.data() + (owner * rows + row) * width + column, width);
      first += run;
      count -= run;
      from += run;
    }
  };
  const int64_t size = positions * head_dim;
  HeadGradients gradients(heads, size);
  Buffer d_qkv(rows * core_.qkv_width());
  Buffer sum(2 * size);
  for (int64_t sample = 0; sample < batch.num_samples; ++sample) {
    const int64_t row = sample * positions;
    core_.OpenSample(batch.first_sample + sample);
    for (int64_t head = 0; head < heads; ++head) {
      core_.BackwardHead(
          cache, d_context, batch, {sample, 0, head},
          {d_qkv.data(), gradients.key(head), gradients.value(head)});
    }
    SS_RETURN_IF_ERROR(core_.CloseSample(batch.first_sample + sample));
    put(d_qkv.data() + row * core_.qkv_width(), core_.qkv_width(), row,
        comm.rank() * queries, queries, images[0]);
    for (size_t i = 0; i < nodes.size(); ++i) {
      gradients.Sum(first_head, nodes[i], sum.data());
      const int64_t keys = comm.size() * queries;
      put(sum.data(), head_dim, row, keys, head_dim, images[i]);
      put(sum.data() + size, head_dim, row, keys + head_dim, head_dim,
          images[i]);
    }
  }
  std::vector<TreeBuffer> inputs;
  for (size_t i = 0; i < nodes.size(); ++i) {
    inputs.push_back({.node = nodes[i], .data = images[i].data()});
  }
  return comm.TreeReduceScatter(
      {.leaves = leaves, .nodes = inputs, .count = image_size},
      comm.rank() * rows * width, (comm.rank() + 1) * rows * width, d_local);
}

absl::Status Attention::Backward(const float* x, const float* dy,
                                 const Cache& cache, const MicroBatch& batch,
                                 float* dx) {
  const int64_t rows = batch.num_samples * context_.seq_length;
  Buffer d_context(rows * core_.context_width());
  SS_RETURN_IF_ERROR(
      proj_.Backward(cache.context.data(), dy, batch, d_context.data()));
  Buffer d_local(rows * qkv_.out());
  if (context_.mesh.query_group() == nullptr) {
    SS_RETURN_IF_ERROR(
        BackwardWholeGroups(cache, d_context.data(), batch, d_local.data()));
  } else {
    SS_RETURN_IF_ERROR(
        BackwardSharedGroup(cache, d_context.data(), batch, d_local.data()));
  }
  context_.Round(d_local.data(), d_local.size());
  return qkv_.Backward(x, d_local.data(), batch, dx);
}

}  // namespace shardshift::trainer
