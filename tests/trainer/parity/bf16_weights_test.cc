// Weights of another dtype than ours, into the ranks of a run.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/formats/open_source.h"
#include "reshard/formats/safetensors.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"
#include "tests/trainer/logical_state.h"
#include "tests/trainer/tiny_model.h"
#include "trainer/checkpointing.h"

namespace shardshift::trainer {
namespace {

const char* const kFolder = SHARDSHIFT_PARITY_DATA "/llama";

uint16_t ToBf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

// The weights of the folder in bf16, none of them within the range of fp16: by
// turns 1e5 and 1e-30 times what they were.
absl::Status WriteWideBf16(const std::string& to) {
  SS_ASSIGN_OR_RETURN(
      const ckpt::File from,
      ckpt::File::OpenForRead(ckpt::JoinPath(kFolder, "model.safetensors")));
  SS_ASSIGN_OR_RETURN(const reshard::SafetensorsHeader header,
                      reshard::ReadSafetensorsHeader(from));
  reshard::SafetensorsHeader narrow = header;
  for (reshard::SafetensorsTensor& tensor : narrow.tensors) {
    tensor.dtype = ckpt::DType::kBF16;
  }
  SS_ASSIGN_OR_RETURN(const reshard::SafetensorsLayout layout,
                      reshard::LayOutSafetensors(narrow));
  std::vector<char> bytes(layout.file_bytes);
  std::memcpy(bytes.data(), layout.header_bytes.data(),
              layout.header_bytes.size());
  for (const reshard::SafetensorsTensor& tensor : layout.header.tensors) {
    for (const reshard::SafetensorsTensor& source : header.tensors) {
      if (source.name != tensor.name) continue;
      std::vector<float> values(source.num_bytes() / sizeof(float));
      SS_RETURN_IF_ERROR(
          from.ReadAt(source.begin, std::as_writable_bytes(std::span(values))));
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t word = ToBf16(values[i] * (i % 2 == 0 ? 1e5F : 1e-30F));
        std::memcpy(&bytes[tensor.begin + 2 * static_cast<int64_t>(i)], &word,
                    2);
      }
    }
  }
  std::ofstream(ckpt::JoinPath(to, "model.safetensors"), std::ios::binary)
      .write(bytes.data(), std::ssize(bytes));
  std::filesystem::copy(ckpt::JoinPath(kFolder, "config.json"),
                        ckpt::JoinPath(to, "config.json"));
  return absl::OkStatus();
}

TEST(BugKindsOfWeights, B135Bf16KeepsItsRangeOnTheWayIntoARun) {
  const ckpt::TempDir folder;
  ASSERT_OK(WriteWideBf16(folder.path()));
  ASSERT_OK_AND_ASSIGN(const reshard::OpenedSource wide,
                       reshard::OpenSource(folder.path(), {}));
  ASSERT_OK_AND_ASSIGN(const reshard::WholeModel whole,
                       reshard::ReadWholeModel(*wide.reader));
  RunConfig config = TinyLlama();
  config.model = whole.state.model;
  config.model.padded_vocab_size = 264;
  ASSERT_OK(OnEveryRank(
      config, {.tensor = 2, .pipeline = 2},
      [&](Mesh& mesh, RankModel& model) -> absl::Status {
        SS_ASSIGN_OR_RETURN(
            const auto checkpointing,
            Checkpointing::Create(mesh, config.model, model.parameters(),
                                  model.optimizer()));
        SS_RETURN_IF_ERROR(checkpointing->LoadWeights(*wide.reader));
        SS_ASSIGN_OR_RETURN(const LogicalValues loaded,
                            GatherState(config, mesh, model, /*role=*/0));
        for (size_t i = 0; i < loaded.size(); ++i) {
          std::vector<uint16_t> stored(loaded[i].size());
          SS_ASSIGN_OR_RETURN(
              const int64_t tensor,
              wide.reader->FindTensor(whole.tensors[i].name, "weight"));
          SS_RETURN_IF_ERROR(wide.reader->ReadTensor(
              tensor, ckpt::WholeBox(whole.tensors[i].shape),
              reinterpret_cast<std::byte*>(stored.data())));
          int64_t wrong = 0;
          for (size_t j = 0; j < stored.size(); ++j) {
            const auto bits = std::bit_cast<uint32_t>(loaded[i][j]);
            wrong += bits == uint32_t{stored[j]} << 16 && bits != 0 ? 0 : 1;
          }
          EXPECT_EQ(wrong, 0) << whole.tensors[i].name;
        }
        return absl::OkStatus();
      }));
}

}  // namespace
}  // namespace shardshift::trainer
