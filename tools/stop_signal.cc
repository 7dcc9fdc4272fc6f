// SPDX-License-Identifier: Apache-2.0
#include "tools/stop_signal.h"

#include <atomic>
#include <csignal>

namespace shardshift {
namespace {

std::atomic<int> caught = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // so a handler may

void Catch(int signal) {
  int none = 0;
  caught.compare_exchange_strong(none, signal);
}

}  // namespace

void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = Catch;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    sigaction(signal, &action, nullptr);
  }
}

int CaughtStopSignal() { return caught; }

}  // namespace shardshift
