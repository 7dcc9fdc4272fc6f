// A folder of safetensors files as Hugging Face lays it out: model.safetensors,
// or several files and model.safetensors.index.json, which tells where each
// tensor is.
// Source: checkpoint-formats.md 5, "Sharded".
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_HF_INDEX_H_
#define SHARDSHIFT_RESHARD_FORMATS_HF_INDEX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reshard/formats/safetensors.h"

namespace shardshift::reshard {

inline constexpr char kHfConfigName[] = "config.json";
inline constexpr char kHfWeightsName[] = "model.safetensors";
inline constexpr char kHfIndexName[] = "model.safetensors.index.json";

// Whether a file is of Hugging Face's older format, pickles:
// "pytorch_model.bin", a part of several, or their index. These are not read.
bool IsPickledHfName(absl::string_view name);

// A larger index or configuration is not read.
inline constexpr int64_t kMaxHfJsonBytes = int64_t{100} << 20;

struct HfFile {
  std::string name;  // within the folder
  int64_t num_bytes = 0;
};

struct HfTensor {
  int64_t file = 0;  // index into HfFolder::files
  SafetensorsTensor tensor;
};

struct HfFolder {
  std::string directory;
  std::vector<HfFile> files;      // ascending by name
  std::vector<HfTensor> tensors;  // ascending by name
  // "FILE: TENSOR" of what is in a file, but by the index is not there: no
  // part of the model.
  std::vector<std::string> unlisted;
  // Of the file that comes first.
  absl::btree_map<std::string, std::string> metadata;
};

// Reads the index, if there is one, and the headers of the files it names;
// other files are left alone.
// Errors: Unimplemented for weights in the older format alone; NotFound if
// there are none, telling which other ones are; FailedPrecondition for both a
// single file and an index; DataLoss naming the index and what is wrong: JSON,
// a file name that leads out of the folder, a tensor in a file that has it not,
// a file that is missing; those of ReadSafetensorsHeader.
absl::StatusOr<HfFolder> ReadHfFolder(const std::string& directory);

// The contents of config.json; nullopt if there is none.
// Errors: those of reading; FailedPrecondition if it exceeds kMaxHfJsonBytes.
absl::StatusOr<std::optional<std::string>> ReadHfConfigText(
    const std::string& directory);

// A tensor and the file that the index says it is in.
struct HfPlace {
  std::string tensor;
  std::string file;

  bool operator==(const HfPlace&) const = default;
};

// The weight map of an index, ascending by tensor.
// Errors: DataLoss telling what is wrong.
absl::StatusOr<std::vector<HfPlace>> ParseHfIndex(absl::string_view text);

// The text of an index, as transformers 5 writes it. `total_bytes` and
// `total_parameters` are sums over all tensors.
std::string HfIndexText(const std::vector<HfPlace>& places, int64_t total_bytes,
                        int64_t total_parameters);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_HF_INDEX_H_
