// safetensors files: u64 N, N bytes of JSON that place each tensor, then the
// tensors' bytes, one after another to the end of the file. Little-endian,
// dense, row-major.
// Source: checkpoint-formats.md 5.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_SAFETENSORS_H_
#define SHARDSHIFT_RESHARD_FORMATS_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/io/file.h"

namespace shardshift::reshard {

// The format's limit on N.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// In place of a tensor: what a file says of itself, as strings.
inline constexpr char kSafetensorsMetadataKey[] = "__metadata__";

// Its bytes are [begin, end) of the file.
struct SafetensorsTensor {
  std::string name;
  ckpt::Shape shape;
  int64_t begin = 0;
  int64_t end = 0;
  ckpt::DType dtype = ckpt::DType::kF32;

  int64_t num_bytes() const { return end - begin; }
  bool operator==(const SafetensorsTensor&) const = default;
};

struct SafetensorsHeader {
  // In the order of the file, without a gap; empty ones before what begins at
  // the same byte.
  std::vector<SafetensorsTensor> tensors;
  absl::btree_map<std::string, std::string> metadata;

  bool operator==(const SafetensorsHeader&) const = default;
};

// Reads a header and checks all of it against the size of the file, whose first
// `begin` bytes are none of it. Takes memory for a small multiple of the
// header, whatever it claims.
//
// Errors: DataLoss naming file, tensor and rule: N beyond the file or its
// limit, no `{` first, invalid JSON or UTF-8, a name or key twice, a key or
// type that the format does not have, a number that is negative, fractional or
// too large, an unknown dtype, sizes that disagree, overlap, a hole, data after
// the last tensor. Unimplemented for dtypes that have no whole bytes, or that
// no checkpoint here can hold. Those of `file`.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const ckpt::File& file,
                                                        int64_t begin = 0);

// The same for the JSON text, which `data_bytes` bytes of tensors follow, the
// first at byte `data_begin` of the file.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text,
                                                         int64_t data_begin,
                                                         int64_t data_bytes);

// What a file of given tensors looks like.
struct SafetensorsLayout {
  std::string header_bytes;  // N and the JSON, padded to a multiple of 8
  SafetensorsHeader header;
  int64_t file_bytes = 0;
};

// Puts the tensors of `header`, in any order, where the reference writer does
// (widest dtype first, then by name), and makes the same bytes: `begin` and
// `end` are set, not read.
// Errors: InvalidArgument naming a tensor that comes twice, whose name is no
// UTF-8 or is taken by the format, or whose size does not fit;
// ResourceExhausted if the header exceeds the format's limit.
absl::StatusOr<SafetensorsLayout> LayOutSafetensors(SafetensorsHeader header);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_SAFETENSORS_H_
