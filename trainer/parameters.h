// The parameters of one rank in their flat buffers: one a model chunk, and one
// for its experts where they are kept apart. In memory the buffers lie one
// after the other; offsets and ranges count from the start of the first.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_PARAMETERS_H_
#define SHARDSHIFT_TRAINER_PARAMETERS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/string_view.h"
#include "ckpt/core/page_memory.h"
#include "reshard/layout/rank_state.h"

namespace shardshift::trainer {

class Parameters {
 public:
  // What of the data-parallel ranks' gradients is summed in one go, and the
  // part that this rank owns.
  struct Bucket {
    reshard::Range range;
    reshard::Range owned;
  };

  struct State {
    std::vector<reshard::Parameter> parameters = {};
    std::vector<reshard::Range> ranges = {};  // of each parameter
    std::vector<Bucket> buckets = {};         // ascending
    // Boxes this rank owns the optimizer state of, ascending.
    std::vector<reshard::Piece> pieces = {};
    int64_t num_elements = 0;
    // Where the buffers of experts begin that are cut and replicated over other
    // ranks than the rest; num_elements if there are none.
    int64_t experts_begin = 0;

    // Whether a parameter or a bucket lies in them.
    bool IsOfExperts(const reshard::Range& range) const {
      return range.begin >= experts_begin;
    }
  };

  // All values are 0, padding included.
  explicit Parameters(const reshard::RankState& rank_state);

  const State& state() const { return state_; }

  // Position in state().parameters, or nullopt.
  std::optional<int64_t> Find(absl::string_view name) const;

  float* data(int64_t index) {
    return values_.data() + state_.ranges[index].begin;
  }
  const float* data(int64_t index) const {
    return values_.data() + state_.ranges[index].begin;
  }

  // All buffers.
  std::span<float> values() { return values_; }

  // Fills the parameters with a run's initial values: normal with `std`
  // (output projections: std / sqrt(2 L)), biases 0, norm weights 1. Each value
  // is a function of seed, logical tensor and index.
  void Initialize(const std::vector<reshard::LogicalTensor>& tensors,
                  uint64_t seed, double std, int64_t num_layers);

 private:
  State state_;
  ckpt::PageVector<float> values_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_PARAMETERS_H_
