// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_shift.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "reshard/formats/flat_buckets.h"
#include "reshard/formats/local_image.h"
#include "reshard/formats/lost_elements.h"
#include "reshard/formats/megatron_ranks.h"
#include "reshard/formats/shifted_buffer.h"
#include "reshard/formats/weights_check.h"
#include "reshard/layout/content.h"

namespace shardshift::reshard {
namespace {

// By parameter: whether the checkpoint has this rank's state under its name.
// The copy of an embedding is stored by the embedding's rank.
std::vector<bool> AreStored(const RankBuffer& buffer) {
  std::vector<bool> are_stored;
  are_stored.reserve(buffer.parameters.size());
  for (const ModuleParameter* p : buffer.parameters) {
    are_stored.push_back(
        !p->parameter->is_copy &&
        IsTold(*p, buffer.rank.tensor == 0, buffer.rank.expert == 0));
  }
  return are_stored;
}

// Adds what the files hold of one rank's flat buffer, and notes what they lack.
class BufferRepair {
 public:
  BufferRepair(const ShiftSource& source, const RankBuffer& buffer,
               LostElements& lost, ckpt::ForeignFilesBuilder& builder)
      : source_(source),
        buffer_(buffer),
        flat_(LayOutFlat(source.args, buffer.place, buffer.parameters)),
        is_stored_(AreStored(buffer)),
        lost_(lost),
        builder_(builder) {}

  absl::Status Run() {
    for (size_t p = 0; p < is_stored_.size(); ++p) {
      if (!is_stored_[p]) continue;
      const std::vector<ShiftedRun> runs =
          FindShifted(flat_, is_stored_, static_cast<int64_t>(p));
      for (const ShiftedRun& run : runs) {
        if (run.holder < 0) SS_RETURN_IF_ERROR(AddLost(p, run.elements));
      }
    }
    for (const char* role : kOptimizerRoles) SS_RETURN_IF_ERROR(AddRole(role));
    return absl::OkStatus();
  }

 private:
  const Parameter& At(size_t p) const {
    return *buffer_.parameters[p]->parameter;
  }

  absl::Status AddRole(const std::string& role) {
    std::vector<SourceTensor> images(is_stored_.size());
    for (size_t p = 0; p < images.size(); ++p) {
      if (!is_stored_[p]) continue;
      SS_ASSIGN_OR_RETURN(images[p], ImageOf(At(p), role));
    }
    for (size_t p = 0; p < images.size(); ++p) {
      if (!is_stored_[p]) continue;
      SourceTensor found{.key = images[p].key,
                         .dtype = images[p].dtype,
                         .shape = images[p].shape,
                         .chunks = {}};
      for (const ShiftedRun& run :
           FindShifted(flat_, is_stored_, static_cast<int64_t>(p))) {
        if (run.holder < 0) continue;
        AppendRange(images[run.holder], run.begin,
                    run.begin + run.elements.size(), run.elements.begin, found);
      }
      SS_RETURN_IF_ERROR(AddFlatParameter(At(p), /*begin=*/0, found, role,
                                          source_.tensors, builder_));
    }
    return absl::OkStatus();
  }

  // What the checkpoint has under the parameter's name.
  absl::StatusOr<SourceTensor> ImageOf(const Parameter& parameter,
                                       const std::string& role) const {
    const StackPlace& place = source_.stored.places.at(parameter.name);
    const std::string key = FullyReshardableKey(role, place.key);
    const auto stored = source_.by_key.find(key);
    if (stored == source_.by_key.end()) {
      return absl::DataLossError(absl::StrCat("has no tensor ", key));
    }
    if (stored->second->dtype != ckpt::DType::kF32) {
      return absl::DataLossError(absl::StrCat(key, " has dtype ",
                                              ckpt::Name(stored->second->dtype),
                                              ", expected F32"));
    }
    const Layout& layout = source_.args.layout;
    return LocalImage(
        parameter,
        {.ranks = buffer_.place.experts ? layout.expert_tensor_size()
                                        : layout.tensor,
         .rank = buffer_.rank.tensor},
        *stored->second, place.index);
  }

  // Vocabulary padding is no loss.
  absl::Status AddLost(size_t p, const Range& elements) {
    for (const Piece& piece : At(p).pieces) {
      const int64_t end = piece.offset + ckpt::NumElements(piece.box);
      const Range common = Intersect(elements, {piece.offset, end});
      if (common.empty()) continue;
      for (ckpt::Box& box :
           ckpt::RowMajorRange(piece.box, common.begin - piece.offset,
                               common.end - piece.offset)) {
        SS_RETURN_IF_ERROR(lost_.Add(piece.tensor, std::move(box)));
      }
    }
    return absl::OkStatus();
  }

