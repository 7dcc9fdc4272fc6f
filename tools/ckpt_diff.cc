// `ckpt diff A B`: whether two checkpoints hold the same.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/table.h"
#include "ckpt/reader.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"
#include "tools/progress_bar.h"
#include "tools/tensor_diff.h"

namespace shardshift {
namespace {

struct DiffFlags {
  std::string a;
  std::string b;
  bool json = false;
};

struct Differences {
  Json only_in_a = Json::array();
  Json only_in_b = Json::array();
  Json kind = Json::array();    // shapes or dtypes
  Json values = Json::array();  // elements
  Json state = Json::array();
  int64_t num_equal = 0;

  bool empty() const {
    return only_in_a.empty() && only_in_b.empty() && kind.empty() &&
           values.empty() && state.empty();
  }
};

Json ValuesToJson(const ckpt::Tensor& tensor,
                  const TensorDifference& difference) {
  Json json = ToJson(tensor);
  json["differing_elements"] = difference.num_differing;
  json["max_abs_difference"] = difference.max_abs;
  json["max_ulp_distance"] = difference.max_ulp;
  json["nan_elements"] = difference.num_nan;
  json["first_index"] = IndexAt(tensor.shape, difference.first);
  return json;
}

// A tensor of both whose fingerprints differ.
struct Pair {
  int64_t in_a = 0;
  int64_t in_b = 0;
};

// Walks both sorted lists of tensors at once, and settles what the index of
// each side can: gives the tensors whose values have to be read.
std::vector<Pair> CompareIndexes(const ckpt::Table& a, const ckpt::Table& b,
                                 Differences& found) {
  const std::vector<ckpt::Fingerprint> prints_a = TensorFingerprints(a);
  const std::vector<ckpt::Fingerprint> prints_b = TensorFingerprints(b);
  const auto key = [](const ckpt::Tensor& tensor) {
    return std::tie(tensor.name, tensor.role);
  };
  std::vector<Pair> unequal;
  size_t i = 0;
  size_t j = 0;
  while (i < a.tensors.size() || j < b.tensors.size()) {
    if (j == b.tensors.size() ||
        (i < a.tensors.size() && key(a.tensors[i]) < key(b.tensors[j]))) {
      found.only_in_a.push_back(ToJson(a.tensors[i++]));
    } else if (i == a.tensors.size() || key(b.tensors[j]) < key(a.tensors[i])) {
      found.only_in_b.push_back(ToJson(b.tensors[j++]));
    } else {
      if (a.tensors[i] != b.tensors[j]) {
        found.kind.push_back(
            {{"a", ToJson(a.tensors[i])}, {"b", ToJson(b.tensors[j])}});
      } else if (prints_a[i] == prints_b[j]) {
        ++found.num_equal;
      } else {
        unequal.push_back({static_cast<int64_t>(i), static_cast<int64_t>(j)});
      }
      ++i;
      ++j;
    }
  }
  return unequal;
}

absl::Status CompareValues(const ckpt::Reader& a, const ckpt::Reader& b,
                           const std::vector<Pair>& pairs, Differences& found) {
  const auto& tensors = a.table().tensors;
  int64_t total_bytes = 0;
  for (const Pair& pair : pairs) {
    const ckpt::Tensor& tensor = tensors[pair.in_a];
    total_bytes +=
        2 * ckpt::NumElements(tensor.shape) * ckpt::ItemSize(tensor.dtype);
  }
  ProgressBar bar;
  int64_t done_bytes = 0;
  const auto on_bytes = [&](int64_t num_bytes) {
    bar.Show(done_bytes += num_bytes, total_bytes);
  };
  for (const Pair& pair : pairs) {
    const ckpt::Tensor& tensor = tensors[pair.in_a];
    SS_ASSIGN_OR_RETURN(const TensorDifference difference,
                        DiffTensor(a, pair.in_a, b, pair.in_b, on_bytes));
    if (difference.num_differing == 0) {
      return absl::DataLossError(absl::StrCat(
          ckpt::Describe(tensor),
          " has equal values, but not equal fingerprints, in A and B; see "
          "ckpt verify --deep of both"));
    }
    found.values.push_back(ValuesToJson(tensor, difference));
  }
  return absl::OkStatus();
}

using Path = Json::json_pointer;

// Adds what two values differ in, each with its path; what one side has not is
// one difference, however much it is. Key order means nothing.
void CompareValuesAt(const Path& path, const Json& a, const Json& b,
                     Json& found) {
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items()) {
      const auto other = b.find(key);
      if (other == b.end()) {
        found.push_back({{"path", (path / key).to_string()}, {"a", value}});
      } else {
        CompareValuesAt(path / key, value, *other, found);
      }
    }
    for (const auto& [key, value] : b.items()) {
      if (a.contains(key)) continue;
      found.push_back({{"path", (path / key).to_string()}, {"b", value}});
    }
  } else if (a.is_array() && b.is_array() && a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) {
      CompareValuesAt(path / i, a[i], b[i], found);
    }
  } else if (a != b) {
    found.push_back({{"path", path.to_string()}, {"a", a}, {"b", b}});
  }
}

absl::Status CompareStates(const ckpt::Reader& a, const ckpt::Reader& b,
                           Differences& found) {
  SS_ASSIGN_OR_RETURN(
      const Json in_a,
      ParseJson(a.state(), absl::StrCat(a.directory(), ": state")));
  SS_ASSIGN_OR_RETURN(
      const Json in_b,
      ParseJson(b.state(), absl::StrCat(b.directory(), ": state")));
  CompareValuesAt(Path(), in_a, in_b, found.state);
  return absl::OkStatus();
}

std::string Label(const Json& tensor) {
  return absl::StrCat(tensor["name"].get<std::string>(), " (",
                      tensor["role"].get<std::string>(), ")");
}

