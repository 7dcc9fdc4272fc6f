// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/deepspeed_rules.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/deepspeed_affine.h"

namespace shardshift::reshard {
namespace {

constexpr char kInfo[] = "universal_checkpoint_info";
// From which on the widths of sections are told.
constexpr double kVersionWithWidths = 0.4;
constexpr int64_t kMaxSections = 1024;

// The entry if it is there and no None.
absl::StatusOr<std::optional<PickleValue>> Present(const PickleValue& of,
                                                   absl::string_view key) {
  SS_ASSIGN_OR_RETURN(std::optional<PickleValue> value, of.Find(key));
  if (value.has_value() && value->IsNone()) value.reset();
  return value;
}

absl::StatusOr<std::vector<std::string>> Strings(const PickleValue& list) {
  SS_ASSIGN_OR_RETURN(const auto items, list.AsList());
  std::vector<std::string> texts;
  texts.reserve(items.size());
  for (const PickleValue& item : items) {
    SS_ASSIGN_OR_RETURN(const absl::string_view text, item.AsString());
    texts.emplace_back(text);
  }
  return texts;
}

absl::StatusOr<NamePatterns> PatternsOf(const std::vector<std::string>& texts,
                                        absl::string_view key) {
  absl::StatusOr<NamePatterns> patterns = NamePatterns::Parse(texts);
  if (!patterns.ok()) return Annotate(patterns.status(), key);
  return patterns;
}

absl::StatusOr<NamePatterns> ReadPatterns(const PickleValue& info,
                                          absl::string_view key) {
  SS_ASSIGN_OR_RETURN(const auto value, Present(info, key));
  if (!value.has_value()) return NamePatterns();
  SS_ASSIGN_OR_RETURN(const std::vector<std::string> texts, Strings(*value));
  return PatternsOf(texts, key);
}

absl::StatusOr<std::vector<int64_t>> ReadWidths(const PickleValue& value,
                                                int64_t num_ranks) {
  SS_ASSIGN_OR_RETURN(std::vector<int64_t> widths, value.AsInts());
  if (std::ssize(widths) != num_ranks) {
    return value.Error(absl::StrCat("has ", widths.size(),
                                    " widths, expected one for each of the ",
                                    num_ranks, " ranks"));
  }
  for (const int64_t width : widths) {
    if (width < 0 || width > kMaxShardWidth) {
      return value.Error(absl::StrCat("has a width of ", width));
    }
  }
  return widths;
}

// What the ranks' shards have along a dim.
std::vector<int64_t> WidthsOf(const std::vector<ckpt::Shape>& shards,
                              size_t dim) {
  std::vector<int64_t> widths;
  widths.reserve(shards.size());
  for (const ckpt::Shape& shard : shards) {
    widths.push_back(dim < shard.size() ? shard[dim] : 0);
  }
  return widths;
}

}  // namespace

absl::StatusOr<DeepSpeedRules> DeepSpeedRules::Read(const PickleValue& root,
                                                    int64_t num_ranks) {
  for (const char* key : {"ds_autoep_layers", "autoep_layers"}) {
    SS_ASSIGN_OR_RETURN(const auto experts, Present(root, key));
    if (!experts.has_value()) continue;
    return absl::UnimplementedError(
        absl::StrCat("has ", key, ": expert parallelism cannot be read"));
  }
  SS_ASSIGN_OR_RETURN(const auto info, Present(root, kInfo));
  if (!info.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat("has no ", kInfo, ", which tells how the shards of ",
                     num_ranks, " tensor-parallel ranks are merged"));
  }
  DeepSpeedRules rules;
  rules.num_ranks_ = num_ranks;
  SS_ASSIGN_OR_RETURN(const auto version,
                      Present(*info, "universal_checkpoint_version"));
  if (version.has_value()) {
    SS_ASSIGN_OR_RETURN(rules.version_, version->AsDouble());
  }
  SS_ASSIGN_OR_RETURN(const auto rows, Present(*info, "original_vocab_size"));
  if (rows.has_value()) {
    SS_ASSIGN_OR_RETURN(rules.vocabulary_, rows->AsInt());
    if (*rules.vocabulary_ <= 0) return rows->Wrong("a number above 0");
  }
  struct List {
    NamePatterns& patterns;
    const char* key;
  };
  for (const List& list : {
           List{rules.replicated_, "tp_replicated_parameter_patterns"},
           List{rules.averaged_, "parameter_to_average_patterns"},
           List{rules.two_sections_, "parameter_with_2_sub_params_cat_dim_0"},
           List{rules.rows_, "parameter_with_row_parallelism_patterns"},
           List{rules.vocabularies_, "vocabulary_parameter_patterns"},
       }) {
    SS_ASSIGN_OR_RETURN(list.patterns, ReadPatterns(*info, list.key));
  }
  SS_RETURN_IF_ERROR(rules.ReadAffine(*info));
  SS_RETURN_IF_ERROR(rules.ReadUnsupported(*info));
  SS_RETURN_IF_ERROR(rules.ReadSections(*info));
  return rules;
}

