// Times sums over the ranks of a job, beside those of MPI itself:
//   mpirun -np 4 build/bin/comm_bench
// The figures are the slowest rank's median, in microseconds.
// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckpt/core/status_macros.h"
#include "trainer/comm/mpi/mpi_world.h"

namespace shardshift {
namespace {

constexpr int kRepeats = 15;

// Of this rank; all begin together.
absl::StatusOr<double> MedianMicroseconds(
    trainer::Communicator& world, const std::function<absl::Status()>& call) {
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    SS_RETURN_IF_ERROR(world.Barrier());
    const absl::Time begin = absl::Now();
    SS_RETURN_IF_ERROR(call());
    times.push_back(absl::ToDoubleMicroseconds(absl::Now() - begin));
  }
  std::ranges::sort(times);
  auto median = static_cast<float>(times[kRepeats / 2]);
  SS_RETURN_IF_ERROR(world.AllReduceMax(std::span(&median, 1)));
  return median;
}

absl::Status Measure(trainer::Communicator& world, int64_t count) {
  std::vector<float> x(count, 1.0f);
  std::vector<float> sum(count);
  const trainer::TreeBuffer mine = {{world.rank(), world.rank() + 1}, x.data()};
  const trainer::TreeInput input = {world.size(), {&mine, 1}, count};
  const int64_t begin = count * world.rank() / world.size();
  const int64_t end = count * (world.rank() + 1) / world.size();
  SS_ASSIGN_OR_RETURN(const double all_reduce, MedianMicroseconds(world, [&] {
                        return world.TreeAllReduce(input, sum.data());
                      }));
  SS_ASSIGN_OR_RETURN(
      const double reduce_scatter, MedianMicroseconds(world, [&] {
        return world.TreeReduceScatter(input, begin, end, sum.data());
      }));
  SS_ASSIGN_OR_RETURN(const double of_mpi, MedianMicroseconds(world, [&] {
                        MPI_Allreduce(x.data(), sum.data(),
                                      static_cast<int>(count), MPI_FLOAT,
                                      MPI_SUM, MPI_COMM_WORLD);
                        return absl::OkStatus();
                      }));
  if (world.rank() == 0) {
    std::cout << absl::StrFormat(
                     "%d ranks, %9d bytes: TreeAllReduce %9.0f, "
                     "TreeReduceScatter %9.0f, MPI_Allreduce %9.0f",
                     world.size(), 4 * count, all_reduce, reduce_scatter,
                     of_mpi)
              << std::endl;
  }
  return absl::OkStatus();
}

absl::Status Run() {
  SS_ASSIGN_OR_RETURN(const auto job, trainer::MpiWorld::Join());
  return job->Run(absl::Minutes(2), [](trainer::Communicator& world) {
    for (const int64_t count : {64, 4096, 1 << 18, 1 << 22}) {
      SS_RETURN_IF_ERROR(Measure(world, count));
    }
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace shardshift

int main() {
  const absl::Status status = shardshift::Run();
  if (!status.ok()) std::cerr << "error: " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
