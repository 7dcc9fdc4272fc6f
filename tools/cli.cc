// SPDX-License-Identifier: Apache-2.0
#include "tools/cli.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <exception>
#include <iostream>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/format/user_block.h"
#include "kernels/isa.h"

namespace shardshift {
namespace {

std::string VersionText() {
  const std::string_view isa = kernels::IsaName(kernels::DetectIsa());
  return absl::StrCat("shardshift ", SHARDSHIFT_VERSION, "\nformat version ",
                      ckpt::kFormatVersion, "\ncompiler g++ ", __VERSION__,
                      "\ninstruction set ",
                      absl::string_view(isa.data(), isa.size()), "\nCUDA none");
}

// "--flag_name=a_b" as "--flag-name=a_b".
std::string WithDashes(std::string argument) {
  if (!absl::StartsWith(argument, "--")) return argument;
  const size_t end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + end, '_', '-');
  return argument;
}

// Insertions, deletions and replacements between two words.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

void AppendFlags(const CLI::App& app, std::vector<std::string>& flags) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  for (const CLI::App* chosen : app.get_subcommands()) {
    AppendFlags(*chosen, flags);
  }
}

// How much of `unknown` is wrong if `flag` was meant; a flag cut short is as
// good as one wrong letter.
size_t Distance(const std::string& unknown, const std::string& flag) {
  if (unknown.size() > 3 && absl::StartsWith(flag, unknown)) return 1;
  return EditDistance(flag, unknown);
}

// The nearest flag of those that are near, or "".
std::string NearestFlag(const CLI::App& app, const std::string& unknown) {
  std::vector<std::string> flags;
  AppendFlags(app, flags);
  std::string nearest;
  size_t least = std::min<size_t>(3, (unknown.size() - 1) / 2) + 1;
  for (const std::string& flag : flags) {
    const size_t distance = Distance(unknown, flag);
    if (distance >= least) continue;
    least = distance;
    nearest = flag;
  }
  return nearest;
}

std::string UnknownArgument(const CLI::App& app) {
  std::string unknown;
  for (const std::string& argument : app.remaining(true)) {
    if (unknown.empty() || (unknown[0] != '-' && argument[0] == '-')) {
      unknown = argument.substr(0, argument.find('='));
    }
  }
  if (!absl::StartsWith(unknown, "-")) {
    return absl::StrCat("unexpected argument \"", unknown, "\"; see --help");
  }
  const std::string nearest = NearestFlag(app, unknown);
  if (nearest.empty()) {
    return absl::StrCat("unknown flag ", unknown, "; see --help");
  }
  return absl::StrCat("unknown flag ", unknown, "; the nearest known one is ",
                      nearest);
}

absl::StatusOr<int> Run(const Action& action) {
  try {
    absl::StatusOr<int> code = action();
    // Results that did not reach their reader are a failure.
    if (code.ok() && !std::cout.flush()) {
      return absl::UnavailableError("cannot write to standard output");
    }
    return code;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& exception) {
    return absl::InternalError(exception.what());
  }
}

}  // namespace

std::unique_ptr<CLI::App> MakeCli(const std::string& name,
                                  const std::string& description) {
  auto app = std::make_unique<CLI::App>(description, name);
  app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app->set_version_flag("--version", VersionText);
  return app;
}

CLI::Validator IntIn(int64_t min, int64_t max) {
  const auto check = [min, max](std::string& text) -> std::string {
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < min || value > max) {
      return absl::StrCat("expected a whole number from ", min, " to ", max,
                          ", found \"", text, "\"");
    }
    text = absl::StrCat(value);  // "010" must not be read as octal
    return "";
  };
  return CLI::Validator(check, "");
}

CLI::Validator NumberIn(double min, double max) {
  const auto check = [min, max](std::string& text) -> std::string {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && value >= min && value <= max &&
        std::isfinite(value)) {
      return "";
    }
    return absl::StrCat("expected a number from ", min, " to ", max,
                        ", found \"", text, "\"");
  };
  return CLI::Validator(check, "");
}

std::string Printable(absl::string_view text) {
  std::string printable;
  for (const char c : text) {
    const bool is_control = absl::ascii_iscntrl(static_cast<unsigned char>(c));
    if (is_control && c != '\n') {
      absl::StrAppendFormat(&printable, "\\x%02x", c);
    } else {
      printable += c;
    }
  }
  return printable;
}

void PrintError(absl::string_view message) {
  // In one write: other processes of a job may print as well.
  std::cerr << absl::StrCat("error: ", Printable(message), "\n") << std::flush;
}

int RunCli(CLI::App& app, int argc, char** argv, const Action& action,
           bool speaks) {
  // A write beyond the limit on file sizes then fails with an error to report.
  std::signal(SIGXFSZ, SIG_IGN);
  std::vector<std::string> arguments;
  // CLI11 takes them from the back.
  for (int i = argc - 1; i > 0; --i) arguments.push_back(WithDashes(argv[i]));
  try {
    app.parse(arguments);
  } catch (const CLI::Success& wish) {
    std::ostringstream unread;
    // Prints the help or the version.
    return speaks ? app.exit(wish) : app.exit(wish, unread, unread);
  } catch (const CLI::ParseError& error) {
    if (!speaks) return kExitRefused;
    // A misspelt flag or subcommand explains what else is missing.
    PrintError(app.remaining(true).empty()
                   ? absl::StrCat(error.what(), "; see --help")
                   : UnknownArgument(app));
    return kExitRefused;
  }
  const absl::StatusOr<int> code = Run(action);
  if (code.ok()) return *code;
  if (speaks) PrintError(code.status().message());
  return ExitCode(code.status());
}

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return kExitRefused;
    default:
      return kExitFailed;
  }
}

}  // namespace shardshift
