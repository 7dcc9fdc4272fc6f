// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "kernels/tree.h"

namespace shardshift::trainer {
namespace {

using kernels::StridedMatrix;

void CopyColumns(const float* from, int64_t from_stride, int64_t rows,
                 int64_t columns, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(from + r * from_stride, columns, to + r * to_stride);
  }
}

StridedMatrix Strided(const float* data, int64_t row_stride) {
  return {.data = data, .row_stride = row_stride, .col_stride = 1};
}

StridedMatrix Transpose(const StridedMatrix& m) {
  return {
      .data = m.data, .row_stride = m.col_stride, .col_stride = m.row_stride};
}

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
      rope_(rope),
      head_dim_(context.model.kv_channels),
      groups_(std::max<int64_t>(
          1, context.model.num_query_groups / context.mesh.layout().tensor)),
      heads_(context.model.num_attention_heads / context.mesh.layout().tensor /
             groups_),
      qkv_(context, absl::StrCat(layer, "attention.qkv"), {}),
      proj_(context, absl::StrCat(layer, "attention.proj")) {}

float Attention::scale() const {
  return 1.0F / std::sqrt(static_cast<float>(head_dim_));
}

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
      CopyColumns(gathered.data() + owner * local.size() + column, width, rows,
                  run, to, group_width());
      first += run;
      count -= run;
      to += run;
    }
  };
  const int64_t queries = heads_ * head_dim_;
  take(comm.rank() * queries, queries, qkv.data());
  take(comm.size() * queries, 2 * head_dim_, qkv.data() + queries);
  return absl::OkStatus();
}

void Attention::Rotate(float* x, int64_t row_stride, int64_t num_heads,
                       bool inverse) {
  if (rope_.cos.size() == 0) return;
  context_.kernels.rope({.x = x,
                         .rows = context_.seq_length,
                         .row_stride = row_stride,
                         .num_heads = num_heads,
                         .head_stride = head_dim_,
                         .head_dim = head_dim_,
                         .first_position = 0,
                         .cos = rope_.cos.data(),
                         .sin = rope_.sin.data(),
                         .inverse = inverse});
}

void Attention::ForwardCore(int64_t num_samples, Cache& cache) {
  const int64_t positions = context_.seq_length;
  const int64_t width = qkv_width();
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    for (int64_t group = 0; group < groups_; ++group) {
      float* queries =
          cache.qkv.data() + sample * positions * width + group * group_width();
      const float* keys = queries + heads_ * head_dim_;
      const float* values = keys + head_dim_;
      // The key head lies right behind the query heads.
      Rotate(queries, width, heads_ + 1, /*inverse=*/false);
      for (int64_t head = 0; head < heads_; ++head) {
        const int64_t index = group * heads_ + head;
        float* probs =
            cache.probs.data() +
            (sample * groups_ * heads_ + index) * positions * positions;
        context_.kernels.gemm({.m = positions,
                               .n = positions,
                               .k = head_dim_,
                               .a = Strided(queries + head * head_dim_, width),
                               .b = Transpose(Strided(keys, width)),
                               .c = probs,
                               .ldc = positions});
        context_.kernels.causal_softmax_forward(
            {.scores = probs, .size = positions, .scale = scale()});
        context_.kernels.gemm({.m = positions,
                               .n = head_dim_,
                               .k = positions,
                               .a = Strided(probs, positions),
                               .b = Strided(values, width),
                               .c = cache.context.data() +
                                    sample * positions * context_width() +
                                    index * head_dim_,
                               .ldc = context_width()});
      }
    }
  }
}

absl::Status Attention::Forward(const float* x, int64_t rows, float* y,
                                Cache& cache) {
  const int64_t num_samples = rows / context_.seq_length;
  cache.qkv = Buffer(rows * qkv_width());
  cache.probs = Buffer(num_samples * groups_ * heads_ * context_.seq_length *
                       context_.seq_length);
  cache.context = Buffer(rows * context_width());
  if (context_.mesh.query_group() == nullptr) {
    qkv_.Forward(x, rows, cache.qkv.data());
  } else {
    Buffer local(rows * qkv_.out());
    qkv_.Forward(x, rows, local.data());
    SS_RETURN_IF_ERROR(GatherGroup(local, rows, cache.qkv));
  }
  ForwardCore(num_samples, cache);
  return proj_.Forward(cache.context.data(), rows, y);
}

