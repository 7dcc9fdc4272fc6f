// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_writer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "reshard/formats/dcp_metadata.h"
#include "reshard/formats/torch_dtype.h"

namespace shardshift::reshard {
namespace {

constexpr char kMetadataModule[] = "torch.distributed.checkpoint.metadata";
constexpr char kStorageModule[] = "torch.distributed.checkpoint.filesystem";

PyValue TorchSize(const ckpt::Shape& shape) {
  return PyValue::Call("torch", "Size", {PyValue::IntTuple(shape)});
}

PyValue Metadata(absl::string_view name, PyValue::Attributes attributes) {
  return PyValue::Object(kMetadataModule, name,
                         PyValue::Dict(std::move(attributes)));
}

PyValue PropertiesOf(ckpt::DType dtype) {
  return PyValue::Object(
      kMetadataModule, "TensorProperties",
      PyValue::Tuple({PyValue::Global("torch", TorchName(dtype)),
                      PyValue::Call("torch.serialization", "_get_layout",
                                    {PyValue::Str("torch.strided")}),
                      PyValue::Bool(false),
                      PyValue::Call(kMetadataModule, "_MEM_FORMAT_ENCODING",
                                    {PyValue::Int(0)}),
                      PyValue::Bool(false)}));
}

}  // namespace

size_t DcpWriter::AddFile(std::string name) {
  DataFile& added = files_.emplace_back();
  added.file.name = absl::StrCat(options_.folder, name);
  added.name = std::move(name);
  added.items = std::make_shared<std::vector<Item>>();
  return files_.size() - 1;
}

size_t DcpWriter::AddTensor(std::string key, ckpt::DType dtype,
                            ckpt::Shape shape) {
  Tensor& added = tensors_.emplace_back();
  added.key = std::move(key);
  added.shape = std::move(shape);
  added.dtype = dtype;
  return tensors_.size() - 1;
}

void DcpWriter::AddChunk(size_t tensor, size_t file, const ckpt::Box& box,
                         std::vector<StoragePiece> pieces, ChunkOrder order) {
  Tensor& chunked = tensors_[tensor];
  TorchFileBuilder builder;
  const size_t storage =
      builder.AddStorage(chunked.dtype, ckpt::NumElements(box));
  const PyValue value =
      order == ChunkOrder::kRows
          ? builder.Tensor(storage, box.extent)
          : builder.Tensor(storage, box.extent, {1, box.extent[0]}, 0);
  TorchFileLayout layout = builder.Layout(value);
  auto& [data, name, items] = files_[file];
  const int64_t begin = data.file_bytes;
  const int64_t num_bytes = layout.total_bytes();
  FileRange payload = layout.Storage(storage);
  payload.offset_bytes += begin;
  items->push_back({begin, std::move(layout),
                    PlacedStorage(std::move(pieces), payload, data)});
  data.file_bytes += num_bytes;
  chunked.chunks.push_back({box, file, {begin, num_bytes}});
}

void DcpWriter::AddScalar(std::string key, size_t file, float value) {
  TorchFileBuilder builder;
  const size_t storage = builder.AddStorage(ckpt::DType::kF32, 1);
  std::string item(sizeof value, '\0');
  std::memcpy(item.data(), &value, sizeof value);
  std::string bytes =
      builder.Layout(builder.Tensor(storage, {})).Bytes(std::span(&item, 1));
  ckpt::ForeignFile& data = files_[file].file;
  const auto num_bytes = std::ssize(bytes);
  const size_t tensor = AddTensor(std::move(key), ckpt::DType::kF32, {});
  Chunk& chunk = tensors_[tensor].chunks.emplace_back();
  chunk.file = file;
  chunk.range = {data.file_bytes, num_bytes};
  data.fixed.push_back({data.file_bytes, std::move(bytes)});
  data.file_bytes += num_bytes;
}

void DcpWriter::AddAlias(std::string key, size_t tensor) {
  Tensor alias = tensors_[tensor];
  alias.key = std::move(key);
  tensors_.push_back(std::move(alias));
}

void DcpWriter::AddBytes(std::string key, size_t file, std::string bytes) {
  ckpt::ForeignFile& data = files_[file].file;
  const auto num_bytes = std::ssize(bytes);
  AddPlace(key, {{"index", PyValue()}}, file, {data.file_bytes, num_bytes});
  data.fixed.push_back({data.file_bytes, std::move(bytes)});
  data.file_bytes += num_bytes;
  bytes_.push_back(std::move(key));
}

void DcpWriter::AddPlace(const std::string& key, PyValue::Attributes where,
                         size_t file, const FileRange& range) {
  where.insert(where.begin(), {"fqn", PyValue::Str(key)});
  places_.emplace_back(
      Metadata("MetadataIndex", std::move(where)),
      PyValue::Object(kStorageModule, "_StorageInfo",
                      PyValue::Dict(PyValue::Attributes{
                          {"relative_path", PyValue::Str(files_[file].name)},
                          {"offset", PyValue::Int(range.offset_bytes)},
                          {"length", PyValue::Int(range.num_bytes)}})));
}

PyValue DcpWriter::PathOf(const std::string& key) const {
  for (const std::string& root : options_.roots) {
    absl::string_view rest = key;
    if (absl::ConsumePrefix(&rest, root) && absl::ConsumePrefix(&rest, ".")) {
      return PyValue::Tuple({PyValue::Str(root), PyValue::Str(rest)});
    }
  }
  return PyValue::Tuple({PyValue::Str(key)});
}

PyValue DcpWriter::AddChunks(const Tensor& tensor) {
  PyValue::Items chunks;
  chunks.reserve(tensor.chunks.size());
  for (const Chunk& chunk : tensor.chunks) {
    AddPlace(tensor.key,
             {{"index", PyValue::Int(std::ssize(chunks))},
              {"offset", TorchSize(chunk.box.start)}},
             chunk.file, chunk.range);
    chunks.push_back(Metadata("ChunkStorageMetadata",
                              {{"offsets", TorchSize(chunk.box.start)},
                               {"sizes", TorchSize(chunk.box.extent)}}));
  }
  return Metadata("TensorStorageMetadata",
                  {{"properties", PropertiesOf(tensor.dtype)},
                   {"size", TorchSize(tensor.shape)},
                   {"chunks", PyValue::List(std::move(chunks))}});
}

std::string DcpWriter::Pickle() && {
  PyValue::Attributes entries;
  PyValue::Attributes paths;
  const auto add = [&](const std::string& key, PyValue entry) {
    entries.emplace_back(key, std::move(entry));
    paths.emplace_back(key, PathOf(key));
  };
  for (const std::string& key : bytes_) {
    add(key, Metadata("BytesStorageMetadata", {}));
  }
  for (const Tensor& tensor : tensors_) add(tensor.key, AddChunks(tensor));
  return WritePickle(Metadata(
      "Metadata",
      {{"state_dict_metadata", PyValue::Dict(std::move(entries))},
       {"planner_data",
        options_.keys_are_paths ? PyValue::Dict(std::move(paths)) : PyValue()},
       {"storage_data", PyValue::Dict(std::move(places_))},
       {"storage_meta", PyValue()},
       {"version", PyValue()}}));
}

void DcpWriter::Finish(ExportPlan& plan) && {
  for (DataFile& data : files_) {
    // All that torch.save writes around the values.
    data.file.finish = [items = data.items](std::span<const uint32_t> crcs) {
      std::vector<ckpt::FixedBytes> fixed;
      for (const Item& item : *items) {
        const uint32_t crc = item.storage.Crc(crcs);
        for (TorchFileLayout::Piece& piece :
             item.layout.Rest(std::span(&crc, 1))) {
          fixed.push_back(
              {item.offset_bytes + piece.offset_bytes, std::move(piece.bytes)});
        }
      }
      return fixed;
    };
    plan.files.push_back(std::move(data.file));
  }
  plan.texts.push_back({absl::StrCat(options_.folder, kDcpMetadataName),
                        std::move(*this).Pickle()});
}

}  // namespace shardshift::reshard
