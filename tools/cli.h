// What the command lines of all our programs share.
// Flags are written with dashes or underscores; of a flag given twice the last
// wins; an unknown one is refused with the nearest known one.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_CLI_H_
#define SHARDSHIFT_TOOLS_CLI_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift {

// Exit codes of every program. Where a signal made it stop in good order, as
// `train` does, the code is 128 and the number of the signal, as in a shell.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;   // the work failed, or things differ
inline constexpr int kExitRefused = 2;  // wrong use or refused input

// The work of a command; gives the exit code.
using Action = std::function<absl::StatusOr<int>()>;

// An App with our defaults and --version. Declare flags with dashes only.
std::unique_ptr<CLI::App> MakeCli(const std::string& name,
                                  const std::string& description);

// Flag values: checked decimal numbers within [min, max].
//   app.add_option("--seed", seed, "...")->transform(IntIn(0, kMax));
CLI::Validator IntIn(int64_t min, int64_t max);
CLI::Validator NumberIn(double min, double max);

// Parses the command line, then runs `action`, which a subcommand may set
// while parsing. Prints errors to stderr, beginning "error: ". Gives the exit
// code of the program. One that does not speak leaves printing to another
// process that finds the same.
int RunCli(CLI::App& app, int argc, char** argv, const Action& action,
           bool speaks = true);

// Without control characters but for ends of lines: what a damaged file says is
// in messages, and is not to command a terminal.
std::string Printable(absl::string_view text);

// As "error: ..." on stderr, printable.
void PrintError(absl::string_view message);

// InvalidArgument, NotFound, AlreadyExists, FailedPrecondition, OutOfRange
// and Unimplemented are refused input; any other error is failed work.
int ExitCode(const absl::Status& status);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_CLI_H_
