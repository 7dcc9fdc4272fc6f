// Reads bytes as the header of a safetensors file, as an index, and as a
// configuration of a Hugging Face model. What is taken can be written, and
// reads as the same again.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "ckpt/core/coding.h"
#include "reshard/formats/hf_config.h"
#include "reshard/formats/hf_index.h"
#include "reshard/formats/hf_names.h"
#include "reshard/formats/safetensors.h"

namespace shardshift::reshard {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

// Four bytes for the size of the data, then the text.
void ReadHeader(absl::string_view bytes) {
  constexpr size_t kSizeBytes = 4;
  if (bytes.size() < kSizeBytes) return;
  ckpt::Decoder size(ckpt::AsBytes(bytes.substr(0, kSizeBytes)));
  const int64_t data_bytes = size.GetU32();
  const auto header =
      ParseSafetensorsHeader(bytes.substr(kSizeBytes), 0, data_bytes);
  if (!header.ok()) return;
  int64_t end = 0;
  for (const SafetensorsTensor& tensor : header->tensors) {
    Require(tensor.begin == end && tensor.end >= end);
    end = tensor.end;
  }
  Require(end == data_bytes);
  const auto layout = LayOutSafetensors(*header);
  Require(layout.ok());
  const auto begin = std::ssize(layout->header_bytes);
  constexpr size_t kLengthBytes = 8;
  const auto again = ParseSafetensorsHeader(
      absl::string_view(layout->header_bytes).substr(kLengthBytes), begin,
      layout->file_bytes - begin);
  Require(again.ok() && again->metadata == header->metadata);
  Require(again->tensors.size() == header->tensors.size());
}

void ReadIndex(absl::string_view bytes) {
  const auto places = ParseHfIndex(bytes);
  if (!places.ok()) return;
  for (const HfPlace& place : *places) {
    Require(place.file.find('/') == std::string::npos);
    Require(!place.file.empty() && place.file != "..");
  }
  const auto again = ParseHfIndex(HfIndexText(*places, 0, 0));
  Require(again.ok() && *again == *places);
}

void CountTensors(const ModelConfig& model, HfFamily family) {
  constexpr int64_t kMaxTensors = 10'000;
  if (NumLogicalTensors(model) > kMaxTensors) return;
  const auto tensors = HfTensors(model, {.family = family});
  Require(tensors.ok());
  int64_t num_pieces = 0;
  std::vector<FoundTensor> found;
  for (const StoredTensor& tensor : *tensors) {
    num_pieces += std::ssize(tensor.pieces);
    found.push_back({tensor.name, tensor.shape});
  }
  Require(num_pieces == NumLogicalTensors(model));
  Require(MatchHfTensors(model, family, found).ok());
}

void ReadConfig(absl::string_view bytes) {
  const auto config = ParseHfConfig(bytes);
  if (!config.ok()) return;
  Require(Validate(config->model).ok());
  Require(HfConfigFor(config->model, config->family, config->dtype).ok());
  CountTensors(config->model, config->family);
}

// The first byte chooses the reader.
void Read(absl::string_view input) {
  if (input.empty()) return;
  const absl::string_view bytes = input.substr(1);
  switch (static_cast<uint8_t>(input.front()) % 3) {
    case 0:
      return ReadHeader(bytes);
    case 1:
      return ReadIndex(bytes);
    default:
      return ReadConfig(bytes);
  }
}

}  // namespace
}  // namespace shardshift::reshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardshift::reshard::Read({reinterpret_cast<const char*>(data), size});
  return 0;
}
