// A model of transformers with the numbers of its own float64 run
// (tests/trainer/parity/README.md).
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TRAINER_PARITY_HF_FIXTURE_H_
#define SHARDSHIFT_TESTS_TRAINER_PARITY_HF_FIXTURE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/stored_tensor.h"
#include "reshard/layout/model_config.h"
#include "tests/trainer/logical_state.h"
#include "trainer/pipeline/stage.h"

namespace shardshift::trainer {

// A tensor of a safetensors file, whatever its dtype.
struct FixtureTensor {
  ckpt::Shape shape;
  std::vector<double> values;
};
using FixtureTensors = std::map<std::string, FixtureTensor>;

struct AdamWFixture {
  std::vector<double> lr;          // of each step
  std::vector<double> losses;      // before it
  std::vector<double> grad_norms;  // before clipping
};

class HfFixture {
 public:
  // `name` is a folder of data/.
  static absl::StatusOr<HfFixture> Open(const std::string& name);

  // The checkpoint as `reshard` and `train --finetune` open it.
  const ckpt::Reader& reader() const { return *source_.reader; }
  // Its vocabulary unpadded.
  const reshard::ModelConfig& model() const { return model_; }
  const FixtureTensors& parity() const { return parity_; }
  const AdamWFixture& adamw() const { return adamw_; }

  // The sequences of the parity run, labelled with their next tokens; the last
  // token's label is 0, and must not count.
  Batch ParityBatch() const;
  // Of AdamW step `step`, from 0.
  Batch AdamWBatch(int64_t step) const;

  // Values by logical tensor under the names, and in the orientation, of the
  // model's files: what the reader does, backwards.
  absl::StatusOr<FixtureTensors> ToHf(const LogicalValues& values) const;

 private:
  reshard::OpenedSource source_;
  reshard::ModelConfig model_;
  std::vector<reshard::StoredTensor> stored_;
  FixtureTensors parity_;
  FixtureTensor batches_;  // [steps, samples, positions + 1]
  AdamWFixture adamw_;
};

// |a - b| / |b|. REQUIRES: equal sizes.
double RelativeError(const std::vector<double>& a,
                     const std::vector<double>& b);

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TESTS_TRAINER_PARITY_HF_FIXTURE_H_
