// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "reshard/exec/copy_plan.h"
#include "reshard/exec/export.h"
#include "reshard/exec/processes.h"
#include "reshard/exec/reshard.h"
#include "reshard/formats/format.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/plan_export.h"
#include "tools/cli.h"
#include "tools/comm_processes.h"
#include "tools/launched_cli.h"
#include "tools/picture.h"
#include "tools/plan_picture.h"
#include "tools/progress_bar.h"
#include "tools/reshard_dry_run.h"
#include "tools/reshard_explain.h"
#include "tools/reshard_flags.h"
#include "tools/reshard_formats.h"
#include "tools/reshard_report.h"
#include "tools/run_flags.h"

namespace shardshift {
namespace {

// As many as the system allows: a part that is being written takes two, and all
// parts of a pipeline stage are.
void RaiseOpenFilesLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status DrawPlan(const ReshardFlags& flags,
                      const reshard::OpenedSource& source,
                      const reshard::CopyChoice& choice) {
  if (flags.picture.empty()) return absl::OkStatus();
  SS_RETURN_IF_ERROR(CheckPicturePath(flags.picture));
  SS_ASSIGN_OR_RETURN(
      const Picture picture,
      PlanPicture(source, ApplyLayout(flags.layout, {}), choice));
  return WritePicture(flags.picture, picture);
}

absl::StatusOr<reshard::ExportPlan> PlanExport(
    const ReshardFlags& flags, const reshard::OpenedSource& source,
    reshard::Format to, const reshard::CopyChoice& choice) {
  return reshard::PlanExport(
      source, to,
      {.choice = choice,
       .generic = flags.generic,
       .max_shard_size = flags.max_shard_size.value_or("50GB"),
       .layout = ApplyLayout(flags.layout, {})});
}

absl::StatusOr<reshard::DryRunReport> DryRun(
    const ReshardFlags& flags, const reshard::OpenedSource& source,
    reshard::Format to, const reshard::CopyChoice& choice) {
  const reshard::ReshardOptions options = {.choice = choice,
                                           .generic = flags.generic,
                                           .memory_bytes = MemoryOfBands(flags),
                                           .codec = flags.codec};
  if (to == reshard::Format::kNative) {
    return reshard::DryRun(*source.reader, ApplyLayout(flags.layout, {}),
                           options);
  }
  SS_ASSIGN_OR_RETURN(const reshard::ExportPlan plan,
                      PlanExport(flags, source, to, choice));
  return reshard::DryRunExport(*source.reader, plan, options);
}

absl::Status PrintDryRun(const ReshardFlags& flags,
                         const reshard::OpenedSource& source,
                         reshard::Format to,
                         const reshard::CopyChoice& choice) {
  SS_RETURN_IF_ERROR(DrawPlan(flags, source, choice));
  SS_ASSIGN_OR_RETURN(const reshard::DryRunReport report,
                      DryRun(flags, source, to, choice));
  const PlannedReshard planned = {report, source, to, kMemoryBesidesBands};
  std::cout << (flags.json ? DryRunJson(planned).dump() + "\n"
                           : DryRunText(planned));
  return absl::OkStatus();
}

absl::StatusOr<reshard::ReshardReport> Export(
    const ReshardFlags& flags, const reshard::OpenedSource& source,
    reshard::Format to, const reshard::ReshardOptions& options) {
  SS_ASSIGN_OR_RETURN(const reshard::ExportPlan plan,
                      PlanExport(flags, source, to, options.choice));
  return reshard::ExportCheckpoint(*source.reader, flags.destination, plan,
                                   options);
}

absl::Status Reshard(const ReshardFlags& flags,
                     const reshard::OpenOptions& open,
                     reshard::OpenedSource& source, reshard::Format to,
                     const reshard::CopyChoice& choice,
                     reshard::Processes& processes) {
  const bool is_first = processes.rank() == 0;
  const absl::Time begin = absl::Now();
  const auto make =
      [&](const reshard::OpenedSource& from,
          const std::function<absl::Status(
              std::span<const reshard::ExpectedTensor>)>& verify) {
        ProgressBar bar;
        const auto show = [&bar, is_first](int64_t done, int64_t total) {
          if (is_first) bar.Show(done, total);
        };
        const reshard::ReshardOptions options = {
            .choice = choice,
            .generic = flags.generic,
            .memory_bytes = MemoryOfBands(flags),
            .codec = flags.codec,
            // Several processes have each seen a share: they checked before.
            .before_publish = processes.size() > 1 ? nullptr : verify,
            .progress = show};
        return to == reshard::Format::kNative
                   ? reshard::ReshardCheckpoint(*from.reader, flags.destination,
                                                ApplyLayout(flags.layout, {}),
                                                options, processes)
                   : Export(flags, from, to, options);
      };
  SS_ASSIGN_OR_RETURN(const reshard::ReshardReport report,
                      reshard::CopyVerified(flags.source, open, source, make));
  if (!is_first) return absl::OkStatus();
  if (!report.replaced_leftover.empty()) {
    std::cerr << "replaced " << report.replaced_leftover
              << ", left by an earlier reshard" << std::endl;
  }
  const FinishedReshard finished = {report, source, to, flags.destination,
                                    absl::ToDoubleSeconds(absl::Now() - begin)};
  std::cout << (flags.json ? ReportJson(finished).dump() + "\n"
                           : Printable(ReportText(finished)));
  return report.proof;
}

void PrintNotes(const reshard::OpenedSource& source) {
  for (const std::string& note : source.notes) {
    std::cerr << Printable(note) << std::endl;
  }
  if (source.reader->has_parts()) return;
  std::cerr << "note: " << source.reader->directory()
            << " is an index alone, its parts are missing: this can be "
               "planned, not done"
            << std::endl;
}

// The first process verifies, and all open the source again if weights have to
// be kept.
absl::Status VerifyTogether(const ReshardFlags& flags,
                            reshard::Processes& processes,
                            reshard::OpenOptions options,
                            reshard::OpenedSource& source) {
  absl::StatusOr<std::string> names = "";
  if (processes.rank() == 0) {
    const auto kept = reshard::VerifySource(source);
    names = kept.ok() ? absl::StatusOr<std::string>(absl::StrJoin(*kept, "\n"))
                      : kept.status();
  }
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      reshard::AllGatherIfOk(processes, names));
  if (all.front().empty()) return absl::OkStatus();
  options.keep_weights = absl::StrSplit(all.front(), '\n');
  absl::StatusOr<reshard::OpenedSource> again =
      reshard::OpenSource(flags.source, options);
  SS_RETURN_IF_ERROR(reshard::Agree(processes, again.status()));
  source = *std::move(again);
  return absl::OkStatus();
}

// The work of one process. All of them come to the same end.
absl::Status RunOn(const ReshardFlags& flags, reshard::Processes& processes) {
  const bool is_first = processes.rank() == 0;
  absl::StatusOr<reshard::Format> to = reshard::ParseFormat(flags.to);
  if (!to.ok()) return Annotate(to.status(), "--to");
  SS_RETURN_IF_ERROR(CheckFlags(flags, *to, processes.size()));
  SS_ASSIGN_OR_RETURN(const reshard::OpenOptions options, OpenOptionsOf(flags));
  absl::StatusOr<reshard::OpenedSource> source =
      reshard::OpenSource(flags.source, options);
  SS_RETURN_IF_ERROR(reshard::Agree(processes, source.status()));
  if (processes.size() > 1 && !flags.dry_run) {
    SS_RETURN_IF_ERROR(VerifyTogether(flags, processes, options, *source));
  }
  if (is_first) PrintNotes(*source);
  SS_ASSIGN_OR_RETURN(const reshard::CopyChoice choice, ChoiceOf(flags));
  if (!flags.dry_run) {
    return Reshard(flags, options, *source, *to, choice, processes);
  }
  return reshard::Agree(
      processes,
      is_first ? PrintDryRun(flags, *source, *to, choice) : absl::OkStatus());
}

absl::StatusOr<int> RunReshard(const ReshardFlags& flags,
                               trainer::MpiWorld* job) {
  RaiseOpenFilesLimit();
  absl::Status status;
  if (job == nullptr) {
    reshard::OneProcess alone;
    status = RunOn(flags, alone);
  } else {
    // Without a timeout, as disks take their time.
    SS_RETURN_IF_ERROR(
        job->Run(absl::InfiniteDuration(), [&](trainer::Communicator& world) {
          CommProcesses processes(world);
          status = RunOn(flags, processes);
          return absl::OkStatus();
        }));
  }
  SS_RETURN_IF_ERROR(status);
  return kExitDone;
}

}  // namespace
}  // namespace shardshift

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "explain") {
    return shardshift::ExplainMain(argc - 1, argv + 1);
  }
  if (argc > 1 && std::string(argv[1]) == "formats") {
    return shardshift::FormatsMain(argc - 1, argv + 1);
  }
  const std::unique_ptr<CLI::App> app = shardshift::MakeCli(
      "reshard",
      "Rewrites a checkpoint for another parallel layout, and proves that no "
      "value changed. Axes that are not given are 1. `mpirun -np N reshard` "
      "splits the files to be written over N processes.");
  app->footer(
      "`reshard explain CKPT` tells what each rank of a layout holds: see "
      "`reshard explain --help`. `reshard formats` lists the formats.");
  shardshift::ReshardFlags flags;
  app->add_option("source", flags.source,
                  "run directory (its newest checkpoint), one checkpoint, or "
                  "a checkpoint of another format")
      ->required()
      ->type_name("SRC");
  app->add_option("destination", flags.destination,
                  "run directory to make, or with --to the other format's; "
                  "must not exist")
      ->required()
      ->type_name("DST");
  app->add_option("--from", flags.from,
                  "format of SRC, if it is not to be recognised; see `reshard "
                  "formats`")
      ->type_name("FORMAT");
  app->add_option("--to", flags.to, "format of DST (native)")
      ->type_name("FORMAT");
  app->add_flag("--generic", flags.generic,
                "tensors of any model, each under the name that it has; no "
                "run goes on from it");
  app->add_option("--vocab-size", flags.vocab_size,
                  "tokens of the vocabulary, where SRC holds it padded alone")
      ->transform(shardshift::IntIn(1, int64_t{1} << 31))
      ->type_name("N");
  app->add_flag("--repair-shifted", flags.repair_shifted,
                "put back optimizer state that Megatron-Core 0.15 to 0.19 has "
                "shifted; what its files lack of it is filled in, and named");
  app->add_option("--max-shard-size", flags.max_shard_size,
                  "with --to safetensors: of a file, e.g. 5GB (50GB)")
      ->type_name("SIZE");
  shardshift::AddLayoutFlags(*app, flags.layout);
  app->add_option("--select", flags.choice.select,
                  "only tensors whose names match, e.g. 'layers.0.*'; the "
                  "copy is for looking at, no run goes on from it")
      ->type_name("GLOB");
  app->add_flag("--weights-only", flags.choice.weights_only,
                "leave the optimizer state behind");
  app->add_option(
         "--dtype", flags.dtype,
         "of weights: F32, BF16, F16, ..., rounded to the nearest, "
         "ties to even; native and dcp need --weights-only for it, unless "
         "SRC has no optimizer state")
      ->type_name("NAME");
  shardshift::AddCodecFlag(*app, flags.codec);
  shardshift::AddSequenceParallelFlag(*app, flags.sequence_parallel);
  CLI::Option* dry_run =
      app->add_flag("--dry-run", flags.dry_run,
                    "check and plan, write nothing: bytes, memory, time, and "
                    "what is cut most");
  app->add_option("--picture", flags.picture,
                  "with --dry-run, draw what moves: a new file, .svg or .html")
      ->needs(dry_run)
      ->type_name("FILE");
  app->add_option("--memory-limit", flags.memory_limit,
                  "memory to take (128MiB), besides the program itself and "
                  "some 0.4 MB for each part file of a pipeline stage; less is "
                  "slower")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(shardshift::kMinMemoryLimit, uint64_t{1} << 40)
                  .description(""))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("SIZE");
  app->add_flag("--json", flags.json, "report as one JSON object");
  return shardshift::RunLaunchedCli(
      *app, argc, argv, [&flags](shardshift::trainer::MpiWorld* job) {
        return shardshift::RunReshard(flags, job);
      });
}
