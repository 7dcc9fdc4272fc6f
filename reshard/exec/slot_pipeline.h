// Work that passes through stages in a fixed number of slots.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_EXEC_SLOT_PIPELINE_H_
#define SHARDSHIFT_RESHARD_EXEC_SLOT_PIPELINE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shardshift::reshard {

// One thread takes slots and pushes them; each stage has a thread of its own,
// and works on one slot at a time, in the order in which they were pushed.
// After an error nothing more is begun.
class SlotPipeline {
 public:
  using Stage = std::function<absl::Status(int64_t slot)>;

  SlotPipeline(int64_t num_slots, std::vector<Stage> stages);
  // Waits for what is under way.
  ~SlotPipeline();

  // A free slot, from 0 on; waits for one. Errors: the first of any stage.
  absl::StatusOr<int64_t> Take();
  // Hands it to the first stage.
  void Push(int64_t slot);
  // Waits until all slots have passed. Call once, last.
  absl::Status Finish();

 private:
  void Work(size_t stage);

  std::vector<Stage> stages_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // What each stage has before it, and last the free slots.
  std::vector<std::deque<int64_t>> queues_;
  std::vector<bool> is_closed_;  // nothing more comes into the queue
  absl::Status status_;
  std::vector<std::thread> threads_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_EXEC_SLOT_PIPELINE_H_
