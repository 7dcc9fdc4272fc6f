// What the tests of the trainer train: tiny models of all kinds on every layout
// of up to eight ranks, in this process.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TRAINER_TINY_MODEL_H_
#define SHARDSHIFT_TESTS_TRAINER_TINY_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reshard/layout/layout.h"
#include "trainer/mesh.h"
#include "trainer/precision.h"
#include "trainer/rank_model.h"
#include "trainer/run_config.h"
#include "trainer/train.h"

namespace shardshift::trainer {

// Four layers of width 32 with 8 heads, 16 positions, a vocabulary of 61 in 64
// rows, batches of 16 samples.
RunConfig TinyGpt();    // tied embeddings, biases everywhere
RunConfig TinyLlama();  // untied, 2 query groups: ranks of TP4 share them
// What these have not. Norms of query and key heads, a QKV bias, a window, a
// tied embedding under RMSNorm:
RunConfig TinyQwen();
// one query group (multi-query attention), biases, interleaved and scaled
// rotation, dropout:
RunConfig TinyMultiQuery();
// exact GELU, LayerNorms of query and key heads, 4 groups, interpolation:
RunConfig TinyExactGelu();

// Mixtures of four experts, two for each token. Under RMSNorm, with the
// router's loss of the whole batch:
RunConfig TinyMixtral();
// a shared expert behind a gate, shares of a softmax over all experts, norms of
// query and key heads, plain GELU, tied embeddings, dropout, losses of the
// router, one layer without experts:
RunConfig TinyQwenMoe();

struct TinyFamily {
  std::string name;
  RunConfig config;
};
std::vector<TinyFamily> TinyFamilies();  // all without experts

// TP {1,2,4} x PP {1,2,4} x DP {1,2,4,8} up to 8 ranks, each with and without
// the distributed optimizer; then 2 and 3 stages of unequal sizes, and
// interleaved ones, with a few of TP and DP.
std::vector<reshard::Layout> TinyLayouts();

// TP {1,2,4} x DP {1,2,4,8} x EP {1,2,4} x expert TP {1,2,4} as far as they go
// together on up to 8 ranks, some with two stages, also interleaved, and the
// distributed optimizer.
std::vector<reshard::Layout> TinyExpertLayouts();

// Of all layouts every turns-th, from number turn % turns on.
std::vector<reshard::Layout> EveryNth(
    const std::vector<reshard::Layout>& layouts, size_t turn, size_t turns);

// "TP2PP1DP2Dist"; of unequal or interleaved stages their number follows.
std::string NameOf(const reshard::Layout& layout);

// Samples [first, first + B) of the mock data, of which a data-parallel rank
// takes its share.
Batch MockBatch(const RunConfig& config, int64_t first);
Batch ShareOf(const Batch& batch, const Mesh& mesh);

// Runs `body` on every rank of `layout`, with its mesh and a model whose
// weights are 0.
absl::Status OnEveryRank(
    const RunConfig& config, const reshard::Layout& layout,
    const std::function<absl::Status(Mesh&, RankModel&)>& body,
    const ActivationOptions& activations = {});

// A run on mock data, from the start.
TrainOptions MockRun(const RunConfig& config, const reshard::Layout& layout,
                     int64_t train_iters);

// Puts the run into a precision; in fp16 iterations overflow now and then.
void SetPrecision(Precision precision, TrainOptions& run);

// Trains, and gives a line an iteration: number, bits of loss and norm, loss
// scale, iterations skipped so far.
absl::StatusOr<std::vector<std::string>> TrainAndLog(TrainOptions options);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TESTS_TRAINER_TINY_MODEL_H_
