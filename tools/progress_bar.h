// How far a long command is.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_PROGRESS_BAR_H_
#define SHARDSHIFT_TOOLS_PROGRESS_BAR_H_

#include <cstdint>

#include "absl/time/time.h"

namespace shardshift {

// A line on stderr that is drawn over and over, with rate and time left, and
// wiped at the end; nothing where stderr is no terminal. Not thread-safe.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(int64_t done_bytes, int64_t total_bytes);

 private:
  bool enabled_;
  absl::Time begin_;
  int64_t shown_percent_ = -1;
};

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_PROGRESS_BAR_H_
