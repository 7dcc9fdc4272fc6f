// SPDX-License-Identifier: Apache-2.0
#include "tools/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace shardshift {
namespace {

constexpr int64_t kWidth = 30;

}  // namespace

ProgressBar::ProgressBar()
    : enabled_(isatty(STDERR_FILENO) == 1), begin_(absl::Now()) {}

ProgressBar::~ProgressBar() {
  if (shown_percent_ >= 0) std::cerr << "\r\033[K" << std::flush;
}

void ProgressBar::Show(int64_t done_bytes, int64_t total_bytes) {
  if (!enabled_ || done_bytes <= 0) return;
  const double share =
      static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
  const auto percent = static_cast<int64_t>(100 * share);
  if (percent == shown_percent_) return;
  shown_percent_ = percent;
  const double seconds =
      std::max(1e-3, absl::ToDoubleSeconds(absl::Now() - begin_));
  std::string bar(kWidth, ' ');
  std::fill_n(bar.begin(), std::min(kWidth, kWidth * percent / 100), '#');
  std::cerr << absl::StreamFormat(
                   "\r[%s] %3d%%  %.0f MB/s  %.0f s left \033[K", bar, percent,
                   static_cast<double>(done_bytes) / 1e6 / seconds,
                   seconds * (1 - share) / share)
            << std::flush;
}

}  // namespace shardshift
