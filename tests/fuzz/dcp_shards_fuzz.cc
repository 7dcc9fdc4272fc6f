// Reads bytes as the headers of shards of a distributed checkpoint. What is
// taken has each element of a tensor once.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ckpt/core/coding.h"
#include "reshard/formats/dcp_keys.h"
#include "reshard/formats/dcp_shards.h"
#include "reshard/formats/safetensors.h"

namespace shardshift::reshard {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

// Each header has four bytes for the size of the data and four for its own
// before it.
std::vector<std::vector<ShardChunk>> ReadFiles(absl::string_view bytes) {
  constexpr size_t kSizeBytes = 8;
  std::vector<std::vector<ShardChunk>> files;
  while (bytes.size() >= kSizeBytes) {
    ckpt::Decoder sizes(ckpt::AsBytes(bytes.substr(0, kSizeBytes)));
    const int64_t data_bytes = sizes.GetU32();
    const uint32_t text_bytes = sizes.GetU32();
    bytes.remove_prefix(kSizeBytes);
    const auto header =
        ParseSafetensorsHeader(bytes.substr(0, text_bytes), 0, data_bytes);
    bytes.remove_prefix(std::min<size_t>(bytes.size(), text_bytes));
    if (!header.ok()) continue;
    auto chunks = ParseShardChunks(*header);
    if (chunks.ok()) files.push_back(*std::move(chunks));
  }
  return files;
}

void Read(absl::string_view bytes) {
  const auto tensors = JoinShardChunks(ReadFiles(bytes));
  if (!tensors.ok()) return;
  std::vector<absl::string_view> keys;
  for (const SourceTensor& tensor : *tensors) {
    keys.emplace_back(tensor.key);
    Require(!tensor.chunks.empty());
    int64_t held = 0;
    for (const SourceChunk& chunk : tensor.chunks) {
      Require(ckpt::Contains(ckpt::WholeBox(tensor.shape), chunk.box));
      held += ckpt::NumElements(chunk.box);
    }
    Require(held == ckpt::NumElements(tensor.shape));
  }
  const auto found = FindDcpKeys(keys, HfFamily::kLlama);
  if (!found.ok()) return;
  for (const absl::string_view key : keys) {
    if (found->IsModel(key)) Require(key.size() >= found->model_prefix.size());
  }
}

}  // namespace
}  // namespace shardshift::reshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardshift::reshard::Read({reinterpret_cast<const char*>(data), size});
  return 0;
}