void Attention::BackwardHead(const Cache& cache, const float* d_context,
                             int64_t sample, int64_t group, int64_t head,
                             float* d_qkv, float* d_key, float* d_value) {
  const int64_t positions = context_.seq_length;
  const int64_t width = qkv_width();
  const int64_t index = group * heads_ + head;
  const int64_t group_at = sample * positions * width + group * group_width();
  const float* query = cache.qkv.data() + group_at + head * head_dim_;
  const float* key = cache.qkv.data() + group_at + heads_ * head_dim_;
  const float* value = key + head_dim_;
  const float* probs =
      cache.probs.data() +
      (sample * groups_ * heads_ + index) * positions * positions;
  const StridedMatrix d_out = Strided(
      d_context + sample * positions * context_width() + index * head_dim_,
      context_width());
  float* d_query = d_qkv + group_at + head * head_dim_;

  Buffer d_scores(positions * positions);
  context_.kernels.gemm({.m = positions,
                         .n = positions,
                         .k = head_dim_,
                         .a = d_out,
                         .b = Transpose(Strided(value, width)),
                         .c = d_scores.data(),
                         .ldc = positions});
  context_.kernels.gemm({.m = positions,
                         .n = head_dim_,
                         .k = positions,
                         .a = Transpose(Strided(probs, positions)),
                         .b = d_out,
                         .c = d_value,
                         .ldc = head_dim_});
  context_.kernels.causal_softmax_backward(
      {.p = probs, .dp = d_scores.data(), .size = positions, .scale = scale()});
  context_.kernels.gemm({.m = positions,
                         .n = head_dim_,
                         .k = positions,
                         .a = Strided(d_scores.data(), positions),
                         .b = Strided(key, width),
                         .c = d_query,
                         .ldc = width});
  context_.kernels.gemm({.m = positions,
                         .n = head_dim_,
                         .k = positions,
                         .a = Transpose(Strided(d_scores.data(), positions)),
                         .b = Strided(query, width),
                         .c = d_key,
                         .ldc = head_dim_});
  // Before the heads are summed: where ranks share a group, the sum is cut off
  // head borders.
  Rotate(d_query, width, 1, /*inverse=*/true);
  Rotate(d_key, head_dim_, 1, /*inverse=*/true);
}

void Attention::BackwardWholeGroups(const Cache& cache, const float* d_context,
                                    int64_t num_samples, float* d_qkv) {
  const int64_t positions = context_.seq_length;
  const int64_t width = qkv_width();
  const int64_t size = positions * head_dim_;
  HeadGradients gradients(heads_, size);
  Buffer sum(2 * size);
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    for (int64_t group = 0; group < groups_; ++group) {
      for (int64_t head = 0; head < heads_; ++head) {
        BackwardHead(cache, d_context, sample, group, head, d_qkv,
                     gradients.key(head), gradients.value(head));
      }
      gradients.Sum(0, {0, heads_}, sum.data());
      float* d_keys = d_qkv + sample * positions * width +
                      group * group_width() + heads_ * head_dim_;
      CopyColumns(sum.data(), head_dim_, positions, head_dim_, d_keys, width);
      CopyColumns(sum.data() + size, head_dim_, positions, head_dim_,
                  d_keys + head_dim_, width);
    }
  }
}

absl::Status Attention::BackwardSharedGroup(const Cache& cache,
                                            const float* d_context,
                                            int64_t num_samples,
                                            float* d_local) {
  Communicator& comm = *context_.mesh.query_group();
  const int64_t positions = context_.seq_length;
  const int64_t rows = num_samples * positions;
  const int64_t width = qkv_.out();
  const int64_t queries = heads_ * head_dim_;
  const int64_t first_head = comm.rank() * heads_;
  const int64_t leaves = comm.size() * heads_;
  const std::vector<kernels::TreeNode> nodes =
      kernels::CompleteNodes(leaves, first_head, first_head + heads_);

  // One image of the whole group's gradient a node, laid out by the rank that
  // receives it: [rank][R][width]. Queries have one owner; they travel with the
  // first node, and all others add +0.
  const int64_t image_size = comm.size() * rows * width;
  std::vector<std::vector<float>> images(nodes.size(),
                                         std::vector<float>(image_size, 0.0F));
  const auto put = [&](const float* from, int64_t from_stride, int64_t row,
                       int64_t first, int64_t count,
                       std::vector<float>& image) {
    while (count > 0) {
      const int64_t owner = first / width;
      const int64_t column = first % width;
      const int64_t run = std::min(count, width - column);
      CopyColumns(from, from_stride, positions, run,
                  image.data() + (owner * rows + row) * width + column, width);
      first += run;
      count -= run;
      from += run;
    }
  };
  const int64_t size = positions * head_dim_;
  HeadGradients gradients(heads_, size);
  Buffer d_qkv(rows * qkv_width());
  Buffer sum(2 * size);
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    const int64_t row = sample * positions;
    for (int64_t head = 0; head < heads_; ++head) {
      BackwardHead(cache, d_context, sample, 0, head, d_qkv.data(),
                   gradients.key(head), gradients.value(head));
    }
    put(d_qkv.data() + row * qkv_width(), qkv_width(), row,
        comm.rank() * queries, queries, images[0]);
    for (size_t i = 0; i < nodes.size(); ++i) {
      gradients.Sum(first_head, nodes[i], sum.data());
      const int64_t keys = comm.size() * queries;
      put(sum.data(), head_dim_, row, keys, head_dim_, images[i]);
      put(sum.data() + size, head_dim_, row, keys + head_dim_, head_dim_,
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
  Buffer d_context(rows * context_width());
  proj_.Backward(cache.context.data(), dy, batch, d_context.data());
  Buffer d_local(rows * qkv_.out());
  if (context_.mesh.query_group() == nullptr) {
    BackwardWholeGroups(cache, d_context.data(), batch.num_samples,
                        d_local.data());
  } else {
    SS_RETURN_IF_ERROR(BackwardSharedGroup(cache, d_context.data(),
                                           batch.num_samples, d_local.data()));
  }
  return qkv_.Backward(x, d_local.data(), batch, dx);
}

}  // namespace shardshift::trainer
