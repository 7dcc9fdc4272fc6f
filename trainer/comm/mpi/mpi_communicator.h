// Ranks as processes under MPI.
// Short calls travel in the letters that begin each call, and every rank works
// out the result by itself. Long sums: each rank gets its chunk of every node,
// adds up by the tree, and hands it round; the same bytes as a ring, in two
// steps. MPI adds nothing, and no order of arrival shows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_MPI_MPI_COMMUNICATOR_H_
#define SHARDSHIFT_TRAINER_COMM_MPI_MPI_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/mpi/mpi_call.h"
#include "trainer/comm/mpi/mpi_world.h"

namespace shardshift::trainer {

class MpiCommunicator final : public Communicator {
 public:
  // `world` outlives this.
  MpiCommunicator(MpiWorld& world, MpiGroup group, int rank);

 private:
  absl::Status DoBarrier() override;
  absl::Status DoBroadcast(std::span<std::byte> data, int root) override;
  absl::Status DoAllGatherV(std::span<const std::byte> mine,
                            std::span<const int64_t> sizes_bytes,
                            std::span<std::byte> all) override;
  absl::Status DoAllReduceMax(std::span<float> x) override;
  absl::Status DoAllReduceSum(std::span<int64_t> x) override;
  absl::Status DoTreeReduceScatter(const TreeInput& input, int64_t begin,
                                   int64_t end, float* out) override;
  absl::Status DoTreeAllReduce(const TreeInput& input, float* out) override;
  absl::Status DoSend(int destination, int64_t tag,
                      std::span<const std::byte> data) override;
  absl::Status DoRecv(int source, int64_t tag,
                      std::span<std::byte> data) override;
  absl::StatusOr<std::unique_ptr<Communicator>> DoSplit(
      int64_t color, int64_t key, absl::string_view name) override;

  MpiCall NewCall() {
    return MpiCall(world_, group_, rank(), num_calls_++, timeout());
  }
  // Of chunk `r` when `count` elements are dealt to the ranks.
  int64_t ChunkBegin(int64_t count, int64_t r) const {
    return count * r / size();
  }

  template <typename T, typename Op>
  absl::Status ReduceExactly(CommKind kind, std::span<T> x, Op op);
  // All get the chunks of `x` that the others have.
  template <typename T>
  absl::Status GatherChunks(MpiCall& call, std::span<T> x);

  absl::Status BeginTree(MpiCall& call, CommKind kind, const TreeInput& input,
                         int64_t begin, int64_t end);
  // Elements [begin, end) of the sum, where `begin` and `end` are those of
  // this rank's notice.
  absl::Status SumOwnRange(MpiCall& call, const TreeInput& input, float* out);
  absl::Status SumNotices(const MpiCall& call, const TreeInput& input,
                          int64_t begin, int64_t end, float* out) const;

  absl::StatusOr<Letter> TakeLetter(int world_source, int64_t tag);
  absl::Status TakeMessage(int world_source, const Letter& letter,
                           std::span<std::byte> data);
  // Fails the world, with the error that it returns.
  absl::Status Late(absl::string_view awaited);
  std::string DescribeRecv() const;

  MpiWorld& world_;
  const MpiGroup group_;
  int64_t num_calls_ = 0;
  std::vector<float> nodes_of_peers_;  // kept, as new memory is slow
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_MPI_MPI_COMMUNICATOR_H_