absl::Status DeepSpeedRules::ReadAffine(const PickleValue& info) {
  SS_ASSIGN_OR_RETURN(const auto affine, Present(info, "affine_map"));
  if (!affine.has_value()) return absl::OkStatus();
  SS_ASSIGN_OR_RETURN(const auto version, affine->Find("version"));
  if (version.has_value()) {
    SS_ASSIGN_OR_RETURN(const int64_t number, version->AsInt());
    if (number > 1) {
      return absl::UnimplementedError(
          absl::StrCat(version->Where(), " is ", number, ", expected 1"));
    }
  }
  SS_ASSIGN_OR_RETURN(const auto params, Present(*affine, "params"));
  if (!params.has_value()) return absl::OkStatus();
  SS_ASSIGN_OR_RETURN(const auto entries, params->AsEntries());
  std::vector<std::string> texts;
  texts.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    SS_ASSIGN_OR_RETURN(const absl::string_view text, key.AsString());
    texts.emplace_back(text);
    // A fault matters once a parameter needs the map.
    absl::StatusOr<ShardMap> map = ReadAffineMap(value, num_ranks_);
    affine_faults_.push_back(map.status());
    affine_maps_.push_back(map.ok() ? *std::move(map) : ShardMap());
  }
  SS_ASSIGN_OR_RETURN(affine_, PatternsOf(texts, params->Where()));
  return absl::OkStatus();
}

absl::Status DeepSpeedRules::ReadUnsupported(const PickleValue& info) {
  constexpr char kKey[] = "autotp_unsupported_parameter_patterns";
  SS_ASSIGN_OR_RETURN(const auto value, Present(info, kKey));
  if (!value.has_value()) return absl::OkStatus();
  SS_ASSIGN_OR_RETURN(const auto entries, value->AsEntries());
  std::vector<std::string> texts;
  texts.reserve(entries.size());
  for (const auto& [key, reason] : entries) {
    SS_ASSIGN_OR_RETURN(const absl::string_view text, key.AsString());
    SS_ASSIGN_OR_RETURN(const absl::string_view why, reason.AsString());
    texts.emplace_back(text);
    reasons_.emplace_back(why);
  }
  SS_ASSIGN_OR_RETURN(unsupported_, PatternsOf(texts, kKey));
  return absl::OkStatus();
}

// Each is {patterns, shape, partition_dim}; the widths are in a dict of their
// own, by pattern.
absl::Status DeepSpeedRules::ReadSections(const PickleValue& info) {
  constexpr char kKey[] = "parameter_with_sub_params";
  SS_ASSIGN_OR_RETURN(const auto value, Present(info, kKey));
  if (!value.has_value()) return absl::OkStatus();
  SS_ASSIGN_OR_RETURN(const auto all_widths,
                      Present(info, "sub_param_shard_widths"));
  SS_ASSIGN_OR_RETURN(const auto list, value->AsList());
  std::vector<std::string> texts;
  for (const PickleValue& item : list) {
    SS_ASSIGN_OR_RETURN(const Sections sections, ReadSection(item));
    SS_ASSIGN_OR_RETURN(const PickleValue patterns, item.Get("patterns"));
    SS_ASSIGN_OR_RETURN(const auto of_item, Strings(patterns));
    for (const std::string& text : of_item) {
      sections_of_.push_back(sections);
      texts.push_back(text);
      if (!all_widths.has_value()) continue;
      SS_ASSIGN_OR_RETURN(const auto widths, all_widths->Find(text));
      if (!widths.has_value()) continue;
      SS_ASSIGN_OR_RETURN(const auto by_section, widths->AsList());
      auto& target = sections_of_.back().widths.emplace();
      for (const PickleValue& of_section : by_section) {
        SS_ASSIGN_OR_RETURN(std::vector<int64_t> of_ranks,
                            ReadWidths(of_section, num_ranks_));
        target.push_back(std::move(of_ranks));
      }
    }
  }
  SS_ASSIGN_OR_RETURN(sections_, PatternsOf(texts, kKey));
  return absl::OkStatus();
}

