// Reads bytes as the index of a distributed checkpoint. What is taken has each
// element of a tensor once, and no place outside its directory.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "reshard/formats/dcp_metadata.h"

namespace shardshift::reshard {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckPlace(const DcpMetadata& metadata, const DcpPlace& place) {
  Require(place.file < metadata.files.size());
  Require(place.range.offset_bytes >= 0 && place.range.num_bytes >= 0 &&
          place.range.end_bytes() >= place.range.offset_bytes);
}

void Read(std::string bytes) {
  const auto metadata = ParseDcpMetadata(std::move(bytes));
  if (!metadata.ok()) return;
  for (const std::string& file : metadata->files) {
    Require(!file.empty() && file.front() != '/' &&
            file.find("../") == std::string::npos);
  }
  for (const DcpBytes& item : metadata->bytes) {
    CheckPlace(*metadata, item.place);
  }
  for (const DcpTensor& tensor : metadata->tensors) {
    int64_t held = 0;
    for (const DcpChunk& chunk : tensor.chunks) {
      CheckPlace(*metadata, chunk.place);
      Require(ckpt::Contains(ckpt::WholeBox(tensor.shape), chunk.box));
      held += ckpt::NumElements(chunk.box);
    }
    Require(held == ckpt::NumElements(tensor.shape));
  }
}

}  // namespace
}  // namespace shardshift::reshard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardshift::reshard::Read({reinterpret_cast<const char*>(data), size});
  return 0;
}
