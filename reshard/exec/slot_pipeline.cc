// SPDX-License-Identifier: Apache-2.0
#include "reshard/exec/slot_pipeline.h"

#include <utility>

namespace shardshift::reshard {

SlotPipeline::SlotPipeline(int64_t num_slots, std::vector<Stage> stages)
    : stages_(std::move(stages)),
      queues_(stages_.size() + 1),
      is_closed_(stages_.size() + 1, false) {
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    queues_.back().push_back(slot);
  }
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    threads_.emplace_back([this, stage] { Work(stage); });
  }
}

SlotPipeline::~SlotPipeline() {
  if (!threads_.empty()) Finish().IgnoreError();
}

absl::StatusOr<int64_t> SlotPipeline::Take() {
  std::unique_lock lock(mutex_);
  std::deque<int64_t>& free = queues_.back();
  changed_.wait(lock, [&] { return !status_.ok() || !free.empty(); });
  if (!status_.ok()) return status_;
  const int64_t slot = free.front();
  free.pop_front();
  return slot;
}

void SlotPipeline::Push(int64_t slot) {
  const std::lock_guard lock(mutex_);
  queues_.front().push_back(slot);
  changed_.notify_all();
}

absl::Status SlotPipeline::Finish() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_.front() = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return status_;
}

void SlotPipeline::Work(size_t stage) {
  std::unique_lock lock(mutex_);
  std::deque<int64_t>& queue = queues_[stage];
  while (true) {
    changed_.wait(lock, [&] { return !queue.empty() || is_closed_[stage]; });
    if (queue.empty()) break;
    const int64_t slot = queue.front();
    queue.pop_front();
    if (status_.ok()) {
      lock.unlock();
      absl::Status done = stages_[stage](slot);
      lock.lock();
      status_.Update(std::move(done));
    }
    queues_[stage + 1].push_back(slot);
    changed_.notify_all();
  }
  is_closed_[stage + 1] = true;
  changed_.notify_all();
}

}  // namespace shardshift::reshard
