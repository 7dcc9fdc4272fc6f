// SPDX-License-Identifier: Apache-2.0
#include "ckpt/io/worker_pool.h"

#include <algorithm>
#include <utility>

namespace shardshift::ckpt {

// Tasks [0, num_tasks) of one call, shared by the threads that run them.
class WorkerPool::Batch {
 public:
  Batch(int64_t num_tasks, absl::AnyInvocable<absl::Status(int64_t)> task)
      : task_(std::move(task)), end_(num_tasks) {}

  // Runs tasks until none is left to begin.
  void Work() {
    std::unique_lock lock(mutex_);
    while (next_ < end_) {
      const int64_t index = next_++;
      ++num_running_;
      lock.unlock();
      absl::Status status = task_(index);
      lock.lock();
      --num_running_;
      if (!status.ok()) {
        end_ = next_;
        if (status_.ok() || index < failed_) {
          failed_ = index;
          status_ = std::move(status);
        }
      }
    }
    if (num_running_ == 0) done_.notify_all();
  }

  // Begins no more tasks.
  void Drop() {
    const std::lock_guard lock(mutex_);
    end_ = next_;
  }

  // After Work() or Drop(), once: waits for the tasks that have begun.
  absl::Status Finish() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return num_running_ == 0; });
    // A worker may yet come to look for tasks; what they own is freed now.
    task_ = nullptr;
    return std::exchange(status_, absl::OkStatus());
  }

 private:
  absl::AnyInvocable<absl::Status(int64_t)> task_;
  std::mutex mutex_;
  std::condition_variable done_;
  int64_t next_ = 0;
  int64_t end_;
  int64_t num_running_ = 0;
  // The first task, by index, that failed, if status_ is not OK.
  int64_t failed_ = 0;
  absl::Status status_;
};

WorkerPool::Pending::Pending(std::shared_ptr<Batch> batch)
    : batch_(std::move(batch)) {}

WorkerPool::Pending& WorkerPool::Pending::operator=(Pending&& other) noexcept {
  std::swap(batch_, other.batch_);
  return *this;
}

WorkerPool::Pending::~Pending() {
  if (batch_ == nullptr) return;
  batch_->Drop();
  batch_->Finish().IgnoreError();
}

absl::Status WorkerPool::Pending::Wait() {
  if (batch_ == nullptr) return absl::OkStatus();
  batch_->Work();
  return std::exchange(batch_, nullptr)->Finish();
}

WorkerPool::WorkerPool(int64_t num_threads) {
  threads_.reserve(static_cast<size_t>(num_threads));
  for (int64_t i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

WorkerPool& WorkerPool::Default() {
  // Never destroyed: threads cannot be joined safely while the process ends.
  static WorkerPool& pool = *new WorkerPool(
      std::clamp<int64_t>(std::thread::hardware_concurrency(), 2, 4));
  return pool;
}

absl::Status WorkerPool::Run(
    int64_t num_tasks, absl::FunctionRef<absl::Status(int64_t index)> task) {
  return Start(num_tasks, task).Wait();
}

WorkerPool::Pending WorkerPool::Submit(
    absl::AnyInvocable<absl::Status()> task) {
  return Start(1, [task = std::move(task)](int64_t) mutable { return task(); });
}

WorkerPool::Pending WorkerPool::Start(
    int64_t num_tasks, absl::AnyInvocable<absl::Status(int64_t index)> task) {
  const auto batch = std::make_shared<Batch>(num_tasks, std::move(task));
  const auto num_helpers =
      std::min(num_tasks, static_cast<int64_t>(threads_.size()));
  {
    const std::lock_guard lock(mutex_);
    queue_.insert(queue_.end(), static_cast<size_t>(num_helpers), batch);
  }
  for (int64_t i = 0; i < num_helpers; ++i) has_work_.notify_one();
  return Pending(batch);
}

void WorkerPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Batch> batch = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    batch->Work();
    lock.lock();
  }
}

}  // namespace shardshift::ckpt
