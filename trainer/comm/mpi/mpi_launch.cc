// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mpi/mpi_launch.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace shardshift::trainer {
namespace {

// Set for each process by the launchers of Open MPI, of PMIx (srun among
// them), and of MPICH and its kin.
constexpr std::array<const char*, 3> kLauncherVariables = {
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

absl::StatusOr<MakeMpiCalls> LoadModule() {
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path path =
      program.parent_path().parent_path() / "lib" / "libshardshift_mpi.so";
  // MPI's own plugins look for the symbols of its libraries.
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* const symbol =
      module == nullptr ? nullptr : dlsym(module, kMpiCallsSymbol);
  if (symbol != nullptr) return reinterpret_cast<MakeMpiCalls>(symbol);
  return absl::FailedPreconditionError(absl::StrCat(
      "a launcher started this process, but MPI does not load: ",
      dlerror(),  // NOLINT(concurrency-mt-unsafe): of this thread in glibc
      "; build it with tools/build.sh, or start the program without a "
      "launcher"));
}

}  // namespace

bool IsLaunched() {
  return std::any_of(
      kLauncherVariables.begin(), kLauncherVariables.end(),
      // NOLINTNEXTLINE(concurrency-mt-unsafe): there are no other threads yet.
      [](const char* name) { return std::getenv(name) != nullptr; });
}

absl::StatusOr<MpiCalls*> StartMpi() {
  const absl::StatusOr<MakeMpiCalls> make = LoadModule();
  if (!make.ok()) return make.status();
  MpiCalls* const calls = (*make)();
  const int code = calls->Start();
  if (code == 0) return calls;
  return absl::InternalError(
      absl::StrCat("MPI_Init_thread: ", calls->ErrorText(code)));
}

}  // namespace shardshift::trainer