absl::StatusOr<DeepSpeedRules::Sections> DeepSpeedRules::ReadSection(
    const PickleValue& value) const {
  Sections sections;
  SS_ASSIGN_OR_RETURN(const PickleValue dim, value.Get("partition_dim"));
  SS_ASSIGN_OR_RETURN(const int64_t number, dim.AsInt());
  SS_ASSIGN_OR_RETURN(const PickleValue shape, value.Get("shape"));
  SS_ASSIGN_OR_RETURN(const auto extents, shape.AsList());
  if (number < 0 || number >= std::ssize(extents)) {
    return dim.Error(absl::StrCat("is ", number, ", but ", shape.Where(),
                                  " has ", extents.size(), " dims"));
  }
  sections.dim = static_cast<size_t>(number);
  for (size_t d = 0; d < extents.size(); ++d) {
    const PickleValue& extent = extents[d];
    int64_t size = -1;
    if (extent.kind() == PickleKind::kInt) {
      SS_ASSIGN_OR_RETURN(size, extent.AsInt());
      if (d == sections.dim) sections.count = size;
    } else if (d == sections.dim) {
      SS_ASSIGN_OR_RETURN(sections.sizes, extent.AsInts());
    } else {
      return absl::UnimplementedError(absl::StrCat(
          extent.Where(), " is a list beside partition_dim ", number));
    }
    sections.shape.push_back(size);
  }
  if (std::ssize(sections.sizes) > kMaxSections ||
      sections.count > kMaxSections) {
    return absl::UnimplementedError(absl::StrCat(
        shape.Where(), " has more than ", kMaxSections, " sub-parameters"));
  }
  return sections;
}

absl::StatusOr<MergeRule> DeepSpeedRules::RuleOf(
    const std::string& name, const std::vector<ckpt::Shape>& shards) const {
  for (const ckpt::Shape& shard : shards) {
    for (const int64_t extent : shard) {
      if (extent <= kMaxShardWidth) continue;
      return absl::DataLossError(absl::StrCat("parameter ", name, " has shape ",
                                              ckpt::ToString(shard)));
    }
  }
  absl::StatusOr<MergeRule> rule = Merge(name, shards);
  absl::Status status = rule.status();
  if (status.ok()) {
    status = ckpt::CheckedNumElements(rule->map.shape).status();
  }
  if (!status.ok()) {
    return Annotate(status, absl::StrCat(kInfo, ": parameter ", name));
  }
  return rule;
}

absl::StatusOr<MergeRule> DeepSpeedRules::Merge(
    const std::string& name, const std::vector<ckpt::Shape>& shards) const {
  SS_ASSIGN_OR_RETURN(const auto unsupported, unsupported_.Find(name));
  if (unsupported.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "cannot be merged, says its file: ", reasons_[*unsupported]));
  }
  SS_ASSIGN_OR_RETURN(const auto affine, affine_.Find(name));
  if (!affine.has_value()) {
    SS_ASSIGN_OR_RETURN(ShardMap map, ByList(name, shards));
    SS_RETURN_IF_ERROR(CheckMap(map));
    return WithoutPadding(name, std::move(map));
  }
  // Its logical_shape is the true one: nothing is padded.
  SS_RETURN_IF_ERROR(affine_faults_[*affine]);
  const ShardMap& map = affine_maps_[*affine];
  for (size_t r = 0; r < shards.size(); ++r) {
    if (map.ranks[r].shape == shards[r]) continue;
    return absl::DataLossError(
        absl::StrCat("affine_map gives the shard of rank ", r, " shape ",
                     ckpt::ToString(map.ranks[r].shape), ", but it has ",
                     ckpt::ToString(shards[r])));
  }
  return MergeRule{map, 0};
}

