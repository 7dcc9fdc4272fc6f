// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpointing.h"

#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "absl/cleanup/cleanup.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "ckpt/writer.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/executors.h"

namespace shardshift::trainer {
namespace {

// The same text on every rank, given on rank 0.
absl::Status BroadcastText(Communicator& comm, std::string& text) {
  auto size = static_cast<int64_t>(text.size());
  SS_RETURN_IF_ERROR(
      comm.Broadcast(std::as_writable_bytes(std::span(&size, 1)), 0));
  text.resize(size);
  return comm.Broadcast(std::as_writable_bytes(std::span(text)), 0);
}

// A receipt as bytes: its Part, then its table.
std::string Pack(const ckpt::PartReceipt& receipt) {
  static_assert(std::is_trivially_copyable_v<ckpt::Part>);
  std::string bytes(sizeof(ckpt::Part), '\0');
  std::memcpy(bytes.data(), &receipt.part, sizeof(ckpt::Part));
  return bytes + ckpt::EncodeTable(receipt.table);
}

absl::StatusOr<ckpt::PartReceipt> Unpack(std::span<const std::byte> bytes) {
  ckpt::PartReceipt receipt;
  std::memcpy(&receipt.part, bytes.data(), sizeof(ckpt::Part));
  SS_ASSIGN_OR_RETURN(receipt.table,
                      ckpt::DecodePartTable(bytes.subspan(sizeof(ckpt::Part)),
                                            receipt.part.file_bytes));
  return receipt;
}

// All ranks' receipts, in rank order; ranks without a part have none.
absl::StatusOr<std::vector<ckpt::PartReceipt>> GatherReceipts(
    Communicator& comm, const std::optional<ckpt::PartReceipt>& mine) {
  const std::string packed = mine.has_value() ? Pack(*mine) : std::string();
  const auto size = static_cast<int64_t>(packed.size());
  std::vector<int64_t> sizes(comm.size());
  SS_RETURN_IF_ERROR(comm.AllGather(std::as_bytes(std::span(&size, 1)),
                                    std::as_writable_bytes(std::span(sizes))));
  int64_t total = 0;
  for (const int64_t s : sizes) total += s;
  std::vector<std::byte> all(total);
  SS_RETURN_IF_ERROR(
      comm.AllGatherV(std::as_bytes(std::span(packed)), sizes, all));
  std::vector<ckpt::PartReceipt> receipts;
  std::span<const std::byte> rest = all;
  for (const int64_t s : sizes) {
    if (s == 0) continue;
    SS_ASSIGN_OR_RETURN(ckpt::PartReceipt receipt, Unpack(rest.first(s)));
    receipts.push_back(std::move(receipt));
    rest = rest.subspan(s);
  }
  return receipts;
}

}  // namespace

Checkpointing::Checkpointing(Mesh& mesh, const reshard::ModelConfig& model,
                             Parameters& parameters, Optimizer& optimizer)
    : mesh_(mesh),
      parameters_(parameters),
      optimizer_(optimizer),
      tensors_(reshard::LogicalTensors(model)),
      items_(
          reshard::AssignWriters(model, mesh.layout())[mesh.world().rank()]) {}

absl::Status Checkpointing::Save(const std::string& run_dir, int64_t step,
                                 const nlohmann::json& state,
                                 const nlohmann::json& record,
                                 bool replace_existing) {
  // Waiting for a disk is not waiting for a lost peer.
  const absl::Duration timeout = mesh_.world().timeout();
  mesh_.world().set_timeout(absl::InfiniteDuration());
  const absl::Cleanup restore = [&] { mesh_.world().set_timeout(timeout); };
  return SaveParts(run_dir, step, state, record, replace_existing);
}

absl::Status Checkpointing::SaveParts(const std::string& run_dir, int64_t step,
                                      const nlohmann::json& state,
                                      const nlohmann::json& record,
                                      bool replace_existing) {
  Communicator& world = mesh_.world();
  std::string directory;
  absl::Status status;
  if (world.rank() == 0) {
    absl::StatusOr<std::string> begun = ckpt::BeginCheckpoint(run_dir, step);
    status = begun.status();
    if (begun.ok()) directory = *std::move(begun);
  }
  SS_RETURN_IF_ERROR(AgreeOnStatus(world, status));
  SS_RETURN_IF_ERROR(BroadcastText(world, directory));

  const ckpt::CheckpointId id = {step, reshard::StateText(state)};
  absl::StatusOr<std::optional<ckpt::PartReceipt>> receipt =
      reshard::WritePartFromMemory(
          directory, world.rank(), id, tensors_, items_,
          parameters_.state().pieces,
          [this](const reshard::Piece& piece, int64_t role) {
            return optimizer_.StateOf(piece, role);
          });
  SS_RETURN_IF_ERROR(AgreeOnStatus(world, receipt.status()));
  SS_ASSIGN_OR_RETURN(const std::vector<ckpt::PartReceipt> receipts,
                      GatherReceipts(world, *receipt));
  if (world.rank() == 0) {
    status = ckpt::CommitCheckpoint(
        run_dir, id, receipts, reshard::StateText(record), replace_existing);
  }
  return AgreeOnStatus(world, status);
}

absl::Status Checkpointing::Load(const std::string& step_dir) {
  const auto load = [&]() -> absl::Status {
    SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> reader,
                        ckpt::Reader::Open(step_dir));
    SS_RETURN_IF_ERROR(reshard::CheckTensors(*reader, tensors_));
    SS_ASSIGN_OR_RETURN(
        const std::vector<ckpt::FragmentRead> reads,
        reshard::PlanLoad(*reader, tensors_, parameters_.state().pieces,
                          [this](const reshard::Piece& piece, int64_t role) {
                            return optimizer_.StateOf(piece, role);
                          }));
    return reader->Read(reads);
  };
  SS_RETURN_IF_ERROR(AgreeOnStatus(mesh_.world(), load()));
  return optimizer_.GatherWeights();
}

}  // namespace shardshift::trainer
