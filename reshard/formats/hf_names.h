// Which tensors the Hugging Face files of a model hold, and what they are made
// of.
// Source: checkpoint-formats.md 6.2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_NAMES_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_NAMES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "reshard/formats/hf_family.h"
#include "reshard/formats/stored_tensor.h"
#include "reshard/layout/model_config.h"

namespace shardshift::reshard {

// The output layer, in every family.
inline constexpr char kHfHeadName[] = "lm_head.weight";

// One of the ways in which the files of a family name their tensors. The
// defaults are what save_pretrained writes.
struct HfNaming {
  HfFamily family = HfFamily::kLlama;
  // The experts of a layer in two tensors, [experts, 2 * width, hidden] with
  // the rows of gate before those of up, and [experts, hidden, width]: the form
  // of transformers 5 in memory.
  bool fused_experts = false;
  // GPT-2 only: names without `transformer.`, as in the first published files.
  bool bare = false;

  bool operator==(const HfNaming&) const = default;
};

// Every tensor of the files, in the order of the modules of transformers. Each
// logical tensor is whole in one piece of one of them.
// Errors: FailedPrecondition naming the first logical tensor that has no place
// in a model of the family. Whether the family computes what the model does,
// HfConfigFor tells.
// REQUIRES: Validate(model) is OK.
absl::StatusOr<std::vector<StoredTensor>> HfTensors(const ModelConfig& model,
                                                    const HfNaming& naming);

struct FoundTensor {
  std::string name;
  ckpt::Shape shape;
};

struct HfMatch {
  HfNaming naming;
  std::vector<StoredTensor> tensors = {};
  std::vector<int64_t> found = {};  // where each is in the list of the found
  // Buffers of old versions: masks, frequencies.
  std::vector<int64_t> ignored = {};
  // The output layer of a tied model, which some files hold although it is the
  // embedding once more: only its values can tell whether it is. transformers
  // takes the model for untied if they differ.
  std::optional<int64_t> tied_copy = std::nullopt;
};

// Tells the naming from the names, and finds every tensor of the model.
// Takes memory for no more than what was found.
// Errors: FailedPrecondition naming the first tensor that is missing, comes
// twice, has another shape, or is no part of the model, with what was expected
// and found.
absl::StatusOr<HfMatch> MatchHfTensors(const ModelConfig& model,
                                       HfFamily family,
                                       std::span<const FoundTensor> found);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_NAMES_H_
