// Threads that share the work of reads and writes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_IO_WORKER_POOL_H_
#define SHARDSHIFT_CKPT_IO_WORKER_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace shardshift::ckpt {

// Tasks are handed out in order. After an error no more of its batch are; the
// batch's error is that of its first task, by index, which fails, whatever
// the threads do.
//
// Whoever waits for a batch runs its tasks too, so that tasks may themselves
// use the pool, and a pool without a free thread is only slower. Waits have
// no timeout: tasks borrow the memory of those who wait for them.
class WorkerPool {
 private:
  class Batch;

 public:
  // Tasks under way.
  class [[nodiscard]] Pending {
   public:
    Pending() = default;
    Pending(Pending&&) noexcept = default;
    Pending& operator=(Pending&& other) noexcept;
    // Drops the tasks that have not begun and waits for the others.
    ~Pending();

    // Runs what has not begun, waits for the rest, and gives the error. OK if
    // there is nothing to wait for, or no more.
    absl::Status Wait();

   private:
    friend class WorkerPool;
    explicit Pending(std::shared_ptr<Batch> batch);
    std::shared_ptr<Batch> batch_;
  };

  explicit WorkerPool(int64_t num_threads);
  // All Pending must be gone.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // The pool of the process, with a thread a core, but at least 2, as writes
  // mostly wait, and at most 4, which saturate a disk. Made at the first call.
  static WorkerPool& Default();

  // Calls task(0) to task(num_tasks - 1), on the workers and on the caller's
  // thread, and returns when they are done. Thread-safe: a caller waits for
  // its own tasks alone.
  absl::Status Run(int64_t num_tasks,
                   absl::FunctionRef<absl::Status(int64_t index)> task);

  // Begins `task` on a worker. Thread-safe.
  Pending Submit(absl::AnyInvocable<absl::Status()> task);

 private:
  Pending Start(int64_t num_tasks,
                absl::AnyInvocable<absl::Status(int64_t index)> task);
  void Work();

  std::mutex mutex_;
  std::condition_variable has_work_;
  // A batch once for each worker that it can use.
  std::deque<std::shared_ptr<Batch>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_IO_WORKER_POOL_H_
