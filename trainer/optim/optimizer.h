// Data-parallel reduction, gradient norm, clipping and AdamW, with or without
// the distributed optimizer: with it a rank reduces, norms and updates only its
// shard of the flat buffers, and weights are gathered afterwards. In 16-bit
// precision the shard has fp32 master weights, which are updated; the weights
// are these, rounded.
// Source: distributed-optimizer.md 1; order of sums: invariant-numerics.md 2.2,
// 2.4, 3 and 4.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_OPTIM_OPTIMIZER_H_
#define SHARDSHIFT_TRAINER_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/core/page_memory.h"
#include "kernels/kernels.h"
#include "reshard/layout/content.h"
#include "trainer/mesh.h"
#include "trainer/optim/gradients.h"
#include "trainer/parameters.h"
#include "trainer/precision.h"

namespace shardshift::trainer {

struct OptimizerConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  // of matrices; vectors never decay
  double clip_grad = 1.0;      // largest gradient norm; 0: no clipping

  bool operator==(const OptimizerConfig&) const = default;
};

// The second sum of a tied embedding that serves as input and output on one
// stage: where it lies in the gradient buffer, and which parameter it is of.
struct TiedGradient {
  int64_t parameter = 0;
  reshard::Range range;
};

class Optimizer {
 public:
  // Everything outlives the optimizer. Moments are 0.
  Optimizer(const kernels::Kernels& kernels, Mesh& mesh, Parameters& parameters,
            const OptimizerConfig& config, Precision precision,
            std::optional<TiedGradient> tied);

  // Sums over the data-parallel ranks, experts' over their replicas, the
  // buckets whose gradients are complete, while those of other chunks and
  // stages are not. Collective over the data-parallel ranks, which have the
  // same order of work.
  absl::Status ReduceComplete(const Gradients& gradients);

  // Sums the rest of the gradients over the data-parallel ranks, adds up the
  // two uses of a tied embedding, multiplies by `scale`, and gives the norm
  // over the whole model. Collective over the world.
  absl::StatusOr<double> ReduceGradients(const Gradients& gradients,
                                         float scale);

  // Clips, updates, and brings the weights of all data-parallel ranks up to
  // date. `step` counts updates from 1. `norm` is that of ReduceGradients.
  absl::Status Update(double lr, int64_t step, double norm);

  // Brings the weights of all data-parallel ranks up to date with the masters,
  // as after a load.
  absl::Status WeightsFromMasters();

  // Takes the weights for masters, as after Parameters::Initialize.
  absl::Status MastersFromWeights();

  // Where the optimizer state of an owned piece lies: role is an index into
  // reshard::kOptimizerRoles.
  float* StateOf(const reshard::Piece& piece, int64_t role);

  // The master weights of parameter `index`, where all data-parallel ranks have
  // them: empty where they are shared out, or are the weights themselves.
  std::span<const float> CommonMasters(int64_t index) const;

  // Elements of optimizer state this rank owns under each role, and of
  // gradients it reduces; padding included.
  int64_t shard_size() const { return static_cast<int64_t>(grad_.size()); }

  // Of the state that it keeps besides the parameters.
  int64_t bytes() const;

 private:
  // A parameter's part of the shard.
  struct Segment {
    int64_t buffer_offset = 0;
    int64_t shard_offset = 0;
    int64_t size = 0;
    bool decays = false;
    bool counted = false;  // by this rank in the norm
  };

  bool has_masters() const { return precision_ != Precision::kFp32; }
  float* MasterOf(const Segment& segment);
  void MakeSegments();
  int64_t ShardOffset(int64_t buffer_offset) const;
  // The ranks that hold what lies in `range`.
  Communicator& ReplicasOf(const reshard::Range& range);
  // Whether this rank counts a parameter of `range` in the norm.
  bool Counts(const reshard::Parameter& parameter,
              const reshard::Range& range) const;
  absl::Status ReduceRange(const Gradients& gradients,
                           const reshard::Range& range,
                           const reshard::Range& owned, float* out);
  absl::Status ReduceBucket(const Gradients& gradients, size_t index);
  absl::Status AddTiedUses(const Gradients& gradients);
  absl::Status ExchangeTiedShards();
  absl::StatusOr<double> Norm();

  // The owned ranges of parameter `index`, one a bucket that it lies in: empty
  // where this rank owns another part of the bucket.
  std::vector<reshard::Range> OwnedOf(int64_t index) const;

  const kernels::Kernels& kernels_;
  Mesh& mesh_;
  Parameters& parameters_;
  OptimizerConfig config_;
  Precision precision_;
  std::optional<TiedGradient> tied_;
  std::vector<Segment> segments_;
  std::vector<int64_t> shard_offsets_;  // of each owned range
  std::vector<bool> is_reduced_;        // each bucket of this batch
  std::vector<float> grad_;
  ckpt::PageVector<float> masters_;  // empty where the weights are the masters
  ckpt::PageVector<float> exp_avg_;
  ckpt::PageVector<float> exp_avg_sq_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_OPTIM_OPTIMIZER_H_
