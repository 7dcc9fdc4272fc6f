// Checkpoints of ours as Megatron's, as tests of both directions need them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_FORMATS_MEGATRON_SAMPLE_H_
#define SHARDSHIFT_TESTS_RESHARD_FORMATS_MEGATRON_SAMPLE_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/dtype.h"
#include "reshard/formats/format.h"
#include "reshard/formats/open_source.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/model_config.h"
#include "tests/ckpt/sample.h"

namespace shardshift::reshard {

struct SampleExport {
  Layout layout = {};
  Format to = Format::kMegatron;
  bool weights_only = false;
  ckpt::DType dtype = ckpt::DType::kBF16;  // of the weights
};

class MegatronSampleTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const;

  // Writes "run", and as a legacy checkpoint on `layout` "megatron".
  void Make(const ModelConfig& model, const Layout& layout);

  // Checks the source, copies, and checks the copy's proof.
  absl::Status Export(const std::string& from, const std::string& to,
                      const SampleExport& choice) const;
  absl::Status Export(const std::string& from, const std::string& to,
                      const Layout& layout) const {
    return Export(from, to, SampleExport{.layout = layout});
  }

  // A rank's file of "megatron".
  std::string FileOf(const std::string& rank,
                     const std::string& name = "model_optim_rng.pt") const;

  // The names that a rank's file has in a model chunk.
  std::vector<std::string> NamesOf(const std::string& rank,
                                   const std::string& chunk = "model") const;
  static bool Has(const std::vector<std::string>& names,
                  absl::string_view part);

  // Reads a copy with all its checks.
  absl::StatusOr<OpenedSource> Open(const std::string& name,
                                    bool weights_only = false) const;

  // That a copy has the values of "run", every one.
  void ExpectEqual(const std::string& copy) const;

  const ckpt::TempDir directory_{ckpt::InMemory()};
};

// Of `pipeline` stages, each of so many chunks if they are interleaved.
Layout Stages(int64_t pipeline, int64_t chunks = 0);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_FORMATS_MEGATRON_SAMPLE_H_
