// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/open_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
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
  SS_ASSIGN_OR_RETURN(const std::optional<Format> found, DetectFormat(path));
  // What is no checkpoint at all is told best by the reader of our own.
  return options.from.value_or(found.value_or(Format::kNative));
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
    return absl::UnimplementedError(
        absl::StrCat(path, ": ", info.what, " (", info.name, ") cannot be read",
                     can_other ? " as a model yet; --generic takes its tensors "
                                 "under their own names"
                               : "; `reshard formats` lists what can"));
  }
  if (format == Format::kDcp && generic) {
    return ReadGenericDcp(path, /*step=*/0);
  }
  if (format == Format::kTorchDist) {
    if (!generic) return ReadTorchDist(path, options);
    SS_ASSIGN_OR_RETURN(const std::string directory, MegatronIteration(path));
    return ReadGenericDcp(directory, IterationOf(directory));
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

absl::StatusOr<OpenedSource> OpenForeign(const std::string& path, Format format,
                                         const OpenOptions& options) {
  SS_ASSIGN_OR_RETURN(ForeignCheckpoint foreign,
                      ReadForeign(path, format, options.foreign));
  OpenedSource source;
  source.format = format;
  source.notes = std::move(foreign.notes);
  source.left_out = std::move(foreign.left_out);
  std::unique_ptr<ckpt::Reader> reader =
      ckpt::Reader::OpenForeign(std::move(foreign.files));
  if (options.verify) {
    SS_RETURN_IF_ERROR(CheckStorages(std::move(foreign.checks)));
    SS_RETURN_IF_ERROR(CheckReplicas(foreign.replicas));
    if (foreign.weights.has_value()) {
      const std::unique_ptr<ckpt::Reader> weights =
          ckpt::Reader::OpenForeign(*std::move(foreign.weights));
      SS_RETURN_IF_ERROR(CheckAllMasters(*reader, *weights));
    }
  }
  if (options.fingerprints) SS_RETURN_IF_ERROR(reader->TakeFingerprints());
  source.reader = std::move(reader);
  return source;
}

}  // namespace

absl::StatusOr<OpenedSource> OpenSource(const std::string& path,
                                        const OpenOptions& options) {
  SS_ASSIGN_OR_RETURN(const Format format, FormatOf(path, options));
  if (format == Format::kNative) return OpenNative(path, options);
  return OpenForeign(path, format, options);
}

}  // namespace shardshift::reshard
