// How DeepSpeed's tensor-parallel shards of a parameter are merged, as
// universal_checkpoint_info of a model's file tells. The rules are those of
// ds_to_universal.
// Source: distributed-optimizer.md 4.4.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_RULES_H_
#define SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_RULES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/name_pattern.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/shard_map.h"

namespace shardshift::reshard {

// A parameter's map, and how many rows of padding it leaves out at the end of
// the tensor.
struct MergeRule {
  ShardMap map;
  int64_t padding_rows = 0;

  friend bool operator==(const MergeRule&, const MergeRule&) = default;
};

class DeepSpeedRules {
 public:
  // Of a model's file, whose root `root` is, and as many tensor-parallel ranks.
  // The pickle is no longer needed afterwards.
  // Errors: Unimplemented if there is no universal_checkpoint_info, for
  // experts, and for what is newer than version 1 of an affine_map; DataLoss
  // for what is wrong.
  static absl::StatusOr<DeepSpeedRules> Read(const PickleValue& root,
                                             int64_t num_ranks);

  // Of a parameter whose shards have these shapes, one for each rank.
  // Errors, with the name: Unimplemented for a rule that cannot be followed
  // without computing; DataLoss if the shards are not as the rule has them.
  absl::StatusOr<MergeRule> RuleOf(
      const std::string& name, const std::vector<ckpt::Shape>& shards) const;

 private:
  // A parameter of several sections, each split on its own.
  struct Sections {
    // Extents of the whole; -1 or what the shards have, but along `dim`.
    std::vector<int64_t> shape;
    size_t dim = 0;
    // Sizes of the whole sections; empty if `count` tells how many even ones.
    std::vector<int64_t> sizes;
    int64_t count = 0;
    // By section and rank, where they are told.
    std::optional<std::vector<std::vector<int64_t>>> widths;
  };

  absl::Status ReadAffine(const PickleValue& info);
  absl::Status ReadUnsupported(const PickleValue& info);
  absl::Status ReadSections(const PickleValue& info);
  absl::StatusOr<Sections> ReadSection(const PickleValue& value) const;

  absl::StatusOr<MergeRule> Merge(const std::string& name,
                                  const std::vector<ckpt::Shape>& shards) const;
  absl::StatusOr<ShardMap> ByList(const std::string& name,
                                  const std::vector<ckpt::Shape>& shards) const;
  absl::StatusOr<ShardMap> BySections(
      const Sections& sections, const std::vector<ckpt::Shape>& shards) const;
  absl::StatusOr<MergeRule> WithoutPadding(const std::string& name,
                                           ShardMap map) const;

  int64_t num_ranks_ = 0;
  double version_ = 0;
  std::optional<int64_t> vocabulary_;  // rows
  NamePatterns affine_;
  std::vector<ShardMap> affine_maps_;  // by pattern, or why there is none
  std::vector<absl::Status> affine_faults_;
  NamePatterns replicated_;
  NamePatterns averaged_;
  NamePatterns two_sections_;
  NamePatterns rows_;  // split along dim 1
  NamePatterns vocabularies_;
  NamePatterns sections_;
  std::vector<Sections> sections_of_;  // by pattern
  NamePatterns unsupported_;
  std::vector<std::string> reasons_;  // by pattern
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DEEPSPEED_RULES_H_
