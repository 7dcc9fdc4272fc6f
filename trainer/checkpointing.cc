// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpointing.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/executors.h"

namespace shardshift::trainer {
namespace {

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

// All ranks' receipts on rank 0, in rank order; ranks without a part have none.
absl::StatusOr<std::vector<ckpt::PartReceipt>> GatherReceipts(
    Communicator& comm, const std::optional<ckpt::PartReceipt>& mine) {
  constexpr int64_t kTag = 0;
  const std::string packed = mine.has_value() ? Pack(*mine) : std::string();
  const auto size = static_cast<int64_t>(packed.size());
  std::vector<int64_t> sizes(comm.size());
  SS_RETURN_IF_ERROR(comm.AllGather(std::as_bytes(std::span(&size, 1)),
                                    std::as_writable_bytes(std::span(sizes))));
  std::vector<ckpt::PartReceipt> receipts;
  if (comm.rank() > 0) {
    if (size == 0) return receipts;
    SS_RETURN_IF_ERROR(comm.Send(0, kTag, std::as_bytes(std::span(packed))));
    return receipts;
  }
  if (mine.has_value()) receipts.push_back(*mine);
  for (int rank = 1; rank < comm.size(); ++rank) {
    if (sizes[rank] == 0) continue;
    std::vector<std::byte> bytes(sizes[rank]);
    SS_RETURN_IF_ERROR(comm.Recv(rank, kTag, bytes));
    SS_ASSIGN_OR_RETURN(ckpt::PartReceipt receipt, Unpack(bytes));
    receipts.push_back(std::move(receipt));
  }
  return receipts;
}

using Assignment = std::vector<std::vector<reshard::WriteItem>>;
using Reads = std::vector<ckpt::FragmentRead>;

// Does the reads of all ranks at once, so that a block that several want is
// fetched once.
absl::Status ReadTogether(Communicator& comm, const ckpt::Reader& reader,
                          Reads& mine) {
  return comm.OnFirstRank(&mine, [&reader](std::span<void* const> all) {
    Reads reads;
    for (void* rank : all) {
      auto& of_rank = *static_cast<Reads*>(rank);
      std::move(of_rank.begin(), of_rank.end(), std::back_inserter(reads));
    }
    return reader.Read(reads);
  });
}

// Who writes what: worked out once for the ranks of a process.
absl::StatusOr<std::shared_ptr<const Assignment>> ShareAssignment(
    Communicator& comm, const reshard::ModelConfig& model,
    const reshard::Layout& layout) {
  const auto make = [&] {
    return std::make_shared<const Assignment>(
        reshard::AssignWriters(model, layout));
  };
  if (!comm.shares_memory()) return make();
  std::shared_ptr<const Assignment> shared;
  SS_RETURN_IF_ERROR(
      comm.OnFirstRank(&shared, [&make](std::span<void* const> all) {
        const auto made = make();
        for (void* rank : all) {
          *static_cast<std::shared_ptr<const Assignment>*>(rank) = made;
        }
        return absl::OkStatus();
      }));
  return shared;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpointing>> Checkpointing::Create(
    Mesh& mesh, const reshard::ModelConfig& model, Parameters& parameters,
    Optimizer& optimizer) {
  SS_ASSIGN_OR_RETURN(std::shared_ptr<const Assignment> assignment,
                      ShareAssignment(mesh.files(), model, mesh.layout()));
  return std::unique_ptr<Checkpointing>(new Checkpointing(
      mesh, model, parameters, optimizer, std::move(assignment)));
}

Checkpointing::Checkpointing(Mesh& mesh, const reshard::ModelConfig& model,
                             Parameters& parameters, Optimizer& optimizer,
                             std::shared_ptr<const Assignment> assignment)
    : mesh_(mesh),
      parameters_(parameters),
      optimizer_(optimizer),
      tensors_(reshard::LogicalTensors(model)),
      assignment_(std::move(assignment)),
      items_((*assignment_)[mesh.world().rank()]),
      images_(
          reshard::ImagesOf(items_, parameters_.state().pieces,
                            [this](const reshard::Piece& piece, int64_t role) {
                              return optimizer_.StateOf(piece, role);
                            })) {}

absl::Status Checkpointing::Save(const SaveRequest& request, Images images,
                                 absl::FunctionRef<void()> part_failed) const {
  Communicator& comm = mesh_.files();
  absl::StatusOr<std::string> directory = std::string();
  if (comm.rank() == 0) {
    directory = ckpt::BeginCheckpoint(request.run_dir, request.id.step);
  }
  SS_RETURN_IF_ERROR(AgreeOnStatus(comm, directory.status()));
  SS_RETURN_IF_ERROR(BroadcastText(comm, *directory));

  const absl::StatusOr<std::optional<ckpt::PartReceipt>> receipt =
      reshard::WritePartFromMemory(*directory, comm.rank(), request.id,
                                   tensors_, items_, images);
  if (!receipt.ok()) part_failed();
  SS_RETURN_IF_ERROR(AgreeOnStatus(comm, receipt.status()));
  return AgreeOnStatus(comm, Commit(request, *receipt));
}

absl::Status Checkpointing::Commit(
    const SaveRequest& request,
    const std::optional<ckpt::PartReceipt>& receipt) const {
  SS_ASSIGN_OR_RETURN(const std::vector<ckpt::PartReceipt> receipts,
                      GatherReceipts(mesh_.files(), receipt));
  if (mesh_.files().rank() > 0) return absl::OkStatus();
  return ckpt::CommitCheckpoint(request.run_dir, request.id, receipts,
                                request.record, request.replace_existing);
}

absl::Status Checkpointing::LoadRoles(const ckpt::Reader& reader,
                                      std::span<const char* const> roles) {
  Communicator& comm = mesh_.files();
  absl::StatusOr<Reads> reads = reshard::PlanLoad(
      reader, tensors_, parameters_.state().pieces,
      [this](const reshard::Piece& piece, int64_t role) {
        return optimizer_.StateOf(piece, role);
      },
      roles);
  SS_RETURN_IF_ERROR(AgreeOnStatus(comm, reads.status()));
  SS_RETURN_IF_ERROR(comm.shares_memory()
                         ? ReadTogether(comm, reader, *reads)
                         : AgreeOnStatus(comm, reader.Read(*reads)));
  return optimizer_.WeightsFromMasters();
}

absl::Status Checkpointing::Load(const ckpt::Reader& reader) {
  Communicator& comm = mesh_.files();
  SS_RETURN_IF_ERROR(AgreeOnStatus(
      comm, comm.rank() == 0 ? reshard::CheckTensors(reader, tensors_)
                             : absl::OkStatus()));
  return LoadRoles(reader, reshard::kOptimizerRoles);
}

absl::Status Checkpointing::LoadWeights(const ckpt::Reader& reader) {
  Communicator& comm = mesh_.files();
  const reshard::Content content = reshard::ContentOf(reader);
  SS_RETURN_IF_ERROR(AgreeOnStatus(
      comm, comm.rank() == 0 ? reshard::CheckStored(reader, tensors_, content)
                             : absl::OkStatus()));
  return LoadRoles(reader, reshard::RolesOf(content).first(1));
}

}  // namespace shardshift::trainer
