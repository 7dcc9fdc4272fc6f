// The index of a PyTorch distributed checkpoint (DCP), its file `.metadata`: a
// pickle of torch.distributed.checkpoint.metadata.Metadata. What else is in it,
// such as the plans that Megatron caches there, is passed over.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DCP_METADATA_H_
#define SHARDSHIFT_RESHARD_FORMATS_DCP_METADATA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/io/file.h"
#include "reshard/formats/torch_file.h"
#include "reshard/formats/zip.h"

namespace shardshift::reshard {

inline constexpr char kDcpMetadataName[] = ".metadata";

// Where an item is: by itself, `range` is what torch.save wrote.
struct DcpPlace {
  FileRange range;
  size_t file = 0;  // a position in DcpMetadata::files
};

struct DcpChunk {
  ckpt::Box box;  // of the tensor
  DcpPlace place;
};

// The chunks have an element or more each, and every element of the tensor is
// in one of them.
struct DcpTensor {
  std::string fqn;
  ckpt::Shape shape;
  std::vector<DcpChunk> chunks;
  ckpt::DType dtype = ckpt::DType::kF32;
};

// A value that is no tensor: a pickle of it, by torch.save.
struct DcpBytes {
  std::string key;
  DcpPlace place;
};

struct DcpMetadata {
  std::vector<DcpTensor> tensors;
  std::vector<DcpBytes> bytes;
  // Relative to the checkpoint's directory; none leads out of it.
  std::vector<std::string> files;

  // Nullptr if there is none. Linear in their number.
  const DcpTensor* FindTensor(absl::string_view fqn) const;
  const DcpBytes* FindBytes(absl::string_view key) const;
};

// Errors: those of Pickle::Parse(); DataLoss for what is no Metadata, a tensor
// whose chunks overlap, leave it or do not fill it, an item without a place,
// and a place outside the directory; Unimplemented for dtypes that cannot be
// kept, and for items that were transformed when they were written.
absl::StatusOr<DcpMetadata> ParseDcpMetadata(std::string bytes,
                                             const PickleOptions& options = {});

// That of a directory. Errors: NotFound if there is no `.metadata`, as in a
// checkpoint that was never finished.
absl::StatusOr<DcpMetadata> ReadDcpMetadata(const std::string& directory,
                                            const PickleOptions& options = {});

// The values of a chunk in its file, which is open as `file`: a tensor of the
// extent of the chunk.
// Errors: those of TorchFile::Read(); DataLoss if another tensor is there.
absl::StatusOr<TorchTensor> ResolveDcpChunk(const ckpt::File& file,
                                            const DcpTensor& tensor,
                                            const DcpChunk& chunk);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DCP_METADATA_H_
