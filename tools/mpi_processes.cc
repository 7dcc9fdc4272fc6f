// SPDX-License-Identifier: Apache-2.0
#include "tools/mpi_processes.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift {
namespace {

// Set for each process by the launchers of Open MPI, of PMIx (srun among
// them), and of MPICH and its kin.
constexpr std::array<const char*, 3> kLauncherVariables = {
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

absl::Status Check(int code, absl::string_view call) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return absl::InternalError(absl::StrCat(
      call, ": ", absl::string_view(text.data(), static_cast<size_t>(length))));
}

class MpiProcesses final : public reshard::Processes {
 public:
  MpiProcesses() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiProcesses() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::StatusOr<std::vector<std::string>> AllGather(
      const std::string& mine) override {
    const auto num_bytes = static_cast<int64_t>(mine.size());
    std::vector<int64_t> sizes(size_);
    SS_RETURN_IF_ERROR(
        Check(MPI_Allgather(&num_bytes, 1, MPI_INT64_T, sizes.data(), 1,
                            MPI_INT64_T, MPI_COMM_WORLD),
              "MPI_Allgather"));
    std::vector<std::string> all(size_);
    for (int rank = 0; rank < size_; ++rank) {
      all[rank].resize(sizes[rank]);
      if (rank == rank_) all[rank] = mine;
      SS_RETURN_IF_ERROR(BroadcastFrom(rank, all[rank]));
    }
    return all;
  }

 private:
  // MPI counts bytes by int.
  static absl::Status BroadcastFrom(int rank, std::string& text) {
    constexpr size_t kMaxBytes = std::numeric_limits<int>::max();
    for (size_t at = 0; at < text.size(); at += kMaxBytes) {
      const size_t num_bytes = std::min(kMaxBytes, text.size() - at);
      SS_RETURN_IF_ERROR(
          Check(MPI_Bcast(text.data() + at, static_cast<int>(num_bytes),
                          MPI_BYTE, rank, MPI_COMM_WORLD),
                "MPI_Bcast"));
    }
    return absl::OkStatus();
  }

  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<reshard::Processes>> LaunchedProcesses() {
  const bool is_launched = std::any_of(
      kLauncherVariables.begin(), kLauncherVariables.end(),
      // NOLINTNEXTLINE(concurrency-mt-unsafe): there are no other threads yet.
      [](const char* name) { return std::getenv(name) != nullptr; });
  if (!is_launched) return std::make_unique<reshard::OneProcess>();
  int provided = 0;
  SS_RETURN_IF_ERROR(
      Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
            "MPI_Init_thread"));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return std::make_unique<MpiProcesses>();
}

}  // namespace shardshift
