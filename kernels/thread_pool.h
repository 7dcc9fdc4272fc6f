// Threads that help another one with the kernels that it calls.
// A kernel is cut into ranges of rows, columns or elements, where no sum goes
// from one to the next: the bits do not depend on the number of threads.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_THREAD_POOL_H_
#define SHARDSHIFT_KERNELS_THREAD_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "kernels/parallel.h"

namespace shardshift::kernels {

class ThreadPool {
 public:
  // `num_threads` counts the calling thread, which is helped until the pool
  // goes, on the same thread. A thread has one pool at a time.
  explicit ThreadPool(int64_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int64_t num_threads() const { return std::ssize(helpers_) + 1; }

  // Calls run(body, begin, end) for `num_ranges` ranges of [0, count) and waits
  // for their ends. Throws what one of them threw.
  void Run(int64_t count, int64_t num_ranges, RangeFunction run,
           const void* body);

 private:
  struct Job {
    RangeFunction run = nullptr;
    const void* body = nullptr;
    int64_t count = 0;
    int64_t num_ranges = 0;
    int64_t next = 0;  // range that nobody has taken
    int64_t open = 0;  // ranges that have not ended
    std::exception_ptr error = nullptr;
  };

  // Takes ranges of the job until there are none. `lock` is held, but not
  // while a range runs.
  void Work(std::unique_lock<std::mutex>& lock);
  void Help(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any has_work_;
  std::condition_variable has_ended_;
  Job job_;
  std::vector<std::jthread> helpers_;  // the last member: they use the others
};

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_THREAD_POOL_H_
