// The table of a part file or an index: which tensors there are, and which
// bytes of which part hold which box of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_FORMAT_TABLE_H_
#define SHARDSHIFT_CKPT_FORMAT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/dtype.h"
#include "ckpt/format/user_block.h"

namespace shardshift::ckpt {

inline constexpr int64_t kMaxNdim = 32;  // HDF5's limit
inline constexpr int64_t kMaxNameBytes = 1024;

// One logical tensor. (name, role) is unique in a checkpoint. Names and roles
// are printable ASCII without '/' and space, and neither "." nor "..".
struct Tensor {
  std::string name;
  std::string role;
  DType dtype = DType::kF32;
  Shape shape;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// A box of a tensor, stored dense and row-major at one place of one part. It
// has an element, except the single fragment of an empty tensor.
struct Fragment {
  int64_t tensor = 0;  // index into Table::tensors
  Box box;
  int64_t part = 0;                      // number of the part file
  int64_t offset_bytes = 0;              // in the part file; 0 if empty
  std::vector<uint64_t> checksums = {};  // one for each block of kBlockBytes

  friend bool operator==(const Fragment&, const Fragment&) = default;
};

// A part file as the index knows it.
struct Part {
  int64_t number = 0;
  int64_t file_bytes = 0;
  Digest128 metadata_digest;

  friend bool operator==(const Part&, const Part&) = default;
};

struct Table {
  std::vector<Tensor> tensors;      // ascending by (name, role)
  std::vector<Fragment> fragments;  // ascending by (tensor, box)
  // The rest is empty in a part's table.
  int64_t step = 0;
  std::vector<Part> parts;  // ascending by number
  std::string state;        // JSON text
  std::string record;       // JSON text

  friend bool operator==(const Table&, const Table&) = default;
};

int64_t FragmentBytes(const Table& table, const Fragment& fragment);

// `tensor "name" (role) [0:4]`, for messages.
std::string Describe(const Tensor& tensor);
std::string Describe(const Table& table, const Fragment& fragment);

// The file name of a part: "part-00012.h5".
std::string PartFileName(int64_t part);

// Errors: InvalidArgument for a tensor name or role that breaks the rule.
absl::Status CheckName(absl::string_view name);

// Checks what can be known before places are: order, names, shapes, boxes
// inside their tensors, the number of checksums.
// Errors: InvalidArgument.
absl::Status CheckContents(const Table& table);

// Checks that each fragment lies in one of `parts`, which ascend, within its
// file and apart from the others. REQUIRES: CheckContents.
// Errors: InvalidArgument.
absl::Status CheckPlaces(const Table& table, std::span<const Part> parts);

// CheckContents, CheckPlaces in the table's own parts, and that the fragments
// of each tensor cover it without overlap. Errors: InvalidArgument, naming the
// tensor.
absl::Status CheckIndexTable(const Table& table);

// Where the payload lies in a part, ascending. REQUIRES: a part's table.
std::vector<ByteRange> PayloadRanges(const Table& table);

std::string EncodeTable(const Table& table);

// Decoders of bytes that nobody has checked. Memory is bounded by a small
// multiple of the input. Errors: DataLoss for what does not decode or breaks
// the rules above.
absl::StatusOr<Table> DecodePartTable(std::span<const std::byte> bytes,
                                      int64_t part, int64_t file_bytes);
absl::StatusOr<Table> DecodeIndexTable(std::span<const std::byte> bytes);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_FORMAT_TABLE_H_