  const ShiftSource& source_;
  const RankBuffer& buffer_;
  const FlatBuffer flat_;
  const std::vector<bool> is_stored_;
  LostElements& lost_;
  ckpt::ForeignFilesBuilder& builder_;
};

// The names of the logical tensors whose state would be shifted.
std::vector<std::string> TensorsAtRisk(const ShiftSource& source) {
  absl::btree_set<std::string> names;
  ForEachBuffer(source.args, source.map, [&](const RankBuffer& buffer) {
    const FlatBuffer flat =
        LayOutFlat(source.args, buffer.place, buffer.parameters);
    const std::vector<bool> are_stored = AreStored(buffer);
    for (size_t p = 0; p < are_stored.size(); ++p) {
      if (!are_stored[p] || ShiftOf(flat, static_cast<int64_t>(p)) == 0) {
        continue;
      }
      for (const Piece& piece : buffer.parameters[p]->parameter->pieces) {
        names.insert(source.tensors[piece.tensor].name);
      }
    }
    return absl::OkStatus();
  }).IgnoreError();
  return {names.begin(), names.end()};
}

absl::StatusOr<std::vector<std::string>> FindUnlike(
    const ckpt::ForeignFiles& state, const ckpt::Reader& weights,
    const std::vector<std::string>& at_risk) {
  return UnlikeInFront(*ckpt::Reader::OpenForeign(state), weights, at_risk);
}

// The same files, which hold other tensors.
absl::Status Repair(const ShiftSource& source, const ckpt::Reader& weights,
                    ForeignCheckpoint& read) {
  ckpt::ForeignFilesBuilder builder(read.files.source);
  for (size_t f = 0; f < read.files.files.size(); ++f) {
    builder.AddFile(read.files.files[f], read.files.table.parts[f].file_bytes);
  }
  LostElements lost(source.tensors);
  const absl::Status added =
      ForEachBuffer(source.args, source.map, [&](const RankBuffer& buffer) {
        return BufferRepair(source, buffer, lost, builder).Run();
      });
  SS_RETURN_IF_ERROR(Annotate(added, read.files.source));
  SS_RETURN_IF_ERROR(lost.FillIn(weights, builder));
  SS_ASSIGN_OR_RETURN(
      read.files, builder.Build(read.files.table.step, read.files.table.state,
                                read.files.table.record));
  read.lost = lost.ByTensor();
  return absl::OkStatus();
}

}  // namespace

std::string FullyReshardableKey(const std::string& role,
                                const std::string& name) {
  return absl::StrCat("optimizer.state.", role == "master" ? "param" : role,
                      ".", name);
}

absl::Status CheckShift(const ShiftSource& source, bool repair,
                        ForeignCheckpoint& read) {
  const std::vector<std::string> at_risk = TensorsAtRisk(source);
  const std::unique_ptr<ckpt::Reader> weights =
      ckpt::Reader::OpenForeign(*read.weights);
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> unlike,
                      FindUnlike(read.files, *weights, at_risk));
  if (unlike.empty()) {
    if (repair) {
      read.notes.push_back(
          absl::StrCat("nothing to repair: the optimizer state of ",
                       read.files.source, " is not shifted"));
    }
    return absl::OkStatus();
  }
  ForeignCheckpoint repaired;
  repaired.files = read.files;
  const absl::Status done = Repair(source, *weights, repaired);
  std::vector<std::string> still_unlike;
  if (done.ok()) {
    SS_ASSIGN_OR_RETURN(still_unlike,
                        FindUnlike(repaired.files, *weights, at_risk));
  }
  const bool is_shifted = still_unlike.size() < unlike.size();
  if (!repair) {
    if (!is_shifted) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        UnlikeMaster(*weights, unlike.front()),
        ". Megatron-Core 0.15 to 0.19 shifts optimizer state of "
        "fully_reshardable checkpoints that were saved with padded buckets, "
        "and ",
        at_risk.size(),
        " tensors of this one lie so: save anew with dp_reshardable, or with a "
        "version that has the fix, to keep the optimizer, or let `reshard "
        "--repair-shifted` put back what the files still hold"));
  }
  SS_RETURN_IF_ERROR(done);
  if (!still_unlike.empty()) {
    return absl::DataLossError(absl::StrCat(
        UnlikeMaster(*weights, still_unlike.front()),
        ". This is so after --repair-shifted, too: what is wrong with this "
        "state is not, or not only, that it is shifted"));
  }
  read.files = std::move(repaired.files);
  read.lost = std::move(repaired.lost);
  read.notes.push_back(absl::StrCat(
      "repaired: the optimizer state of ", at_risk.size(), " tensors of ",
      read.files.source,
      " was shifted, as Megatron-Core 0.15 to 0.19 saves it; what the files "
      "hold of it is back in its place"));
  DescribeLost(read);
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
