// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/open_source.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "ckpt/run_dir.h"
#include "reshard/formats/dcp_checkpoint.h"
#include "reshard/formats/dcp_model.h"
#include "reshard/formats/deepspeed.h"
#include "reshard/formats/hf_checkpoint.h"
#include "reshard/formats/megatron_iteration.h"
#include "reshard/formats/megatron_legacy.h"
#include "reshard/formats/torch_dist.h"
#include "reshard/formats/weights_check.h"

namespace shardshift::reshard {
namespace {

absl::StatusOr<Format> FormatOf(const std::string& path,
                                const OpenOptions& options) {
  if (options.from.has_value()) return *options.from;
  SS_ASSIGN_OR_RETURN(const std::optional<Format> found, DetectFormat(path));
  if (!found.has_value()) return NothingKnown(path);
  return *found;
}

// A flag for sources of another kind must not seem to have done something.
absl::Status CheckRepair(const std::string& path, Format format,
                         const ForeignOptions& options) {
  if (!options.repair_shifted ||
      (format == Format::kTorchDist && !options.generic)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--repair-shifted is for optimizer state of Megatron's torch_dist "
      "checkpoints, read as a model; ",
      path, " is read as ", InfoOf(format).what,
      options.generic ? " of any tensors (--generic)" : ""));
}

absl::StatusOr<OpenedSource> OpenNative(const std::string& path,
                                        const OpenOptions& options) {
  SS_ASSIGN_OR_RETURN(ckpt::ResolvedCheckpoint found,
                      ckpt::ResolveCheckpoint(path, options.parts));
  OpenedSource source;
  source.reader = std::move(found.reader);
  if (!found.note.empty()) source.notes.push_back(std::move(found.note));
  return source;
}

absl::StatusOr<ForeignCheckpoint> ReadForeign(const std::string& path,
                                              Format format,
                                              const ForeignOptions& options) {
  const bool generic = options.generic;
  const FormatInfo& info = InfoOf(format);
  if (generic ? !info.reads_generic : !info.reads_models) {
    const bool can_other = info.reads_generic && !generic;
    const char* hint = "; `reshard formats` lists what can";
    if (can_other) {
      hint =
          " as a model yet; `reshard --generic` takes its tensors under their "
          "own names";
    } else if (generic && info.reads_models) {
      hint = " with --generic, only as a model; leave --generic out";
    }
    return absl::UnimplementedError(absl::StrCat(
        path, ": ", info.what, " (", info.name, ") cannot be read", hint));
  }
  if (format == Format::kDcp && generic) {
    return ReadGenericDcp(path, /*step=*/0);
  }
  if (format == Format::kTorchDist) {
    if (!generic) return ReadTorchDist(path, options);
    SS_ASSIGN_OR_RETURN(const std::string directory, MegatronIteration(path));
    SS_ASSIGN_OR_RETURN(ForeignCheckpoint read,
                        ReadGenericDcp(directory, IterationOf(directory)));
    SS_ASSIGN_OR_RETURN(const bool has_common,
                        ckpt::Exists(ckpt::JoinPath(directory, "common.pt")));
    if (has_common) {
      read.left_out.emplace_back("common.pt: arguments, scheduler, counters");
    }
    return read;
  }
  if (format == Format::kMegatron) {
    return ReadMegatronLegacy(path, options);
  }
  if (options.vocab_size.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--vocab-size is for sources that do not tell; ", path, " does"));
  }
  if (format == Format::kDcp) return ReadDcpModel(path, options);
  if (format == Format::kDeepSpeed) return ReadDeepSpeed(path);
  if (format == Format::kUniversal) return ReadDeepSpeedUniversal(path);
  return ReadHuggingFace(path, generic);
}

// The weights that are not, bit for bit, what the copy has.
absl::StatusOr<std::vector<std::string>> WeightsToCheck(
    ckpt::Reader& weights, std::span<const ExpectedTensor> copied) {
  using Known = std::pair<ckpt::Tensor, ckpt::Fingerprint>;
  std::map<std::string, Known> by_name;
  for (const ExpectedTensor& tensor : copied) {
    if (tensor.tensor.role != "weight") continue;
    by_name.emplace(tensor.tensor.name,
                    Known(tensor.tensor, tensor.fingerprint));
  }
  std::vector<ckpt::Fingerprint> found;
  if (!by_name.empty()) {
    SS_RETURN_IF_ERROR(weights.TakeFingerprints());
    found = ckpt::TensorFingerprints(weights.table());
  }
  std::vector<std::string> names;
  for (size_t t = 0; t < weights.table().tensors.size(); ++t) {
    const ckpt::Tensor& tensor = weights.table().tensors[t];
    const auto known = by_name.find(tensor.name);
    if (known != by_name.end() && known->second == Known(tensor, found[t])) {
      continue;
    }
    names.push_back(tensor.name);
  }
  return names;
}

// Of weights that nobody has compared yet, those that are not their masters,
// rounded. `copied` as in VerifySource.
absl::StatusOr<std::vector<std::string>> FindUnlike(
    const OpenedSource& source, std::span<const ExpectedTensor> copied) {
  if (source.checks->weights == nullptr) return std::vector<std::string>();
  ckpt::Reader& weights = *source.checks->weights;
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> to_check,
                      WeightsToCheck(weights, copied));
  SS_ASSIGN_OR_RETURN(std::vector<std::string> unlike,
                      UnlikeMasters(*source.reader, weights, to_check));
  if (unlike.empty() || source.lost.empty()) return unlike;
  return absl::DataLossError(
      absl::StrCat("after --repair-shifted: ",
                   UnlikeMaster(*source.reader, unlike.front())));
}

