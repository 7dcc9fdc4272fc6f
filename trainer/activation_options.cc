// SPDX-License-Identifier: Apache-2.0
#include "trainer/activation_options.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"

namespace shardshift::trainer {
namespace {

using nlohmann::json;

constexpr char kSequenceParallel[] = "sequence_parallel";
constexpr char kGranularity[] = "recompute_granularity";
constexpr char kMethod[] = "recompute_method";
constexpr char kNumLayers[] = "recompute_num_layers";
constexpr char kPrecision[] = "precision";

absl::Status Mistyped(const char* key, const json& value) {
  return absl::DataLossError(
      absl::StrCat("checkpoint record: ", key, " is ", value.dump()));
}

absl::StatusOr<std::string> Text(const json& record, const char* key) {
  const auto it = record.find(key);
  if (it == record.end()) {
    return absl::DataLossError(
        absl::StrCat("checkpoint record: ", key, " is missing"));
  }
  if (!it->is_string()) return Mistyped(key, *it);
  return it->get<std::string>();
}

absl::StatusOr<Recompute> RecomputeFromRecord(const json& record) {
  Recompute recompute;
  if (!record.contains(kGranularity)) return recompute;
  SS_ASSIGN_OR_RETURN(const std::string granularity,
                      Text(record, kGranularity));
  const absl::StatusOr<RecomputeGranularity> parsed =
      ParseRecomputeGranularity(granularity);
  if (!parsed.ok()) return Mistyped(kGranularity, granularity);
  recompute.granularity = *parsed;
  if (recompute.granularity != RecomputeGranularity::kFull) return recompute;
  SS_ASSIGN_OR_RETURN(const std::string name, Text(record, kMethod));
  const absl::StatusOr<RecomputeMethod> method = ParseRecomputeMethod(name);
  if (!method.ok()) return Mistyped(kMethod, name);
  recompute.method = *method;
  const json& layers = record.value(kNumLayers, json());
  if (!layers.is_number_integer() || layers.get<int64_t>() < 1) {
    return Mistyped(kNumLayers, layers);
  }
  recompute.num_layers = layers.get<int64_t>();
  return recompute;
}

}  // namespace

absl::string_view Name(RecomputeGranularity granularity) {
  switch (granularity) {
    case RecomputeGranularity::kNone:
      return "none";
    case RecomputeGranularity::kSelective:
      return "selective";
    case RecomputeGranularity::kFull:
      return "full";
  }
  return "unknown";
}

absl::string_view Name(RecomputeMethod method) {
  return method == RecomputeMethod::kUniform ? "uniform" : "block";
}

absl::StatusOr<RecomputeGranularity> ParseRecomputeGranularity(
    absl::string_view name) {
  for (const auto granularity :
       {RecomputeGranularity::kNone, RecomputeGranularity::kSelective,
        RecomputeGranularity::kFull}) {
    if (name == Name(granularity)) return granularity;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not none, selective or full"));
}

absl::StatusOr<RecomputeMethod> ParseRecomputeMethod(absl::string_view name) {
  for (const auto method :
       {RecomputeMethod::kUniform, RecomputeMethod::kBlock}) {
    if (name == Name(method)) return method;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not uniform or block"));
}

void AddToRecord(const ActivationOptions& options, json& record) {
  record[kPrecision] = std::string(Name(options.precision));
  if (options.sequence_parallel) record[kSequenceParallel] = true;
  const Recompute& recompute = options.recompute;
  if (recompute.granularity == RecomputeGranularity::kNone) return;
  record[kGranularity] = std::string(Name(recompute.granularity));
  if (recompute.granularity != RecomputeGranularity::kFull) return;
  record[kMethod] = std::string(Name(recompute.method));
  record[kNumLayers] = recompute.num_layers;
}

absl::StatusOr<ActivationOptions> ActivationsFromRecord(const json& record) {
  ActivationOptions options;
  if (const auto it = record.find(kSequenceParallel); it != record.end()) {
    if (!it->is_boolean()) return Mistyped(kSequenceParallel, *it);
    options.sequence_parallel = it->get<bool>();
  }
  SS_ASSIGN_OR_RETURN(options.recompute, RecomputeFromRecord(record));
  if (!record.contains(kPrecision)) return options;
  SS_ASSIGN_OR_RETURN(const std::string name, Text(record, kPrecision));
  const absl::StatusOr<Precision> precision = ParsePrecision(name);
  if (!precision.ok()) return Mistyped(kPrecision, name);
  options.precision = *precision;
  return options;
}

}  // namespace shardshift::trainer
