// Flags put over values that come from a checkpoint or a default.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_OVERLAY_H_
#define SHARDSHIFT_TOOLS_OVERLAY_H_

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/model_config.h"
#include "trainer/activation_options.h"
#include "trainer/lr_schedule.h"
#include "trainer/moe_loss.h"
#include "trainer/precision.h"

namespace shardshift {

// Whether a resumed run may change a value.
enum class Change {
  kFree,      // may differ from the checkpoint; said
  kSchedule,  // needs --override-opt-param-scheduler
  kNever,
};

// A value as a flag has it.
template <typename T>
std::string FlagText(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "on" : "off";
  } else if constexpr (std::is_same_v<T, reshard::Normalization>) {
    return value == reshard::Normalization::kRmsNorm ? "RMSNorm" : "LayerNorm";
  } else if constexpr (std::is_same_v<T, reshard::PositionEmbedding>) {
    return value == reshard::PositionEmbedding::kRope ? "rope"
                                                      : "learned_absolute";
  } else if constexpr (std::is_same_v<T, trainer::LrDecayStyle>) {
    return std::string(trainer::LrDecayStyleName(value));
  } else if constexpr (std::is_same_v<T, trainer::RecomputeGranularity> ||
                       std::is_same_v<T, trainer::RecomputeMethod> ||
                       std::is_same_v<T, trainer::Precision> ||
                       std::is_same_v<T, trainer::LoadBalancing>) {
    return std::string(trainer::Name(value));
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return absl::StrCat("[", absl::StrJoin(value, ","), "]");
  } else {
    return absl::StrCat(value);
  }
}

// Remembers what changes against the values below, and the first one that may
// not.
class Overlay {
 public:
  // `origin` is what the values below are of; null if they are defaults.
  // `advice` ends the refusal of a change.
  Overlay(const char* origin, const char* advice, bool override_schedule)
      : origin_(origin),
        advice_(advice),
        override_schedule_(override_schedule) {}

  template <typename T>
  void Set(const char* flag, const std::optional<T>& given, T& value,
           Change change) {
    if (!given.has_value() || *given == value) return;
    if (origin_ != nullptr) {
      const std::string difference =
          absl::StrCat(flag, " is ", FlagText(*given), ", ", origin_, " has ",
                       FlagText(value));
      if (change == Change::kNever) {
        Refuse(absl::StrCat(difference, advice_));
      } else if (change == Change::kSchedule && !override_schedule_) {
        Refuse(absl::StrCat(difference,
                            "; to change it all the same, add "
                            "--override-opt-param-scheduler"));
      }
      Note(difference);
    }
    value = *given;
  }

  void Refuse(const std::string& why) {
    status_.Update(absl::InvalidArgumentError(why));
  }

  void Note(std::string change) { changes_.push_back(std::move(change)); }

  const absl::Status& status() const { return status_; }
  std::vector<std::string>& changes() { return changes_; }

 private:
  const char* origin_;
  const char* advice_;
  bool override_schedule_;
  absl::Status status_;
  std::vector<std::string> changes_;
};

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_OVERLAY_H_
