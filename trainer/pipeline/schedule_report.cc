// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline/schedule_report.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shardshift::trainer {
namespace {

using Kind = PipelineStep::Kind;

std::string Text(const PipelineShape& shape, const PipelineStep& step) {
  std::string text =
      absl::StrCat(step.kind == Kind::kForward ? "F" : "B", step.micro_batch);
  if (shape.chunks > 1) absl::StrAppend(&text, ".", step.chunk);
  return text;
}

class Simulation {
 public:
  Simulation(const PipelineShape& shape, const Schedules& schedules)
      : shape_(shape), schedules_(schedules), timeline_(schedules.size()) {
    for (auto* ends : {&forward_ends_, &backward_ends_}) {
      ends->resize(shape.stages * shape.chunks * shape.micro_batches);
    }
  }

  absl::StatusOr<Timeline> Run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int64_t stage = 0; stage < shape_.stages; ++stage) {
        while (Advance(stage)) moved = true;
      }
    }
    std::string stuck;
    for (int64_t stage = 0; stage < shape_.stages; ++stage) {
      const size_t done = timeline_[stage].size();
      if (done == schedules_[stage].size()) continue;
      absl::StrAppend(&stuck, " ", Text(shape_, schedules_[stage][done]),
                      " of stage ", stage, ";");
    }
    if (stuck.empty()) return std::move(timeline_);
    return absl::InternalError(
        absl::StrCat("the pipeline schedule waits for ever for", stuck));
  }

 private:
  using End = std::optional<int64_t>;

  // Of a micro-batch in chunk `number`, counted in the order of the layers.
  End& EndOf(std::vector<End>& ends, int64_t number, int64_t micro_batch) {
    return ends[number * shape_.micro_batches + micro_batch];
  }

  // When the input of a step is there; nullopt: what makes it is not yet done.
  End InputTime(const PipelineStep& step, int64_t number) {
    if (step.kind == Kind::kForward) {
      return number == 0 ? End(0)
                         : EndOf(forward_ends_, number - 1, step.micro_batch);
    }
    const int64_t last = shape_.stages * shape_.chunks - 1;
    return number == last ? EndOf(forward_ends_, number, step.micro_batch)
                          : EndOf(backward_ends_, number + 1, step.micro_batch);
  }

  // Does the next step of a stage, if it can be done.
  bool Advance(int64_t stage) {
    std::vector<TimedStep>& done = timeline_[stage];
    if (done.size() == schedules_[stage].size()) return false;
    const PipelineStep& step = schedules_[stage][done.size()];
    const int64_t number = step.chunk * shape_.stages + stage;
    const End input = InputTime(step, number);
    if (!input.has_value()) return false;
    const bool is_forward = step.kind == Kind::kForward;
    const int64_t begin =
        std::max(*input, done.empty() ? int64_t{0} : done.back().end);
    const int64_t end = begin + (is_forward ? kForwardSlots : kBackwardSlots);
    EndOf(is_forward ? forward_ends_ : backward_ends_, number,
          step.micro_batch) = end;
    done.push_back({step, begin, end});
    return true;
  }

  const PipelineShape& shape_;
  const Schedules& schedules_;
  Timeline timeline_;
  std::vector<End> forward_ends_;
  std::vector<End> backward_ends_;
};

int64_t SlotsOf(const Timeline& timeline) {
  int64_t slots = 0;
  for (const std::vector<TimedStep>& steps : timeline) {
    if (!steps.empty()) slots = std::max(slots, steps.back().end);
  }
  return slots;
}

// What is in each slot of a stage.
std::vector<std::string> Cells(const PipelineShape& shape,
                               const std::vector<TimedStep>& steps,
                               int64_t slots) {
  std::vector<std::string> cells(slots, ".");
  for (const TimedStep& timed : steps) {
    for (int64_t slot = timed.begin; slot < timed.end; ++slot) {
      cells[slot] = Text(shape, timed.step);
    }
  }
  return cells;
}

std::string FormulaText(const PipelineShape& shape) {
  return absl::StrFormat(
      "%s is %.4f", shape.chunks == 1 ? "(P-1)/(M+P-1)" : "(P-1)/(V*M+P-1)",
      BubbleFormula(shape));
}

}  // namespace

