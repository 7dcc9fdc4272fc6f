// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/hf_model.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "reshard/layout/numerics.h"

namespace shardshift::reshard {
namespace {

// Megatron's default, for as many tensor-parallel ranks as sums are made of.
constexpr int64_t kVocabularyMultiple = 128;
constexpr int64_t kTensorGranularity = 8;

absl::StatusOr<ckpt::Fingerprint> FingerprintOf(const SourceTensors& source,
                                                const SourceTensor& tensor) {
  ckpt::ForeignFilesBuilder builder(tensor.key);
  AddFiles(source, builder);
  for (const SourceChunk& chunk : tensor.chunks) {
    SS_RETURN_IF_ERROR(
        builder.Add({"values", "weight", tensor.dtype, tensor.shape}, chunk.box,
                    {chunk.file, chunk.offset_bytes, chunk.column_pitch}));
  }
  SS_ASSIGN_OR_RETURN(ckpt::ForeignFiles files, builder.Build(0, "{}", "{}"));
  const std::unique_ptr<ckpt::Reader> reader =
      ckpt::Reader::OpenForeign(std::move(files));
  SS_RETURN_IF_ERROR(reader->TakeFingerprints());
  return ckpt::TensorFingerprints(reader->table()).front();
}

// The output layer of a tied model, if it is there, must be the embedding.
absl::Status CheckTiedCopy(const SourceTensors& source, const HfMatch& match) {
  if (!match.tied_copy.has_value()) return absl::OkStatus();
  const SourceTensor& copy = source.tensors[*match.tied_copy];
  for (size_t i = 0; i < match.tensors.size(); ++i) {
    // The embedding is the first logical tensor.
    if (match.tensors[i].pieces.front().tensor != 0) continue;
    const SourceTensor& embedding = source.tensors[match.found[i]];
    SS_ASSIGN_OR_RETURN(const ckpt::Fingerprint a, FingerprintOf(source, copy));
    SS_ASSIGN_OR_RETURN(const ckpt::Fingerprint b,
                        FingerprintOf(source, embedding));
    if (a == b) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        copy.key, " differs from ", embedding.key,
        ", although config.json "
        "ties them; with \"tie_word_embeddings\": false both are taken"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HfModel> FindHfModel(const std::string& directory,
                                    const HfConfig& config, std::string text,
                                    const SourceTensors& source) {
  HfModel result;
  result.config_text = std::move(text);
  result.model = config.model;
  SS_ASSIGN_OR_RETURN(
      result.model.padded_vocab_size,
      ChoosePaddedVocabSize(result.model.vocab_size, kVocabularyMultiple,
                            kTensorGranularity, /*tensor_ranks=*/1));
  std::vector<FoundTensor> found;
  found.reserve(source.tensors.size());
  for (const SourceTensor& tensor : source.tensors) {
    found.push_back({tensor.key, tensor.shape});
  }
  absl::StatusOr<HfMatch> match =
      MatchHfTensors(result.model, config.family, found);
  if (!match.ok()) return Annotate(match.status(), directory);
  result.match = *std::move(match);
  SS_RETURN_IF_ERROR(CheckTiedCopy(source, result.match));
  result.tensors = LogicalTensors(result.model);
  return result;
}

absl::Status AddHfTensors(const HfModel& model, const SourceTensors& source,
                          const std::vector<int64_t>& positions,
                          const std::string& role,
                          ckpt::ForeignFilesBuilder& builder) {
  for (size_t i = 0; i < positions.size(); ++i) {
    SS_RETURN_IF_ERROR(AddPieces(model.match.tensors[i],
                                 source.tensors[positions[i]], model.tensors,
                                 role, builder));
  }
  return absl::OkStatus();
}

nlohmann::json HfState(const HfModel& model) {
  const HfNaming& naming = model.match.naming;
  return {
      {"model", ToJson(model.model)},
      {"huggingface",
       {{"config", model.config_text},
        {"naming",
         {{"fused_experts", naming.fused_experts}, {"bare", naming.bare}}}}}};
}

}  // namespace shardshift::reshard
