// A PyTorch distributed checkpoint that is to be written: tensors in chunks
// over files, objects, and the index of all of them.
// Source: checkpoint-formats.md 2.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_DCP_WRITER_H_
#define SHARDSHIFT_RESHARD_FORMATS_DCP_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/box.h"
#include "ckpt/core/dtype.h"
#include "ckpt/foreign_writer.h"
#include "reshard/exec/export.h"
#include "reshard/formats/pickle_writer.h"
#include "reshard/formats/storage_pieces.h"
#include "reshard/formats/torch_writer.h"
#include "reshard/formats/zip.h"

namespace shardshift::reshard {

struct DcpWriterOptions {
  std::string folder = "";  // of all files, "" or with a '/' at its end
  // Whether keys are told to be paths of one step, which whoever loads without
  // knowing the keys needs.
  bool keys_are_paths = true;
  // But of a key that begins with one of these and a dot the rest is a second
  // step.
  std::vector<std::string> roots = {};
};

// As the first rank of a run calls what it writes.
inline constexpr char kDcpDataFile[] = "__0_0.distcp";

// In which order the values of a chunk lie in its storage. torch.load takes
// either, by its strides.
enum class ChunkOrder : uint8_t {
  kRows,
  kColumns,  // of a matrix: the dense image of its transpose
};

class DcpWriter {
 public:
  explicit DcpWriter(DcpWriterOptions options) : options_(std::move(options)) {}

  // Gives its number. REQUIRES: as of AddTensor and AddBytes, no name twice.
  size_t AddFile(std::string name);

  size_t AddTensor(std::string key, ckpt::DType dtype, ckpt::Shape shape);

  // The values of a box of the tensor: its dense image consists of `pieces`, as
  // PlacedStorage has them. REQUIRES: all boxes of a tensor are its elements,
  // each once; only an empty tensor has an empty box.
  void AddChunk(size_t tensor, size_t file, const ckpt::Box& box,
                std::vector<StoragePiece> pieces,
                ChunkOrder order = ChunkOrder::kRows);

  // A tensor of one F32 and no dimensions, whose value is known.
  void AddScalar(std::string key, size_t file, float value);

  // A second key for a tensor that has all its chunks, and for their bytes.
  void AddAlias(std::string key, size_t tensor);

  // What torch.save makes of an object, or any bytes.
  void AddBytes(std::string key, size_t file, std::string bytes);

  // Adds the files, and then `.metadata`, without which a directory is none.
  void Finish(ExportPlan& plan) &&;

 private:
  struct Chunk {
    ckpt::Box box;
    size_t file = 0;
    FileRange range;  // of what torch.save would write
  };
  struct Tensor {
    std::string key;
    std::vector<Chunk> chunks = {};
    ckpt::Shape shape;
    ckpt::DType dtype = ckpt::DType::kF32;
  };
  // A tensor's place in a file: what torch.save would write.
  struct Item {
    int64_t offset_bytes = 0;
    TorchFileLayout layout;
    PlacedStorage storage;
  };
  struct DataFile {
    ckpt::ForeignFile file;
    std::string name;
    std::shared_ptr<std::vector<Item>> items;
  };

  // `where`: what tells the item from others of its key.
  void AddPlace(const std::string& key, PyValue::Attributes where, size_t file,
                const FileRange& range);
  PyValue PathOf(const std::string& key) const;
  PyValue AddChunks(const Tensor& tensor);
  std::string Pickle() &&;

  const DcpWriterOptions options_;
  std::vector<DataFile> files_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> bytes_;  // keys
  PyValue::Entries places_;
};

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_DCP_WRITER_H_
