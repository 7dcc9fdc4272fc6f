// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/pickle_globals.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace shardshift::reshard {
namespace {

template <typename List>
bool Has(const List& list, absl::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

constexpr auto kRefusedModules = std::to_array<absl::string_view>(
    {"asyncio", "code", "commands", "ctypes", "importlib", "multiprocessing",
     "nt", "os", "pickle", "posix", "pty", "runpy", "shutil", "socket",
     "subprocess", "sys", "threading", "timeit", "webbrowser"});

constexpr auto kRefusedBuiltins = std::to_array<absl::string_view>(
    {"__import__", "breakpoint", "compile", "delattr", "eval", "exec",
     "execfile", "globals", "input", "locals", "open", "setattr", "vars"});

using Global = std::pair<absl::string_view, absl::string_view>;
constexpr auto kGlobals = std::to_array<Global>({
    {"_codecs", "encode"},
    {"_io", "BytesIO"},
    {"argparse", "Namespace"},
    {"builtins", "bool"},
    {"builtins", "bytearray"},
    {"builtins", "bytes"},
    {"builtins", "complex"},
    {"builtins", "dict"},
    {"builtins", "float"},
    {"builtins", "frozenset"},
    {"builtins", "getattr"},  // how some versions write a member of an enum
    {"builtins", "int"},
    {"builtins", "list"},
    {"builtins", "set"},
    {"builtins", "str"},
    {"builtins", "tuple"},
    {"collections", "Counter"},
    {"collections", "OrderedDict"},
    {"collections", "defaultdict"},
    {"collections", "deque"},
    {"datetime", "timedelta"},
    {"io", "BytesIO"},
    {"numpy", "dtype"},
    {"numpy", "ndarray"},
    {"numpy._core.multiarray", "_reconstruct"},
    {"numpy._core.multiarray", "scalar"},
    {"numpy.core.multiarray", "_reconstruct"},
    {"numpy.core.multiarray", "scalar"},
    {"torch", "Generator"},
    {"torch", "Size"},
    {"torch", "Tensor"},
    {"torch", "device"},
    {"torch._tensor", "_rebuild_from_type_v2"},
    {"torch.nn.parameter", "Buffer"},
    {"torch.nn.parameter", "Parameter"},
    {"torch.serialization", "_get_layout"},
    {"torch.storage", "TypedStorage"},
    {"torch.storage", "UntypedStorage"},
    {"types", "SimpleNamespace"},
});

// Everything within them is allowed, as it stays a name.
constexpr auto kPackages = std::to_array<absl::string_view>(
    {"deepspeed.", "megatron.", "torch.distributed.", "transformer_engine."});

// Whole modules of harmless classes.
constexpr auto kModules = std::to_array<absl::string_view>(
    {"numpy.dtypes", "pathlib", "pathlib._local", "signal"});

// The dtypes and storage classes are many, and new ones come.
bool IsTorchType(absl::string_view name) {
  static constexpr auto kDTypes = std::to_array<absl::string_view>(
      {"bfloat", "bits", "bool", "complex", "double", "float", "half", "int",
       "long", "qint", "quint", "short", "uint"});
  if (absl::EndsWith(name, "Storage")) return true;
  return std::any_of(kDTypes.begin(), kDTypes.end(), [&](auto prefix) {
    return absl::StartsWith(name, prefix);
  });
}

}  // namespace

bool IsRefusedGlobal(absl::string_view module, absl::string_view name) {
  const absl::string_view package = module.substr(0, module.find('.'));
  if (Has(kRefusedModules, package)) return true;
  if (package == "builtins" && Has(kRefusedBuiltins, name)) return true;
  // A name reaches what a module has imported, too, such as its `os.system`.
  const std::vector<absl::string_view> words = absl::StrSplit(name, '.');
  return std::any_of(words.begin(), words.end(), [](absl::string_view word) {
    return Has(kRefusedModules, word);
  });
}

bool IsCheckpointGlobal(absl::string_view module, absl::string_view name) {
  if (std::find(kGlobals.begin(), kGlobals.end(), Global(module, name)) !=
      kGlobals.end()) {
    return true;
  }
  if (module == "torch") return IsTorchType(name);
  if (module == "torch._utils") return absl::StartsWith(name, "_rebuild_");
  return Has(kModules, module) ||
         std::any_of(kPackages.begin(), kPackages.end(), [&](auto package) {
           return absl::StartsWith(module, package);
         });
}

}  // namespace shardshift::reshard
