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

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/checksum.h"
#include "ckpt/core/dtype.h"
#include "ckpt/core/fingerprint.h"
#include "ckpt/core/page_memory.h"
#include "ckpt/format/user_block.h"

namespace shardshift::ckpt {

inline constexpr int64_t kMaxNdim = 32;  // HDF5's limit
inline constexpr int64_t kMaxNameBytes = 1024;

// Bytes of state and of record.
inline constexpr int64_t kMaxTextBytes = int64_t{64} << 20;

// One logical tensor. (name, role) is unique in a checkpoint. Names and roles
// are printable ASCII without space. A role has no '/'; a name may have some,
// which nest groups in HDF5: what lies between them is not empty, nor "." or
// "..", and NAME/ROLE is no group of another tensor's.
struct Tensor {
  std::string name;
  std::string role;
  DType dtype = DType::kF32;
  Shape shape;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// How the bytes of a block are stored.
enum class Codec : uint8_t {
  kNone = 0,  // as they are
  // Byte shuffle of HDF5's filter 2, then one zstd frame as of its registered
  // filter 32015; a short last block is padded with zeros to a whole one,
  // unless it is the only one.
  kShuffleZstd = 1,
};

// Smaller fragments are stored without a codec.
inline constexpr int64_t kMinCompressedBytes = 4096;

// How a fragment of so many bytes is stored where `codec` is asked for.
inline Codec CodecFor(int64_t num_bytes, Codec codec) {
  return num_bytes < kMinCompressedBytes ? Codec::kNone : codec;
}

// kBlockBytes of a fragment's values, the last one shorter.
struct Block {
  int64_t offset_bytes = 0;  // in the part file
  int64_t stored_bytes = 0;
  uint64_t checksum = 0;  // of the stored bytes

  friend bool operator==(const Block&, const Block&) = default;
};

// A box of a tensor, its dense row-major image stored in blocks in one part.
// It has an element, except the single fragment of an empty tensor. Without a
// codec blocks follow each other in the file.
struct Fragment {
  int64_t tensor = 0;  // index into Table::tensors
  Box box;
  int64_t part = 0;  // number of the part file; 0 in a part's own table
  Codec codec = Codec::kNone;
  Fingerprint fingerprint = {};  // of the values in `box`
  absl::InlinedVector<Block, 1> blocks = {};
  // Of a foreign matrix that is stored column by column: how many elements its
  // columns are apart; every block then has the place of the first element.
  int64_t column_pitch = 0;

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
  int64_t step = 0;
  std::string state;               // JSON text
  PageVector<Tensor> tensors;      // ascending by (name, role)
  PageVector<Fragment> fragments;  // ascending by (tensor, box)
  // The rest is empty in a part's table.
  std::string record;       // JSON text
  std::vector<Part> parts;  // ascending by number
  // Of files that are not ours (foreign_files.h): without checksums and
  // fingerprints.
  bool is_foreign = false;

  friend bool operator==(const Table&, const Table&) = default;
};

// Of the values, whatever the codec.
int64_t FragmentBytes(const Table& table, const Fragment& fragment);

// Of the values of block `block`.
int64_t BlockBytes(const Table& table, const Fragment& fragment, int64_t block);

// What the blocks of a fragment with a codec are padded to: HDF5 wants chunks
// of one size.
int64_t ChunkBytes(const Table& table, const Fragment& fragment);

// `tensor "name" (role) [0:4]`, for messages.
std::string Describe(const Tensor& tensor);
std::string Describe(const Table& table, const Fragment& fragment);

// The file name of a part: "part-00012.h5".
std::string PartFileName(int64_t part);

// Gives the blocks of a fragment without a codec their places: one after
// another from offset_bytes on, num_bytes in all.
void PlaceBlocks(int64_t offset_bytes, int64_t num_bytes, Fragment& fragment);

// The fingerprint of each tensor: the sum over its fragments.
// REQUIRES: CheckContents.
std::vector<Fingerprint> TensorFingerprints(const Table& table);

// One fingerprint of all tensors and their values, whatever the fragments.
Digest128 RootFingerprintOf(const Table& table);

// Errors: InvalidArgument for a tensor name that breaks the rule. A role is
// such a name without '/'.
absl::Status CheckName(absl::string_view name);

// Checks what can be known before places are: order, names, shapes, boxes
// inside their tensors, codecs, the number of blocks, fingerprints.
// Errors: InvalidArgument.
absl::Status CheckContents(const Table& table);

// Checks that the blocks of each fragment lie in one of `parts`, which ascend,
// within its file and apart from the others. REQUIRES: CheckContents.
// Errors: InvalidArgument.
absl::Status CheckPlaces(const Table& table, std::span<const Part> parts);

// Checks that the fragments of each tensor cover it without overlap.
// REQUIRES: CheckContents. Errors: InvalidArgument, naming the tensor.
absl::Status CheckCovers(const Table& table);

// CheckContents, CheckPlaces in the table's own parts, and CheckCovers.
absl::Status CheckIndexTable(const Table& table);

// Where the payload lies in a part, ascending. REQUIRES: a part's table.
std::vector<ByteRange> PayloadRanges(const Table& table);

// REQUIRES: fragments are sorted, and blocks without a codec placed.
std::string EncodeTable(const Table& table);

// Decoders of bytes that nobody has checked. Memory is bounded by a small
// multiple of the input. Errors: DataLoss for what does not decode or breaks
// the rules above.
absl::StatusOr<Table> DecodePartTable(std::span<const std::byte> bytes,
                                      int64_t file_bytes);
absl::StatusOr<Table> DecodeIndexTable(std::span<const std::byte> bytes);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_FORMAT_TABLE_H_