std::string Kind(const Json& tensor) {
  return tensor["dtype"].get<std::string>() + tensor["shape"].dump();
}

void PrintValues(const Json& tensor) {
  const int64_t num_differing = tensor["differing_elements"].get<int64_t>();
  const int64_t num_nan = tensor["nan_elements"].get<int64_t>();
  std::cout << Label(tensor) << ": " << num_differing
            << (num_differing == 1 ? " element differs" : " elements differ")
            << ", by at most "
            << absl::StreamFormat("%g",
                                  tensor["max_abs_difference"].get<double>())
            << " or " << tensor["max_ulp_distance"] << " ULP, first at "
            << tensor["first_index"].dump();
  if (num_nan > 0) std::cout << "; " << num_nan << " beside a NaN";
  std::cout << "\n";
}

// A longer text of the state is not shown whole.
constexpr int64_t kMaxTextShown = 60;
// Of such texts what they have before the first difference.
constexpr int64_t kContext = 20;

// A value of the state on one line: of a long text what is around byte `at`, of
// many values their number.
std::string Shown(const Json& value, int64_t at) {
  if (value.is_structured()) {
    std::string text = ToText(value);
    if (std::ssize(text) <= kMaxTextShown) return text;
    return absl::StrCat(value.flatten().size(), " values");
  }
  if (!value.is_string()) return ToText(value);
  const auto& text = value.get_ref<const std::string&>();
  return ShortText(
      text, kMaxTextShown,
      std::max<int64_t>(0, std::min(at, std::ssize(text)) - kContext));
}

// The first byte in which two texts differ; 0 of other values.
int64_t FirstDifference(const Json& a, const Json& b) {
  if (!a.is_string() || !b.is_string()) return 0;
  const auto& in_a = a.get_ref<const std::string&>();
  const auto& in_b = b.get_ref<const std::string&>();
  return std::ranges::mismatch(in_a, in_b).in1 - in_a.begin();
}

void PrintState(const Json& difference) {
  const bool in_both = difference.contains("a") && difference.contains("b");
  const int64_t at =
      in_both ? FirstDifference(difference["a"], difference["b"]) : 0;
  const auto shown = [&](const char* side) -> std::string {
    const auto value = difference.find(side);
    return value == difference.end() ? "absent" : Shown(*value, at);
  };
  std::cout << "state " << difference["path"].get<std::string>() << ": "
            << shown("a") << " in A, " << shown("b") << " in B\n";
}

// What is equal of what is not equal as a whole.
void PrintEqual(const Differences& found) {
  const bool all = found.only_in_a.empty() && found.only_in_b.empty() &&
                   found.kind.empty() && found.values.empty();
  std::cout << (all ? "all " : "") << found.num_equal
            << " tensors are equal, bit for bit\n";
}

void PrintText(const Differences& found) {
  for (const Json& t : found.only_in_a) {
    std::cout << "only in A: " << Label(t) << "\n";
  }
  for (const Json& t : found.only_in_b) {
    std::cout << "only in B: " << Label(t) << "\n";
  }
  for (const Json& pair : found.kind) {
    std::cout << Label(pair["a"]) << ": " << Kind(pair["a"]) << " in A, "
              << Kind(pair["b"]) << " in B\n";
  }
  for (const Json& t : found.values) {
    PrintValues(t);
  }
  for (const Json& s : found.state) {
    PrintState(s);
  }
  if (!found.empty()) {
    PrintEqual(found);
  } else {
    std::cout << "equal: the state and all " << found.num_equal
              << " tensors, bit for bit\n";
  }
}

void PrintJson(const Differences& found) {
  Json json;
  json["equal"] = found.empty();
  json["equal_tensors"] = found.num_equal;
  json["only_in_a"] = found.only_in_a;
  json["only_in_b"] = found.only_in_b;
  json["shape_or_dtype"] = found.kind;
  json["values"] = found.values;
  json["state"] = found.state;
  std::cout << ToText(json) << "\n";
}

absl::StatusOr<int> Diff(const DiffFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::shared_ptr<const ckpt::Reader> a,
                      OpenCheckpoint(flags.a, /*fingerprints=*/true));
  SS_ASSIGN_OR_RETURN(const std::shared_ptr<const ckpt::Reader> b,
                      OpenCheckpoint(flags.b, /*fingerprints=*/true));
  Differences found;
  const std::vector<Pair> unequal =
      CompareIndexes(a->table(), b->table(), found);
  SS_RETURN_IF_ERROR(CompareValues(*a, *b, unequal, found));
  SS_RETURN_IF_ERROR(CompareStates(*a, *b, found));
  if (flags.json) {
    PrintJson(found);
  } else {
    PrintText(found);
  }
  return found.empty() ? kExitDone : kExitFailed;
}

// Anything that keeps the comparison from an answer is trouble, whose code
// differs from "they differ".
absl::StatusOr<int> DiffOrTrouble(const DiffFlags& flags) {
  absl::StatusOr<int> code = Diff(flags);
  if (code.ok()) return code;
  return absl::FailedPreconditionError(code.status().message());
}

}  // namespace

void AddDiff(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "diff",
      "Compares the tensors and the state of two checkpoints, whatever their "
      "layouts. Tensors of equal fingerprints are not read; damage to them is "
      "for `ckpt verify --deep` to find.");
  const auto flags = std::make_shared<DiffFlags>();
  command
      ->add_option("A", flags->a,
                   "A step or run directory, or a checkpoint of another format")
      ->required();
  command->add_option("B", flags->b, "Another one")->required();
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback(
      [flags, &action] { action = [flags] { return DiffOrTrouble(*flags); }; });
}

}  // namespace shardshift
