// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_pool.h"

#include <algorithm>
#include <cfenv>
#include <utility>

namespace shardshift::kernels {
namespace {

// To wake a thread and to wait for it takes some tens of microseconds.
constexpr int64_t kLeastRangeNs = 40000;

thread_local ThreadPool* own_pool = nullptr;

// Within a range a thread is on its own.
class WithoutPool {
 public:
  WithoutPool() { own_pool = nullptr; }
  ~WithoutPool() { own_pool = pool_; }
  WithoutPool(const WithoutPool&) = delete;
  WithoutPool& operator=(const WithoutPool&) = delete;

 private:
  ThreadPool* const pool_ = own_pool;
};

}  // namespace

ThreadPool::ThreadPool(int64_t num_threads) {
  for (int64_t i = 1; i < num_threads; ++i) {
    helpers_.emplace_back([this](const std::stop_token& stop) { Help(stop); });
  }
  own_pool = this;
}

ThreadPool::~ThreadPool() { own_pool = nullptr; }

void ThreadPool::Work(std::unique_lock<std::mutex>& lock) {
  while (job_.next < job_.num_ranges) {
    const int64_t range = job_.next++;
    const int64_t begin = job_.count * range / job_.num_ranges;
    const int64_t end = job_.count * (range + 1) / job_.num_ranges;
    const RangeFunction run = job_.run;
    const void* const body = job_.body;
    lock.unlock();
    std::exception_ptr error;
    try {
      run(body, begin, end);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error != nullptr) job_.error = std::move(error);
    if (--job_.open == 0) has_ended_.notify_one();
  }
}

void ThreadPool::Run(int64_t count, int64_t num_ranges, RangeFunction run,
                     const void* body) {
  std::unique_lock lock(mutex_);
  job_ = {.run = run,
          .body = body,
          .count = count,
          .num_ranges = num_ranges,
          .open = num_ranges};
  for (int64_t i = 1; i < num_ranges; ++i) has_work_.notify_one();
  Work(lock);
  has_ended_.wait(lock, [this] { return job_.open == 0; });
  if (job_.error != nullptr) {
    std::rethrow_exception(std::exchange(job_.error, nullptr));
  }
}

void ThreadPool::Help(const std::stop_token& stop) {
  std::fesetenv(FE_DFL_ENV);  // as that of whom it helps
  std::unique_lock lock(mutex_);
  while (has_work_.wait(lock, stop,
                        [this] { return job_.next < job_.num_ranges; })) {
    Work(lock);
  }
}

void RunRanges(int64_t count, int64_t item_ns, RangeFunction run,
               const void* body) {
  const int64_t worth = count * item_ns / kLeastRangeNs;
  ThreadPool* const pool = own_pool;
  if (pool == nullptr || worth < 2) return run(body, 0, count);
  const int64_t num_ranges = std::min({pool->num_threads(), count, worth});
  if (num_ranges < 2) return run(body, 0, count);
  const WithoutPool within;
  pool->Run(count, num_ranges, run, body);
}

}  // namespace shardshift::kernels
