// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_dist_export.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/formats/dcp_writer.h"
#include "reshard/formats/megatron_exports.h"
#include "reshard/formats/megatron_iteration.h"
#include "reshard/formats/megatron_target.h"
#include "reshard/formats/pickle_writer.h"
#include "reshard/formats/storage_pieces.h"
#include "reshard/formats/torch_dist_chunks.h"
#include "reshard/formats/torch_dist_common.h"
#include "reshard/formats/torch_writer.h"
#include "reshard/layout/model_map.h"

namespace shardshift::reshard {
namespace {

// What identifies a distributed checkpoint, and tells how it is stored.
constexpr char kConfigName[] = "metadata.json";
constexpr char kConfig[] =
    "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
    "\"common_backend\": \"torch\", \"common_backend_version\": 1}";
constexpr char kCommonName[] = "common.pt";

// A role, and what stands before the keys of its tensors.
struct StoredRole {
  const char* role;
  const char* prefix;
};

std::vector<StoredRole> RolesToStore(const MegatronTarget& target) {
  std::vector<StoredRole> roles = {{"weight", ""}};
  if (target.content == Content::kWeights) return roles;
  if (target.args.layout.distributed_optimizer) {
    roles.push_back({"master", "optimizer.state.param."});
  } else if (target.weight_dtype != ckpt::DType::kF32) {
    // Else weights are their own masters.
    roles.push_back({"master", "optimizer.state.fp32_param."});
  }
  roles.push_back({"exp_avg", "optimizer.state.exp_avg."});
  roles.push_back({"exp_avg_sq", "optimizer.state.exp_avg_sq."});
  return roles;
}

class TorchDistWriter {
 public:
  TorchDistWriter(const MegatronTarget& target, MegatronExports& exports)
      : target_(target),
        layout_(target.args.layout),
        exports_(exports),
        roles_(RolesToStore(target)),
        writer_({.folder = absl::StrCat(target.IterationFolder(), "/"),
                 .keys_are_paths = false}) {}

  absl::Status AddAll() {
    const ModelMap map(target_.args.model, layout_);
    // In the order of ranks: each file once.
    std::map<int64_t, std::vector<BufferPlace>> by_rank;
    for (const BufferPlace& place : map.Places()) {
      by_rank[map.RanksOf(place).first].push_back(place);
    }
    AddExtraStates(by_rank.begin()->first);
    for (const auto& [rank, places] : by_rank) {
      for (const BufferPlace& place : places) {
        const LocalBuffer buffer = map.MakeBuffer(place);
        for (const Parameter& parameter : buffer.parameters) {
          SS_RETURN_IF_ERROR(AddParameter(parameter, place, rank));
        }
      }
    }
    return absl::OkStatus();
  }

  void Finish(ExportPlan& plan) && { std::move(writer_).Finish(plan); }

 private:
  size_t FileOf(int64_t rank) {
    const auto [found, is_new] = files_.try_emplace(rank, 0);
    if (is_new) {
      found->second = writer_.AddFile(absl::StrCat("__", rank, "_0.distcp"));
    }
    return found->second;
  }

  void AddExtraStates(int64_t rank) {
    const std::string none =
        TorchFileBuilder().Layout(PyValue::List({PyValue()})).Bytes({});
    for (const StackedKey& key :
         ExtraStates(target_.args.model, target_.style)) {
      writer_.AddBytes(ObjectKey(key), FileOf(rank), none);
    }
  }

  absl::Status AddParameter(const Parameter& parameter,
                            const BufferPlace& place, int64_t rank) {
    // Others have it, too.
    const bool is_replica =
        parameter.split == Split::kReplicated && place.tensor > 0;
    if (parameter.is_copy || is_replica) return absl::OkStatus();
    const TensorShare share = {
        place.experts ? layout_.expert_tensor_size() : layout_.tensor,
        place.tensor};
    const StackedKey key = TorchDistKey(TakeApart(parameter.name),
                                        target_.args.model, target_.style);
    const std::vector<ParameterChunk> chunks = ChunksOf(parameter, share);
    for (const StoredRole& role : roles_) {
      SS_ASSIGN_OR_RETURN(const std::vector<StoragePiece> pieces,
                          exports_.Pieces(parameter, role.role, 0));
      const ckpt::DType dtype = exports_.DTypeOf(role.role);
      const size_t tensor =
          TensorOf(absl::StrCat(role.prefix, key.key), dtype,
                   InStack(key.stack, WholeShape(parameter, share)));
      for (const ParameterChunk& chunk : chunks) {
        writer_.AddChunk(tensor, FileOf(rank), InStack(key.at, chunk.box),
                         PiecesOf(chunk, pieces, ckpt::ItemSize(dtype)));
      }
    }
    return absl::OkStatus();
  }

  size_t TensorOf(const std::string& key, ckpt::DType dtype,
                  const ckpt::Shape& shape) {
    const auto [found, is_new] = tensors_.try_emplace(key, 0);
    if (is_new) found->second = writer_.AddTensor(key, dtype, shape);
    return found->second;
  }

  static ckpt::Shape InStack(const ckpt::Shape& stack,
                             const ckpt::Shape& shape) {
    ckpt::Shape joined = stack;
    joined.insert(joined.end(), shape.begin(), shape.end());
    return joined;
  }

  static ckpt::Box InStack(const ckpt::Shape& at, const ckpt::Box& box) {
    const ckpt::Shape ones(at.size(), 1);
    return {InStack(at, box.start), InStack(ones, box.extent)};
  }

  // Those of a chunk, from its first byte on.
  static std::vector<StoragePiece> PiecesOf(
      const ParameterChunk& chunk, const std::vector<StoragePiece>& pieces,
      int64_t item_size) {
    const auto begin =
        pieces.begin() + static_cast<std::ptrdiff_t>(chunk.first_piece);
    std::vector<StoragePiece> some(
        begin, begin + static_cast<std::ptrdiff_t>(chunk.num_pieces));
    for (StoragePiece& piece : some) {
      piece.offset_bytes -= chunk.offset * item_size;
    }
    return some;
  }

  const MegatronTarget& target_;
  const Layout& layout_;
  MegatronExports& exports_;
  const std::vector<StoredRole> roles_;
  DcpWriter writer_;
  std::map<int64_t, size_t> files_;                   // by rank
  absl::flat_hash_map<std::string, size_t> tensors_;  // by key
};

}  // namespace

absl::StatusOr<ExportPlan> PlanTorchDistExport(const ckpt::Reader& source,
                                               const ExportChoice& choice) {
  SS_ASSIGN_OR_RETURN(const MegatronSource megatron,
                      ReadMegatronSource(source, Format::kTorchDist, choice));
  const MegatronTarget& target = megatron.target;
  MegatronExports exports(source, megatron);
  TorchDistWriter writer(target, exports);
  SS_RETURN_IF_ERROR(writer.AddAll());
  SS_ASSIGN_OR_RETURN(std::string common, TorchDistCommon(target));
  ExportPlan plan;
  const std::string folder = target.IterationFolder();
  plan.texts.push_back(
      {ckpt::JoinPath(folder, kCommonName), std::move(common)});
  std::move(writer).Finish(plan);
  plan.texts.push_back({ckpt::JoinPath(folder, kConfigName), kConfig});
  plan.texts.push_back({kMegatronTracker, target.Tracker()});
  plan.tensors = std::move(exports).Take();
  plan.left_out = target.left_out;
  plan.layout = target.args.layout;
  return plan;
}

}  // namespace shardshift::reshard
