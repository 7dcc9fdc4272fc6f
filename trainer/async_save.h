// Saves that are written while training goes on: the state is copied, which is
// all that training waits for, and a thread of each rank writes the copy.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_ASYNC_SAVE_H_
#define SHARDSHIFT_TRAINER_ASYNC_SAVE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckpt/io/aligned_buffer.h"
#include "trainer/checkpointing.h"
#include "trainer/comm/communicator.h"

namespace shardshift::trainer {

// The part of one rank, which calls it in step with all others.
class AsyncSave {
 public:
  struct Report {
    int64_t step = 0;
    absl::Duration elapsed;  // from Begin to the commit
    absl::Duration stall;    // of training, in Begin
  };

  // Allocates and touches the memory for the copies, which all saves reuse.
  // `checkpointing` outlives this. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<AsyncSave>> Create(
      const Checkpointing& checkpointing);

  // Copies the state, which may change from then on, and begins to write it.
  // REQUIRES: !in_flight().
  void Begin(SaveRequest request);

  // Whether a save has begun that Finish has not reported.
  bool in_flight() const { return writing_.valid(); }

  // Whether the save has ended on all ranks, or failed on one: the same answer
  // on all ranks. Collective over `world`; does not wait for disks.
  // REQUIRES: in_flight().
  absl::StatusOr<bool> HasEnded(Communicator& world) const;

  // Waits for the end of the save; its error is that of all ranks.
  // REQUIRES: in_flight().
  absl::StatusOr<Report> Finish();

  int64_t memory_bytes() const { return std::ssize(memory_.bytes()); }

 private:
  AsyncSave(const Checkpointing& checkpointing, ckpt::AlignedBuffer memory);

  absl::Status Write(const SaveRequest& request, absl::Time begin);

  const Checkpointing& checkpointing_;
  ckpt::AlignedBuffer memory_;
  std::vector<std::span<std::byte>> room_;  // for each image
  std::vector<std::span<const std::byte>> copies_;
  Report report_;
  std::atomic<bool> failed_ = false;
  // The last member: its destructor waits for the thread.
  std::future<absl::Status> writing_;
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_ASYNC_SAVE_H_
