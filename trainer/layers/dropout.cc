// SPDX-License-Identifier: Apache-2.0
#include "trainer/layers/dropout.h"

#include "absl/strings/str_cat.h"
#include "kernels/dropout.h"
#include "kernels/random.h"

namespace shardshift::trainer {
namespace {

uint64_t KeyOf(const LayerContext& context, absl::string_view site) {
  return kernels::RandomKey(context.dropout.seed,
                            absl::StrCat("dropout.", site));
}

}  // namespace

HiddenDropout::HiddenDropout(const LayerContext& context,
                             absl::string_view site)
    : context_(context), key_(KeyOf(context, site)) {}

void HiddenDropout::Apply(const MicroBatch& batch, const float* x,
                          float* out) const {
  const int64_t positions = context_.shards.positions();
  const int64_t size = positions * context_.model.hidden_size;
  for (int64_t i = 0; i < batch.num_samples; ++i) {
    kernels::Dropout({.x = x + i * size,
                      .rows = positions,
                      .cols = context_.model.hidden_size,
                      .first_row = context_.shards.first_position(),
                      .key = key_,
                      .sample = batch.number_in_run + i,
                      .probability = context_.dropout.hidden,
                      .out = out + i * size});
  }
  context_.Round(out, batch.num_samples * size);
}

AttentionDropout::AttentionDropout(const LayerContext& context,
                                   absl::string_view site, int64_t first_head,
                                   int64_t heads)
    : context_(context) {
  for (int64_t head = first_head; head < first_head + heads; ++head) {
    keys_.push_back(KeyOf(context, absl::StrCat(site, ".head.", head)));
  }
}

void AttentionDropout::Apply(int64_t sample, int64_t head, const float* x,
                             float* out) const {
  kernels::Dropout({.x = x,
                    .rows = context_.seq_length,
                    .cols = context_.seq_length,
                    .causal = true,
                    .key = keys_[head],
                    .sample = sample,
                    .probability = context_.dropout.attention,
                    .out = out});
  context_.Round(out, context_.seq_length * context_.seq_length);
}

}  // namespace shardshift::trainer
