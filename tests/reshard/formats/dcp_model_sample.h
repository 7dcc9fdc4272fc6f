// Distributed checkpoints of models, and folders of the same values.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_FORMATS_DCP_MODEL_SAMPLE_H_
#define SHARDSHIFT_TESTS_RESHARD_FORMATS_DCP_MODEL_SAMPLE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/hf_names.h"
#include "reshard/formats/open_source.h"
#include "tests/ckpt/sample.h"
#include "tests/reshard/formats/generic_sample.h"
#include "tests/reshard/formats/sample.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {

// A tensor of a checkpoint: element i has the bytes of `first` + i.
struct Saved {
  ckpt::Shape shape;
  int64_t first = 0;
  ckpt::DType dtype = ckpt::DType::kF32;

  // Those of a box of it.
  std::string Bytes(const ckpt::Box& box) const {
    std::string bytes;
    for (int64_t i = 0; i < ckpt::NumElements(box); ++i) {
      const auto value =
          static_cast<float>(first + ckpt::RowMajorIndex(shape, box, i));
      const char* item = reinterpret_cast<const char*>(&value);
      const size_t size = ckpt::ItemSize(dtype);
      bytes.append(item + sizeof value - size, size);
    }
    return bytes;
  }
};
using SavedState = std::map<std::string, Saved>;

// A safetensors file with the boxes of `state` that `box_of` gives.
template <typename BoxOf>
std::string FileOf(const SavedState& state, bool has_offsets, BoxOf&& box_of) {
  nlohmann::json header = nlohmann::json::object();
  nlohmann::json info = nlohmann::json::object();
  std::string data;
  for (const auto& [key, saved] : state) {
    const ckpt::Box box = box_of(key, saved);
    const int64_t begin = std::ssize(data);
    data += saved.Bytes(box);
    header[key] = {{"dtype", ckpt::Name(saved.dtype)},
                   {"shape", box.extent},
                   {"data_offsets", {begin, std::ssize(data)}}};
    info[key] = {{"saved_offsets", box.start}};
  }
  if (has_offsets) {
    header["__metadata__"] = {{"DCP_SHARDING_INFO", info.dump()},
                              {"DCP_VERSION", "1.0"}};
  }
  return SafetensorsBytes(header.dump()) + data;
}

// Rank `rank` of three has rows, or columns of every other matrix.
inline ckpt::Box BoxOfRank(const std::string& key, const Saved& saved,
                           int64_t rank) {
  ckpt::Box box = ckpt::WholeBox(saved.shape);
  if (saved.shape.empty()) return box;
  const size_t dim = saved.shape.size() == 2 && key.size() % 2 == 0 ? 1 : 0;
  const int64_t each = (saved.shape[dim] + 2) / 3;
  box.start[dim] = std::min(rank * each, saved.shape[dim]);
  box.extent[dim] = std::min(each, saved.shape[dim] - box.start[dim]);
  return box;
}

class DcpModelTest : public ::testing::Test {
 protected:
  DcpModelTest() : dir_(ckpt::InMemory()) {}

  std::string Path(const std::string& name) const {
    return ckpt::JoinPath(dir_.path(), name);
  }

  // The tensors that Hugging Face has of a model, all different.
  static SavedState WeightsOf(const std::string& model, int64_t first) {
    const auto config = ParseHfConfig(ReadData(model + "/config.json"));
    EXPECT_OK(config);
    const auto tensors = HfTensors(config->model, {.family = config->family});
    EXPECT_OK(tensors);
    SavedState state;
    for (const StoredTensor& tensor : *tensors) {
      state[tensor.name] = {tensor.shape, first};
      first += ckpt::NumElements(tensor.shape);
    }
    return state;
  }

  // Of a key for each of `weights`.
  static void AddKeys(const SavedState& weights, const std::string& prefix,
                      const std::string& suffix, SavedState& state) {
    for (const auto& [name, saved] : weights) {
      state[absl::StrCat(prefix, name, suffix)] = saved;
    }
  }

  // Weights and state under the prefixes, in ten steps.
  static SavedState TrainingOf(const std::string& model,
                               const std::string& prefix,
                               const std::string& state_prefix) {
    SavedState state;
    AddKeys(WeightsOf(model, 0), prefix, "", state);
    AddKeys(WeightsOf(model, 1000), state_prefix, ".exp_avg", state);
    AddKeys(WeightsOf(model, 2000), state_prefix, ".exp_avg_sq", state);
    for (const auto& [name, saved] : WeightsOf(model, 0)) {
      state[absl::StrCat(state_prefix, name, ".step")].first = 10;
    }
    return state;
  }

  // Shards of three ranks; what has no dimension the first one has.
  void WriteShards(const SavedState& state) const {
    for (int64_t rank = 0; rank < 3; ++rank) {
      SavedState mine = state;
      if (rank > 0) {
        std::erase_if(
            mine, [](const auto& entry) { return entry.second.shape.empty(); });
      }
      ckpt::WriteFile(
          Path(absl::StrCat("shard-0000", rank + 1,
                            "-model-00001-of-00001.safetensors")),
          FileOf(mine, true, [rank](const std::string& key, const Saved& s) {
            return BoxOfRank(key, s, rank);
          }));
    }
  }

  void WriteConfig(const std::string& model) const {
    ckpt::WriteFile(Path("config.json"), ReadData(model + "/config.json"));
  }

  absl::StatusOr<OpenedSource> Open(bool weights_only = false) const {
    OpenOptions options;
    options.foreign.weights_only = weights_only;
    return OpenSource(dir_.path(), options);
  }

  // The bytes of the logical tensors that a folder of `weights` has.
  static std::map<std::string, std::string> LogicalTensorsOf(
      const std::string& model, const SavedState& weights) {
    const ckpt::TempDir folder(ckpt::InMemory());
    ckpt::WriteFile(ckpt::JoinPath(folder.path(), "config.json"),
                    ReadData(model + "/config.json"));
    ckpt::WriteFile(
        ckpt::JoinPath(folder.path(), "model.safetensors"),
        FileOf(weights, false, [](const std::string&, const Saved& saved) {
          return ckpt::WholeBox(saved.shape);
        }));
    const auto source = OpenSource(folder.path(), {});
    EXPECT_OK(source);
    return BytesOf(*source);
  }

  static void ExpectTraining(const OpenedSource& source,
                             const std::string& model) {
    const auto found = BytesOf(source);
    size_t num_tensors = 0;
    for (const auto& [role, first] :
         {std::pair{"master", 0}, {"exp_avg", 1000}, {"exp_avg_sq", 2000}}) {
      for (const auto& [name, bytes] :
           LogicalTensorsOf(model, WeightsOf(model, first))) {
        const auto it =
            found.find(absl::StrCat("optim.state.", name, ".", role));
        ASSERT_NE(it, found.end()) << name;
        EXPECT_TRUE(it->second == bytes) << name << " " << role;
        ++num_tensors;
      }
    }
    EXPECT_EQ(found.size(), num_tensors);
  }

  const ckpt::TempDir dir_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_FORMATS_DCP_MODEL_SAMPLE_H_