Schedules SchedulesOf(const PipelineShape& shape) {
  Schedules schedules;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    schedules.push_back(ScheduleOf(shape, stage));
  }
  return schedules;
}

absl::StatusOr<Timeline> Simulate(const PipelineShape& shape,
                                  const Schedules& schedules) {
  return Simulation(shape, schedules).Run();
}

double BubbleOf(const Timeline& timeline) {
  int64_t busy = 0;
  for (const std::vector<TimedStep>& steps : timeline) {
    for (const TimedStep& timed : steps) busy += timed.end - timed.begin;
  }
  const auto all =
      static_cast<double>(std::ssize(timeline) * SlotsOf(timeline));
  return 1.0 - static_cast<double>(busy) / all;
}

double BubbleFormula(const PipelineShape& shape) {
  const auto idle = static_cast<double>(shape.stages - 1);
  return idle /
         (static_cast<double>(shape.chunks * shape.micro_batches) + idle);
}

std::string TimelineText(const PipelineShape& shape, const Timeline& timeline,
                         int64_t width) {
  const int64_t slots = SlotsOf(timeline);
  std::vector<std::vector<std::string>> cells;
  size_t cell_width = 0;
  for (const std::vector<TimedStep>& steps : timeline) {
    cells.push_back(Cells(shape, steps, slots));
    for (const std::string& cell : cells.back()) {
      cell_width = std::max(cell_width, cell.size());
    }
  }
  const int64_t label =
      std::ssize(absl::StrCat("stage ", shape.stages - 1)) + 1;
  const int64_t columns = std::max<int64_t>(
      1, (width - label) / (static_cast<int64_t>(cell_width) + 1));
  std::string text;
  for (int64_t first = 0; first < slots; first += columns) {
    const int64_t end = std::min(first + columns, slots);
    if (columns < slots) {
      absl::StrAppend(&text, "slots ", first, " to ", end - 1, "\n");
    }
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      std::string line =
          absl::StrFormat("%-*s", label, absl::StrCat("stage ", stage));
      for (int64_t slot = first; slot < end; ++slot) {
        absl::StrAppendFormat(&line, " %-*s", cell_width, cells[stage][slot]);
      }
      line.resize(line.find_last_not_of(' ') + 1);
      absl::StrAppend(&text, line, "\n");
    }
  }
  return text;
}

double MeasuredBubble(std::span<const StageTimes> stages) {
  absl::Duration longest;
  absl::Duration busy;
  for (const StageTimes& stage : stages) {
    longest = std::max(longest, stage.whole);
    busy += stage.whole - stage.waiting;
  }
  if (longest == absl::ZeroDuration()) return 0;
  return 1.0 - absl::FDivDuration(
                   busy, longest * static_cast<int64_t>(stages.size()));
}

std::string ScheduleText(const PipelineShape& shape) {
  constexpr int64_t kWidth = 100;
  const Timeline timeline = Simulate(shape, SchedulesOf(shape)).value();
  return absl::StrFormat(
      "pipeline schedule: %d stages (P) x %d chunks (V), %d micro-batches (M), "
      "%s\n%sbubble: %.4f of %d slots (forward %d, backward %d); %s",
      shape.stages, shape.chunks, shape.micro_batches,
      shape.chunks == 1 ? "1F1B" : "interleaved 1F1B",
      TimelineText(shape, timeline, kWidth), BubbleOf(timeline),
      SlotsOf(timeline), kForwardSlots, kBackwardSlots, FormulaText(shape));
}

std::string MeasuredText(const PipelineShape& shape,
                         std::span<const StageTimes> stages,
                         int64_t iterations) {
  std::string text;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    absl::StrAppendFormat(
        &text, "stage %d: waited %.3f s for other stages in %.3f s\n", stage,
        absl::ToDoubleSeconds(stages[stage].waiting),
        absl::ToDoubleSeconds(stages[stage].whole));
  }
  return absl::StrFormat("%sbubble measured over %d iterations: %.4f; %s", text,
                         iterations, MeasuredBubble(stages),
                         FormulaText(shape));
}

}  // namespace shardshift::trainer