absl::StatusOr<OpenedSource> OpenForeign(const std::string& path, Format format,
                                         const OpenOptions& options) {
  SS_ASSIGN_OR_RETURN(ForeignCheckpoint foreign,
                      ReadForeign(path, format, options.foreign));
  if (!options.keep_weights.empty()) {
    SS_RETURN_IF_ERROR(KeepWeights(options.keep_weights, foreign));
    foreign.notes.push_back(absl::StrCat("kept beside the masters: ",
                                         DescribeKept(options.keep_weights)));
  }
  OpenedSource source;
  source.format = format;
  source.notes = std::move(foreign.notes);
  source.left_out = std::move(foreign.left_out);
  source.lost = std::move(foreign.lost);
  std::unique_ptr<ckpt::Reader> reader =
      ckpt::Reader::OpenForeign(std::move(foreign.files));
  source.checks = std::make_shared<SourceChecks>();
  source.checks->storages = std::move(foreign.checks);
  source.checks->replicas = std::move(foreign.replicas);
  if (foreign.weights.has_value()) {
    source.checks->weights =
        ckpt::Reader::OpenForeign(*std::move(foreign.weights));
  }
  if (!source.checks->storages.empty()) {
    reader->KeepCrcs();
    if (source.checks->weights != nullptr) source.checks->weights->KeepCrcs();
  }
  if (options.fingerprints) SS_RETURN_IF_ERROR(reader->TakeFingerprints());
  source.reader = std::move(reader);
  if (!options.verify && !options.fingerprints) return source;
  OpenOptions with_weights = options;
  SS_ASSIGN_OR_RETURN(with_weights.keep_weights, options.verify
                                                     ? VerifySource(source)
                                                     : FindUnlike(source, {}));
  if (with_weights.keep_weights.empty()) return source;
  with_weights.verify = false;
  return OpenForeign(path, format, with_weights);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> VerifySource(
    const OpenedSource& source, std::span<const ExpectedTensor> copied) {
  if (source.checks == nullptr) return std::vector<std::string>();
  // Reads what checksums can then be made of. Its error comes last: from damage
  // everything else follows.
  absl::StatusOr<std::vector<std::string>> unlike = FindUnlike(source, copied);
  KnownCrcs known;
  if (source.checks->weights != nullptr) {
    AddKnown(*source.checks->weights, known);
  }
  AddKnown(*source.reader, known);
  SS_RETURN_IF_ERROR(CheckStorages(source.checks->storages, known));
  SS_RETURN_IF_ERROR(CheckReplicas(source.checks->replicas));
  return unlike;
}

absl::StatusOr<ReshardReport> CopyVerified(const std::string& path,
                                           const OpenOptions& options,
                                           OpenedSource& source,
                                           MakeCopy make) {
  OpenOptions with_weights = options;
  const auto verify =
      [&](std::span<const ExpectedTensor> copied) -> absl::Status {
    SS_ASSIGN_OR_RETURN(with_weights.keep_weights,
                        VerifySource(source, copied));
    if (with_weights.keep_weights.empty()) return absl::OkStatus();
    return absl::AbortedError("to be copied again, with weights");
  };
  absl::StatusOr<ReshardReport> report = make(source, verify);
  if (with_weights.keep_weights.empty()) return report;
  SS_ASSIGN_OR_RETURN(source, OpenSource(path, with_weights));
  return make(source, [&source](std::span<const ExpectedTensor> copied) {
    return VerifySource(source, copied).status();
  });
}

absl::StatusOr<OpenedSource> OpenSource(const std::string& path,
                                        const OpenOptions& options) {
  SS_ASSIGN_OR_RETURN(const Format format, FormatOf(path, options));
  SS_RETURN_IF_ERROR(CheckRepair(path, format, options.foreign));
  if (format == Format::kNative) {
    if (options.foreign.vocab_size.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--vocab-size is for sources that do not tell; ", path, " does"));
    }
    return OpenNative(path, options);
  }
  return OpenForeign(path, format, options);
}

}  // namespace shardshift::reshard
