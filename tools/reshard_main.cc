// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "ckpt/run_dir.h"
#include "reshard/exec/reshard.h"
#include "tools/cli.h"
#include "tools/progress_bar.h"
#include "tools/reshard_dry_run.h"
#include "tools/run_flags.h"

namespace shardshift {
namespace {

constexpr uint64_t kDefaultMemoryLimit = uint64_t{128} << 20;
constexpr uint64_t kMinMemoryLimit = uint64_t{72} << 20;
// Blocks of a codec, buffers of the disk's, the checkpoint's tables.
constexpr int64_t kMemoryBesidesBands = int64_t{64} << 20;

struct ReshardFlags {
  std::string source;
  std::string destination;
  LayoutFlags layout;
  ckpt::Codec codec = ckpt::Codec::kNone;
  bool sequence_parallel = false;
  bool json = false;
  bool dry_run = false;
  uint64_t memory_limit = kDefaultMemoryLimit;
};

int64_t MemoryOfBands(const ReshardFlags& flags) {
  return static_cast<int64_t>(flags.memory_limit) - kMemoryBesidesBands;
}

void PrintReport(const reshard::ReshardReport& report, double seconds,
                 const ReshardFlags& flags) {
  if (flags.json) {
    std::cout << nlohmann::json{{"step", report.step},
                                {"from", reshard::ToJson(report.from)},
                                {"to", reshard::ToJson(report.to)},
                                {"tensors", report.tensors},
                                {"bytes", report.payload_bytes},
                                {"parts", report.parts},
                                {"seconds", seconds},
                                {"root_fingerprint_before",
                                 ToString(report.root_before)},
                                {"root_fingerprint_after",
                                 ToString(report.root_after)},
                                {"equal", report.proof.ok()}}
                     .dump()
              << "\n";
    return;
  }
  std::cout << absl::StreamFormat(
      "step %d: %s -> %s\n%d tensors, %d bytes, %d part files in %s, %.2f s "
      "(%.0f MB/s)\n",
      report.step, reshard::ToString(report.from), reshard::ToString(report.to),
      report.tensors, report.payload_bytes, report.parts, flags.destination,
      seconds, static_cast<double>(report.payload_bytes) / 1e6 / seconds);
  std::cout << absl::StreamFormat(
      "fingerprint %s before, %s after: %s\n", ToString(report.root_before),
      ToString(report.root_after),
      report.proof.ok() ? "every value is equal, bit for bit" : "DIFFERENT");
}

absl::StatusOr<int> RunReshard(const ReshardFlags& flags) {
  SS_ASSIGN_OR_RETURN(
      const ckpt::ResolvedCheckpoint found,
      ckpt::ResolveCheckpoint(flags.source, flags.dry_run
                                                ? ckpt::PartFiles::kAllOrNone
                                                : ckpt::PartFiles::kNeeded));
  if (!found.note.empty()) std::cerr << found.note << std::endl;
  if (!found.reader->has_parts()) {
    std::cerr << "note: " << found.step_dir
              << " is an index alone, its parts are missing: this can be "
                 "planned, not done"
              << std::endl;
  }
  if (flags.dry_run) {
    SS_ASSIGN_OR_RETURN(
        const reshard::DryRunReport report,
        reshard::DryRun(
            *found.reader, ApplyLayout(flags.layout, {}),
            {.memory_bytes = MemoryOfBands(flags), .codec = flags.codec}));
    const ckpt::Table& table = found.reader->table();
    std::cout << (flags.json
                      ? DryRunJson(report, kMemoryBesidesBands, table).dump() +
                            "\n"
                      : DryRunText(report, kMemoryBesidesBands, table));
    return kExitDone;
  }
  const absl::Time begin = absl::Now();
  absl::StatusOr<reshard::ReshardReport> report = [&] {
    ProgressBar bar;
    const auto show = [&bar](int64_t done, int64_t total) {
      bar.Show(done, total);
    };
    return reshard::ReshardCheckpoint(*found.reader, flags.destination,
                                      ApplyLayout(flags.layout, {}),
                                      {.memory_bytes = MemoryOfBands(flags),
                                       .codec = flags.codec,
                                       .progress = show});
  }();
  SS_RETURN_IF_ERROR(report.status());
  if (!report->replaced_leftover.empty()) {
    std::cerr << "replaced " << report->replaced_leftover
              << ", left by an earlier reshard" << std::endl;
  }
  PrintReport(*report, absl::ToDoubleSeconds(absl::Now() - begin), flags);
  SS_RETURN_IF_ERROR(report->proof);
  return kExitDone;
}

}  // namespace
}  // namespace shardshift

int main(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app = shardshift::MakeCli(
      "reshard",
      "Rewrites a checkpoint for another parallel layout, and proves that no "
      "value changed. Axes that are not given are 1.");
  shardshift::ReshardFlags flags;
  app->add_option("source", flags.source,
                  "run directory (its newest checkpoint) or one checkpoint")
      ->required()
      ->type_name("SRC");
  app->add_option("destination", flags.destination,
                  "run directory to make; must not exist")
      ->required()
      ->type_name("DST");
  shardshift::AddLayoutFlags(*app, flags.layout,
                             shardshift::FlagScope::kCheckpoints);
  shardshift::AddCodecFlag(*app, flags.codec);
  app->add_flag("--sequence-parallel", flags.sequence_parallel,
                "accepted; checkpoints do not depend on it")
      ->group("Layout");
  app->add_flag("--dry-run", flags.dry_run,
                "check and plan, write nothing: bytes, memory, time, and what "
                "is cut most");
  app->add_option("--memory-limit", flags.memory_limit,
                  "memory to take, the program itself apart (128MiB); less is "
                  "slower")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(shardshift::kMinMemoryLimit, uint64_t{1} << 40)
                  .description(""))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("SIZE");
  app->add_flag("--json", flags.json, "report as one JSON object");
  return shardshift::RunCli(*app, argc, argv,
                            [&flags] { return RunReshard(flags); });
}