absl::StatusOr<ShardMap> DeepSpeedRules::ByList(
    const std::string& name, const std::vector<ckpt::Shape>& shards) const {
  SS_ASSIGN_OR_RETURN(const auto replicated, replicated_.Find(name));
  if (replicated.has_value()) return CopiedMap(shards);
  SS_ASSIGN_OR_RETURN(const auto averaged, averaged_.Find(name));
  if (averaged.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "is the average of what the ranks have, by parameter_to_average_"
        "patterns (\"",
        averaged_.text(*averaged), "\"), and averages are not computed"));
  }
  SS_ASSIGN_OR_RETURN(const auto two, two_sections_.Find(name));
  if (two.has_value()) {
    std::vector<int64_t> half = WidthsOf(shards, 0);
    for (int64_t& width : half) {
      if (width % 2 != 0) {
        return absl::UnimplementedError(
            absl::StrCat("has two sub-parameters along dim 0, and a rank ",
                         width, " rows of them, expected an even number"));
      }
      width /= 2;
    }
    return JoinedMap(shards, 0, {half, half});
  }
  SS_ASSIGN_OR_RETURN(const auto sections, sections_.Find(name));
  if (sections.has_value()) {
    return BySections(sections_of_[*sections], shards);
  }
  SS_ASSIGN_OR_RETURN(const auto rows, rows_.Find(name));
  const size_t dim = rows.has_value() ? 1 : 0;
  return JoinedMap(shards, dim, {WidthsOf(shards, dim)});
}

absl::StatusOr<ShardMap> DeepSpeedRules::BySections(
    const Sections& sections, const std::vector<ckpt::Shape>& shards) const {
  const ckpt::Shape& first = shards.front();
  bool fits = first.size() == sections.shape.size();
  for (size_t d = 0; fits && d < first.size(); ++d) {
    fits = d == sections.dim || sections.shape[d] == -1 ||
           sections.shape[d] == first[d];
  }
  if (!fits) {
    return absl::UnimplementedError(absl::StrCat(
        "has sub-parameters of a shape that is not its own: its shards have ",
        ckpt::ToString(first)));
  }
  std::vector<int64_t> sizes = sections.sizes;
  const std::vector<int64_t> of_ranks = WidthsOf(shards, sections.dim);
  if (sizes.empty()) {
    const int64_t total =
        std::accumulate(of_ranks.begin(), of_ranks.end(), int64_t{0});
    if (sections.count <= 0 || total % sections.count != 0) {
      return absl::DataLossError(
          absl::StrCat("has ", sections.count, " sub-parameters in ", total));
    }
    sizes.assign(sections.count, total / sections.count);
  }
  std::vector<std::vector<int64_t>> widths;
  if (sections.widths.has_value()) {
    widths = *sections.widths;
  } else if (version_ >= kVersionWithWidths) {
    return absl::DataLossError("has no entry in sub_param_shard_widths");
  } else {
    for (const int64_t size : sizes) {
      if (size % num_ranks_ != 0) {
        return absl::UnimplementedError(absl::StrCat(
            "has a sub-parameter of ", size, ", which ", num_ranks_,
            " ranks do not share evenly, and no sub_param_shard_widths"));
      }
      widths.emplace_back(num_ranks_, size / num_ranks_);
    }
  }
  bool sums_up = widths.size() == sizes.size();
  for (size_t s = 0; sums_up && s < sizes.size(); ++s) {
    sums_up = std::accumulate(widths[s].begin(), widths[s].end(), int64_t{0}) ==
              sizes[s];
  }
  if (!sums_up) {
    return absl::DataLossError(
        "has sub_param_shard_widths that do not add up to its sub-parameters");
  }
  return JoinedMap(shards, sections.dim, widths);
}

absl::StatusOr<MergeRule> DeepSpeedRules::WithoutPadding(
    const std::string& name, ShardMap map) const {
  MergeRule rule;
  rule.map = std::move(map);
  SS_ASSIGN_OR_RETURN(const auto vocabulary, vocabularies_.Find(name));
  if (!vocabulary.has_value()) return rule;
  if (!vocabulary_.has_value()) {
    return absl::DataLossError(
        "is a vocabulary, and there is no original_vocab_size");
  }
  if (rule.map.shape.size() < 2) {
    return absl::UnimplementedError(absl::StrCat("is a vocabulary of shape ",
                                                 ckpt::ToString(rule.map.shape),
                                                 ", expected two dims"));
  }
  rule.padding_rows = std::max<int64_t>(rule.map.shape[0] - *vocabulary_, 0);
  if (rule.padding_rows > 0) rule.map = WithRows(rule.map, *vocabulary_);
  return rule;
}

}  // namespace shardshift::reshard
