// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/ref/ref.h"

namespace shardshift::kernels::ref {
namespace {

void EmbeddingLookup(const EmbeddingLookupArgs& args) {
  for (int64_t t = 0; t < args.count; ++t) {
    const int64_t id = args.ids[t];
    float* out = args.out + t * args.width;
    if (id < args.row_begin || id >= args.row_end) {
      std::fill(out, out + args.width, 0.0F);
      continue;
    }
    const float* row = args.table + (id - args.row_begin) * args.width;
    for (int64_t c = 0; c < args.width; ++c) out[c] = row[c] + 0.0F;
  }
}

void EmbeddingGrad(const EmbeddingGradArgs& args) {
  for (int64_t t = 0; t < args.count; ++t) {
    const int64_t id = args.ids[t];
    if (id < args.row_begin || id >= args.row_end) continue;
    const float* dx = args.dx + t * args.width;
    float* acc = args.acc + (id - args.row_begin) * args.width;
    for (int64_t c = 0; c < args.width; ++c) acc[c] = acc[c] + dx[c];
  }
}

}  // namespace

void InstallEmbedding(Kernels& table) {
  table.embedding_lookup = EmbeddingLookup;
  table.embedding_grad = EmbeddingGrad;
}

}  // namespace shardshift::kernels::ref
