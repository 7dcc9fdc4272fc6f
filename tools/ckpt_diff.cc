// `ckpt diff A B`: whether two checkpoints hold the same.
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/reader.h"
#include "tools/ckpt_commands.h"
#include "tools/ckpt_open.h"
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
  json["max_abs_difference"] = difference.max_abs_difference;
  json["first_index"] = difference.first_index;
  return json;
}

// Compares a tensor that both have.
absl::Status CompareTensor(const ckpt::Reader& a, int64_t tensor_a,
                           const ckpt::Reader& b, int64_t tensor_b,
                           Differences& found) {
  const ckpt::Tensor& in_a = a.table().tensors[tensor_a];
  const ckpt::Tensor& in_b = b.table().tensors[tensor_b];
  if (in_a != in_b) {
    found.kind.push_back({{"a", ToJson(in_a)}, {"b", ToJson(in_b)}});
    return absl::OkStatus();
  }
  SS_ASSIGN_OR_RETURN(const TensorDifference difference,
                      DiffTensor(a, tensor_a, b, tensor_b));
  if (difference.num_differing == 0) {
    ++found.num_equal;
  } else {
    found.values.push_back(ValuesToJson(in_a, difference));
  }
  return absl::OkStatus();
}

// Walks both sorted lists of tensors at once.
absl::Status CompareTensors(const ckpt::Reader& a, const ckpt::Reader& b,
                            Differences& found) {
  const std::vector<ckpt::Tensor>& in_a = a.table().tensors;
  const std::vector<ckpt::Tensor>& in_b = b.table().tensors;
  size_t i = 0;
  size_t j = 0;
  while (i < in_a.size() || j < in_b.size()) {
    const auto key = [](const ckpt::Tensor& tensor) {
      return std::tie(tensor.name, tensor.role);
    };
    if (j == in_b.size() || (i < in_a.size() && key(in_a[i]) < key(in_b[j]))) {
      found.only_in_a.push_back(ToJson(in_a[i++]));
    } else if (i == in_a.size() || key(in_b[j]) < key(in_a[i])) {
      found.only_in_b.push_back(ToJson(in_b[j++]));
    } else {
      SS_RETURN_IF_ERROR(CompareTensor(a, static_cast<int64_t>(i++), b,
                                       static_cast<int64_t>(j++), found));
    }
  }
  return absl::OkStatus();
}

absl::Status CompareStates(const ckpt::Reader& a, const ckpt::Reader& b,
                           Differences& found) {
  SS_ASSIGN_OR_RETURN(const Json in_a, ParseJson(a.state(), "state of A"));
  SS_ASSIGN_OR_RETURN(const Json in_b, ParseJson(b.state(), "state of B"));
  // Flat, so that each difference has a path; key order means nothing.
  const Json flat_a = in_a.is_structured() ? in_a.flatten() : Json{{"", in_a}};
  const Json flat_b = in_b.is_structured() ? in_b.flatten() : Json{{"", in_b}};
  for (const auto& [path, value] : flat_a.items()) {
    if (!flat_b.contains(path)) {
      found.state.push_back({{"path", path}, {"a", value}});
    } else if (flat_b[path] != value) {
      found.state.push_back(
          {{"path", path}, {"a", value}, {"b", flat_b[path]}});
    }
  }
  for (const auto& [path, value] : flat_b.items()) {
    if (!flat_a.contains(path)) {
      found.state.push_back({{"path", path}, {"b", value}});
    }
  }
  return absl::OkStatus();
}

std::string Label(const Json& tensor) {
  return absl::StrCat(tensor["name"].get<std::string>(), " (",
                      tensor["role"].get<std::string>(), ")");
}

std::string Kind(const Json& tensor) {
  return tensor["dtype"].get<std::string>() + tensor["shape"].dump();
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
    std::cout << Label(t) << ": " << t["differing_elements"]
              << " elements differ, by at most " << t["max_abs_difference"]
              << ", first at " << t["first_index"].dump() << "\n";
  }
  for (const Json& s : found.state) {
    std::cout << "state " << s["path"].get<std::string>() << ": "
              << s.value("a", Json("absent")).dump() << " in A, "
              << s.value("b", Json("absent")).dump() << " in B\n";
  }
  if (found.empty()) {
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
  std::cout << json.dump() << "\n";
}

absl::StatusOr<int> Diff(const DiffFlags& flags) {
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> a,
                      OpenCheckpoint(flags.a));
  SS_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Reader> b,
                      OpenCheckpoint(flags.b));
  Differences found;
  SS_RETURN_IF_ERROR(CompareTensors(*a, *b, found));
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
      "diff", "Compares the tensors and the state of two checkpoints.");
  const auto flags = std::make_shared<DiffFlags>();
  command->add_option("A", flags->a, "A step or run directory")->required();
  command->add_option("B", flags->b, "Another one")->required();
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback(
      [flags, &action] { action = [flags] { return DiffOrTrouble(*flags); }; });
}

}  // namespace shardshift
