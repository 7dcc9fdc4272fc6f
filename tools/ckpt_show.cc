// `ckpt show CKPT`: what a checkpoint holds.
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table.h"
#include "ckpt/format/user_block.h"
#include "ckpt/reader.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"
#include "tools/text_table.h"

namespace shardshift {
namespace {

struct ShowFlags {
  std::string checkpoint;
  bool json = false;
};

void PrintTensors(const ckpt::Table& table) {
  const std::vector<ckpt::Fingerprint> fingerprints =
      ckpt::TensorFingerprints(table);
  std::vector<std::vector<std::string>> rows;
  for (size_t t = 0; t < table.tensors.size(); ++t) {
    const ckpt::Tensor& tensor = table.tensors[t];
    rows.push_back({tensor.name, tensor.role,
                    std::string(ckpt::Name(tensor.dtype)),
                    ckpt::ToString(tensor.shape), ToString(fingerprints[t])});
  }
  std::cout << FormatTable(
      {{"name"}, {"role"}, {"dtype"}, {"shape"}, {"fingerprint"}}, rows);
}

// Longer texts of state and record, of another format's objects say, are not
// shown whole.
constexpr int64_t kMaxTextShown = 200;

Json WithShortTexts(const Json& json) {
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    if (std::ssize(text) <= kMaxTextShown) return json;
    return absl::StrCat(text.substr(0, kMaxTextShown), "... (", text.size(),
                        " bytes, see --json)");
  }
  Json result = json;
  if (json.is_structured()) {
    for (Json& value : result) value = WithShortTexts(value);
  }
  return result;
}

void PrintText(const ckpt::Reader& reader, const Json& state,
               const Json& record) {
  const ckpt::Table& table = reader.table();
  std::cout << absl::StreamFormat(
      "step %d, %s in %d parts, %d tensors in %d fragments\n"
      "root fingerprint %s\n\n",
      reader.step(), HumanBytes(reader.total_bytes()), table.parts.size(),
      table.tensors.size(), table.fragments.size(),
      ToString(ckpt::RootFingerprintOf(table)));
  PrintTensors(table);
  std::cout << "\nstate " << ToText(WithShortTexts(state), 2) << "\nrecord "
            << ToText(WithShortTexts(record), 2) << "\n";
}

void PrintJson(const ckpt::Reader& reader, const Json& state,
               const Json& record) {
  const ckpt::Table& table = reader.table();
  const std::vector<ckpt::Fingerprint> fingerprints =
      ckpt::TensorFingerprints(table);
  Json json;
  json["step"] = reader.step();
  json["format_version"] = ckpt::kFormatVersion;
  json["root_fingerprint"] = ToString(ckpt::RootFingerprintOf(table));
  json["bytes"] = reader.total_bytes();
  json["tensors"] = Json::array();
  for (size_t t = 0; t < table.tensors.size(); ++t) {
    Json tensor = ToJson(table.tensors[t]);
    tensor["fingerprint"] = ToString(fingerprints[t]);
    json["tensors"].push_back(std::move(tensor));
  }
  json["state"] = state;
  json["record"] = record;
  std::cout << ToText(json) << "\n";
}

absl::StatusOr<int> Show(const ShowFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::shared_ptr<const ckpt::Reader> reader,
                      OpenCheckpoint(flags.checkpoint, /*fingerprints=*/true));
  SS_ASSIGN_OR_RETURN(
      const Json state,
      ParseJson(reader->state(), absl::StrCat(reader->directory(), ": state")));
  SS_ASSIGN_OR_RETURN(const Json record,
                      ParseJson(reader->record(),
                                absl::StrCat(reader->directory(), ": record")));
  if (flags.json) {
    PrintJson(*reader, state, record);
  } else {
    PrintText(*reader, state, record);
  }
  return kExitDone;
}

}  // namespace

void AddShow(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("show", "Shows what a checkpoint holds.");
  const auto flags = std::make_shared<ShowFlags>();
  command
      ->add_option("CKPT", flags->checkpoint,
                   "A step or run directory, or a checkpoint of another format")
      ->required();
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback(
      [flags, &action] { action = [flags] { return Show(*flags); }; });
}

}  // namespace shardshift
