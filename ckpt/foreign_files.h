// Tensors that lie in files which are not ours: safetensors, torch.save and the
// like. Who knows such a format makes a table of them; a Reader reads them as
// it reads parts, but for checksums, which there are none of.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_FOREIGN_FILES_H_
#define SHARDSHIFT_CKPT_FOREIGN_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/core/box.h"
#include "ckpt/format/table.h"
#include "ckpt/format/table_builder.h"

namespace shardshift::ckpt {

struct ForeignFiles {
  std::string source;  // the directory or file that a user names
  // As an index has it; parts[i].number is i, and the file is files[i].
  Table table;
  std::vector<std::string> files;  // paths
  // What is in those that lie in memory alone, by number; their paths name them
  // in messages.
  std::map<int64_t, std::shared_ptr<const std::vector<std::byte>>> contents;
};

// Where the first element of a box lies.
struct ForeignPlace {
  int64_t file = 0;
  int64_t offset_bytes = 0;
  // 0: a dense row-major image. Else the box is a matrix stored column by
  // column, its columns so many elements apart.
  int64_t column_pitch = 0;
};

// Gives a fragment of so many bytes its blocks, and these their places.
void PlaceForeign(const ForeignPlace& place, int64_t num_bytes,
                  Fragment& fragment);

class ForeignFilesBuilder {
 public:
  explicit ForeignFilesBuilder(std::string source)
      : source_(std::move(source)) {}

  // Gives its number.
  int64_t AddFile(std::string path, int64_t num_bytes);

  // The same for a few values that lie in no file: one in memory, called `name`
  // in messages.
  int64_t AddContents(std::string name, std::vector<std::byte> bytes);

  // Boxes of a tensor may come in any order; each has an element, but for the
  // one of an empty tensor.
  // Errors: DataLoss for a place outside the file; InvalidArgument for columns
  // that overlap, or if an earlier box had the tensor with another dtype or
  // shape.
  absl::Status Add(const Tensor& tensor, Box box, const ForeignPlace& place);

  // Call once. `state` and `record` are JSON texts.
  // Errors: as CheckContents; InvalidArgument if the boxes of a tensor do not
  // cover it, each element once. All of them name the source.
  absl::StatusOr<ForeignFiles> Build(int64_t step, std::string state,
                                     std::string record);

 private:
  absl::Status CheckPlace(const Tensor& tensor, const Box& box,
                          const ForeignPlace& place) const;

  const std::string source_;
  std::vector<std::string> files_;
  std::map<int64_t, std::shared_ptr<const std::vector<std::byte>>> contents_;
  std::vector<Part> parts_;
  TableBuilder builder_;
};

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_FOREIGN_FILES_H_
