// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "nlohmann/json.hpp"
#include "tools/cli.h"
#include "trainer/data/preprocess.h"

namespace shardshift {
namespace {

struct Flags {
  trainer::PreprocessOptions options;
  std::string tokenizer;
  std::string split_on;
  bool json = false;
};

void PrintReport(const trainer::PreprocessReport& report, const Flags& flags) {
  const std::string& prefix = flags.options.output_prefix;
  if (flags.json) {
    std::cout << nlohmann::json{{"documents", report.documents},
                                {"output_prefix", prefix},
                                {"tokens", report.tokens},
                                {"vocab_size", report.vocab_size}}
                     .dump()
              << "\n";
    return;
  }
  std::cout << prefix << ".bin, " << prefix << ".idx: " << report.documents
            << " documents, " << report.tokens << " tokens; train with "
            << "--data-path " << prefix << " --vocab-size " << report.vocab_size
            << "\n";
}

absl::StatusOr<int> Run(Flags& flags) {
  flags.options.blank_lines = !flags.split_on.empty();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto progress = [terminal](int64_t bytes) {
    if (terminal) std::cerr << "\r" << bytes / 1'000'000 << " MB" << std::flush;
  };
  const auto report = trainer::Preprocess(flags.options, progress);
  if (terminal) std::cerr << "\r\033[K";
  if (!report.ok()) return report.status();
  PrintReport(*report, flags);
  return kExitDone;
}

void AddFlags(CLI::App& app, Flags& flags) {
  trainer::PreprocessOptions& options = flags.options;
  app.add_option("--input", options.inputs, "Files of text, in this order")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--output-prefix", options.output_prefix,
                 "Writes PREFIX.bin and PREFIX.idx, which must not exist")
      ->required();
  app.add_option("--tokenizer", flags.tokenizer, "byte: every byte is a token")
      ->required()
      ->check(CLI::IsMember({"byte"}));
  CLI::Option* key =
      app.add_option("--json-key", options.json_key,
                     "Of JSONL: the key of a document's text (text)");
  app.add_option("--split-on", flags.split_on,
                 "blank-lines: plain text with blank lines between documents")
      ->check(CLI::IsMember({"blank-lines"}))
      ->excludes(key);
  app.add_flag("--append-eod", options.append_eod,
               "End each document with token 256");
  app.add_flag("--json", flags.json, "Report in JSON");
}

}  // namespace
}  // namespace shardshift

int main(int argc, char** argv) {
  const std::unique_ptr<CLI::App> app = shardshift::MakeCli(
      "preprocess", "Makes an indexed dataset of text to train on.");
  shardshift::Flags flags;
  shardshift::AddFlags(*app, flags);
  return shardshift::RunCli(*app, argc, argv,
                            [&] { return shardshift::Run(flags); });
}
