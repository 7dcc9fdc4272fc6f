// `ckpt show CKPT`: what a checkpoint holds.
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/user_block.h"
#include "ckpt/reader.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"

namespace shardshift {
namespace {

struct ShowFlags {
  std::string checkpoint;
  bool json = false;
};

void PrintText(const ckpt::Reader& reader, const Json& state,
               const Json& record) {
  const ckpt::Table& table = reader.table();
  std::cout << absl::StreamFormat(
      "step %d, %s in %d parts, %d tensors in %d fragments\n", reader.step(),
      HumanBytes(reader.total_bytes()), table.parts.size(),
      table.tensors.size(), table.fragments.size());
  for (const ckpt::Tensor& tensor : table.tensors) {
    std::cout << absl::StreamFormat("%-48s %-12s %-8s %s\n", tensor.name,
                                    tensor.role, ckpt::Name(tensor.dtype),
                                    ckpt::ToString(tensor.shape));
  }
  std::cout << "state " << state.dump(2) << "\n"
            << "record " << record.dump(2) << "\n";
}

absl::StatusOr<int> Show(const ShowFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> reader,
                      OpenCheckpoint(flags.checkpoint));
  SS_ASSIGN_OR_RETURN(const Json state, ParseJson(reader->state(), "state"));
  SS_ASSIGN_OR_RETURN(const Json record, ParseJson(reader->record(), "record"));
  if (!flags.json) {
    PrintText(*reader, state, record);
    return kExitDone;
  }
  Json json;
  json["step"] = reader->step();
  json["format_version"] = ckpt::kFormatVersion;
  json["bytes"] = reader->total_bytes();
  json["tensors"] = Json::array();
  for (const ckpt::Tensor& tensor : reader->table().tensors) {
    json["tensors"].push_back(ToJson(tensor));
  }
  json["state"] = state;
  json["record"] = record;
  std::cout << json.dump() << "\n";
  return kExitDone;
}

}  // namespace

void AddShow(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("show", "Shows what a checkpoint holds.");
  const auto flags = std::make_shared<ShowFlags>();
  command->add_option("CKPT", flags->checkpoint, "A step or run directory")
      ->required();
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback(
      [flags, &action] { action = [flags] { return Show(*flags); }; });
}

}  // namespace shardshift
