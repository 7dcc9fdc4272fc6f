// SPDX-License-Identifier: Apache-2.0
#include "tests/reshard/formats/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/core/coding.h"
#include "ckpt/io/file.h"
#include "tests/ckpt/sample.h"

namespace shardshift::reshard {
namespace {

constexpr size_t kLengthBytes = 8;

// Where the last tensor of a header ends.
int64_t FileBytes(const std::string& head) {
  const auto header = nlohmann::json::parse(head.substr(kLengthBytes));
  int64_t end = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    end = std::max(end, tensor["data_offsets"][1].get<int64_t>());
  }
  return std::ssize(head) + end;
}

}  // namespace

const std::vector<std::string>& Models() {
  static const auto& models = *new std::vector<std::string>{
      "gpt2",  "llama", "llama3",    "mistral",  "mixtral",
      "qwen2", "qwen3", "qwen2_moe", "qwen3_moe"};
  return models;
}

const std::vector<std::string>& Variants() {
  static const auto& variants = *new std::vector<std::string>{
      "gpt2/hub", "llama/sharded", "mixtral/fused", "qwen2/bf16"};
  return variants;
}

std::string DataPath(const std::string& name) {
  return ckpt::JoinPath(SHARDSHIFT_FORMATS_DATA, name);
}

std::string ReadData(const std::string& name) {
  return ckpt::ReadFile(DataPath(name));
}

std::string SafetensorsBytes(const std::string& text, size_t num_bytes) {
  ckpt::Encoder length;
  length.PutU64(text.size());
  return absl::StrCat(length.bytes(), text, std::string(num_bytes, '\0'));
}

void RestoreFolder(const std::string& name, const std::string& directory) {
  for (const auto& entry :
       std::filesystem::directory_iterator(DataPath(name))) {
    if (!entry.is_regular_file()) continue;
    const std::string bytes = ckpt::ReadFile(entry.path().string());
    std::string target = entry.path().filename().string();
    const bool is_head = absl::EndsWith(target, ".head");
    if (is_head) target = std::string(absl::StripSuffix(target, ".head"));
    target = ckpt::JoinPath(directory, target);
    ckpt::WriteFile(target, bytes);
    if (is_head) std::filesystem::resize_file(target, FileBytes(bytes));
  }
}

}  // namespace shardshift::reshard
