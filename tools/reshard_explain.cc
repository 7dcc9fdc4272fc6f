// SPDX-License-Identifier: Apache-2.0
#include "tools/reshard_explain.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/part_moves.h"
#include "reshard/formats/open_source.h"
#include "tools/cli.h"
#include "tools/explain_rank.h"
#include "tools/explain_ranks.h"
#include "tools/launched_cli.h"
#include "tools/layout_picture.h"
#include "tools/picture.h"
#include "tools/run_flags.h"

namespace shardshift {
namespace {

struct ExplainFlags {
  std::string checkpoint;
  LayoutFlags layout;
  bool sequence_parallel = false;
  std::optional<int64_t> rank;
  std::string picture;
  bool json = false;
};

absl::Status CheckRank(int64_t rank, const reshard::Layout& layout) {
  const int64_t ranks = layout.world_size();
  if (rank < ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--rank is ", rank,
                                                 ", expected 0 to ", ranks - 1,
                                                 " of ", ToString(layout)));
}

absl::StatusOr<RankReport> ExplainRank(const ckpt::Reader& reader,
                                       const reshard::ModelConfig& model,
                                       const reshard::Layout& layout,
                                       int64_t rank) {
  RankReport report = ReportOf(model, layout, rank);
  SS_RETURN_IF_ERROR(
      reshard::CheckStored(reader, report.tensors, reshard::ContentOf(reader)));
  std::vector<reshard::Piece> pieces;
  for (const reshard::LocalBuffer& buffer : report.state.buffers) {
    pieces.insert(pieces.end(), buffer.pieces.begin(), buffer.pieces.end());
  }
  SS_ASSIGN_OR_RETURN(report.reads,
                      reshard::TotalsOfLoad(reader, report.tensors, pieces));
  for (const int64_t part : report.reads.parts) {
    report.files.push_back(std::filesystem::path(reader.PathOf(part))
                               .lexically_proximate(reader.directory())
                               .string());
  }
  return report;
}

absl::StatusOr<int> Explain(const ExplainFlags& flags) {
  if (!flags.picture.empty()) {
    SS_RETURN_IF_ERROR(CheckPicturePath(flags.picture));
  }
  SS_ASSIGN_OR_RETURN(
      const reshard::OpenedSource found,
      reshard::OpenSource(flags.checkpoint,
                          {.parts = ckpt::PartFiles::kAllOrNone}));
  for (const std::string& note : found.notes) std::cerr << note << std::endl;
  SS_ASSIGN_OR_RETURN(const reshard::CheckpointState state,
                      reshard::ReadState(*found.reader));
  const reshard::ModelConfig& model = state.model;
  const reshard::Layout layout = ApplyLayout(flags.layout, {});
  SS_RETURN_IF_ERROR(Validate(model, layout));
  if (flags.rank.has_value()) {
    SS_RETURN_IF_ERROR(CheckRank(*flags.rank, layout));
    SS_ASSIGN_OR_RETURN(const RankReport report,
                        ExplainRank(*found.reader, model, layout, *flags.rank));
    std::cout << (flags.json ? RankJson(report).dump() + "\n"
                             : RankText(report));
  } else {
    std::cout << (flags.json ? RanksJson(model, layout).dump() + "\n"
                             : RanksText(model, layout));
  }
  if (!flags.picture.empty()) {
    SS_RETURN_IF_ERROR(
        WritePicture(flags.picture, LayoutPicture(model, layout)));
  }
  return kExitDone;
}

}  // namespace

int ExplainMain(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app = MakeCli(
      "reshard explain",
      "Tells what each rank of a layout holds, of the model of a checkpoint. "
      "Axes that are not given are 1.");
  ExplainFlags flags;
  app->add_option("checkpoint", flags.checkpoint,
                  "run directory (its newest checkpoint), one checkpoint, or a "
                  "checkpoint of another format")
      ->required()
      ->type_name("CKPT");
  AddLayoutFlags(*app, flags.layout);
  AddSequenceParallelFlag(*app, flags.sequence_parallel);
  app->add_option("--rank", flags.rank,
                  "one rank: its buffers, the boxes of tensors in them, and "
                  "what it reads of CKPT (all ranks: a line each)")
      ->check(IntIn(0, std::numeric_limits<int32_t>::max()))
      ->type_name("N");
  app->add_option("--picture", flags.picture,
                  "draw who holds what: a new file, .svg or .html")
      ->type_name("FILE");
  app->add_flag("--json", flags.json, "report as one JSON object");
  return RunLaunchedCli(
      *app, argc, argv, [&flags](const trainer::MpiWorld* job) {
        const bool is_first = job == nullptr || job->rank() == 0;
        return is_first ? Explain(flags) : kExitDone;
      });
}

}  // namespace shardshift
