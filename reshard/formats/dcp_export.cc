// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_export.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "reshard/exec/checkpoint_state.h"
#include "reshard/exec/generic_plan.h"
#include "reshard/formats/dcp_metadata.h"
#include "reshard/formats/generic.h"
#include "reshard/formats/pickle_writer.h"
#include "reshard/formats/torch_dtype.h"
#include "reshard/formats/torch_writer.h"

namespace shardshift::reshard {
namespace {

constexpr char kDataFile[] = "__0_0.distcp";
constexpr char kMetadataModule[] = "torch.distributed.checkpoint.metadata";
constexpr char kStorageModule[] = "torch.distributed.checkpoint.filesystem";

PyValue TorchSize(const ckpt::Shape& shape) {
  return PyValue::Call("torch", "Size", {PyValue::IntTuple(shape)});
}

// The index of a checkpoint, item by item.
class MetadataBuilder {
 public:
  void AddTensor(const std::string& key, const ckpt::FragmentSpec& spec,
                 const FileRange& range) {
    const ckpt::Shape origin(spec.shape.size(), 0);
    PyValue chunk = Metadata(
        "ChunkStorageMetadata",
        {{"offsets", TorchSize(origin)}, {"sizes", TorchSize(spec.shape)}});
    PyValue properties = PyValue::Object(
        kMetadataModule, "TensorProperties",
        PyValue::Tuple({PyValue::Global("torch", TorchName(spec.dtype)),
                        PyValue::Call("torch.serialization", "_get_layout",
                                      {PyValue::Str("torch.strided")}),
                        PyValue::Bool(false),
                        PyValue::Call(kMetadataModule, "_MEM_FORMAT_ENCODING",
                                      {PyValue::Int(0)}),
                        PyValue::Bool(false)}));
    tensors_.emplace_back(
        key, Metadata("TensorStorageMetadata",
                      {{"properties", std::move(properties)},
                       {"size", TorchSize(spec.shape)},
                       {"chunks", PyValue::List({std::move(chunk)})}}));
    AddPlace(key, {{"index", PyValue::Int(0)}, {"offset", TorchSize(origin)}},
             range);
  }

  void AddBytes(const std::string& key, const FileRange& range) {
    tensors_.emplace_back(key, Metadata("BytesStorageMetadata", {}));
    AddPlace(key, {{"index", PyValue()}}, range);
  }

  std::string Pickle() && {
    PyValue::Attributes attributes;
    attributes.emplace_back("state_dict_metadata",
                            PyValue::Dict(std::move(tensors_)));
    attributes.emplace_back("planner_data", PyValue::Dict(std::move(paths_)));
    attributes.emplace_back("storage_data", PyValue::Dict(std::move(places_)));
    attributes.emplace_back("storage_meta", PyValue());
    attributes.emplace_back("version", PyValue());
    return WritePickle(Metadata("Metadata", std::move(attributes)));
  }

 private:
  static PyValue Metadata(absl::string_view name,
                          PyValue::Attributes attributes) {
    return PyValue::Object(kMetadataModule, name,
                           PyValue::Dict(std::move(attributes)));
  }

  void AddPlace(const std::string& key, PyValue::Attributes where,
                const FileRange& range) {
    // A key is a path of one step: whoever loads all of it gets a flat dict.
    paths_.emplace_back(key, PyValue::Tuple({PyValue::Str(key)}));
    where.insert(where.begin(), {"fqn", PyValue::Str(key)});
    places_.emplace_back(
        Metadata("MetadataIndex", std::move(where)),
        PyValue::Object(kStorageModule, "_StorageInfo",
                        PyValue::Dict(PyValue::Attributes{
                            {"relative_path", PyValue::Str(kDataFile)},
                            {"offset", PyValue::Int(range.offset_bytes)},
                            {"length", PyValue::Int(range.num_bytes)}})));
  }

  PyValue::Attributes tensors_;
  PyValue::Attributes paths_;
  PyValue::Entries places_;
};

// A tensor's place in the data file: what torch.save would write.
struct Item {
  int64_t offset_bytes = 0;
  TorchFileLayout layout;
};

// The bytes around the payload of all items; of item i the payload is that of
// spec i.
std::vector<ckpt::FixedBytes> Around(const std::vector<Item>& items,
                                     std::span<const uint32_t> crcs) {
  std::vector<ckpt::FixedBytes> fixed;
  for (size_t i = 0; i < items.size(); ++i) {
    for (TorchFileLayout::Piece& piece :
         items[i].layout.Rest(crcs.subspan(i, 1))) {
      fixed.push_back(
          {items[i].offset_bytes + piece.offset_bytes, std::move(piece.bytes)});
    }
  }
  return fixed;
}

absl::Status AddObjects(const CheckpointState& state, ckpt::ForeignFile& file,
                        MetadataBuilder& metadata) {
  const auto generic = state.state.find("generic");
  if (generic == state.state.end() || !generic->contains("objects")) {
    return absl::OkStatus();
  }
  for (const auto& [escaped, value] : (*generic)["objects"].items()) {
    std::string key;
    std::string bytes;
    if (!value.is_string() || !absl::CUnescape(escaped, &key) ||
        !absl::Base64Unescape(value.get<std::string>(), &bytes)) {
      return absl::DataLossError(
          absl::StrCat("checkpoint state: object ", escaped, " is no base64"));
    }
    metadata.AddBytes(key,
                      {file.file_bytes, static_cast<int64_t>(bytes.size())});
    const auto num_bytes = std::ssize(bytes);
    file.fixed.push_back({file.file_bytes, std::move(bytes)});
    file.file_bytes += num_bytes;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExportPlan> PlanDcpExport(const ckpt::Reader& source,
                                         const ExportChoice& choice) {
  SS_ASSIGN_OR_RETURN(const CheckpointState state, ReadTexts(source));
  SS_ASSIGN_OR_RETURN(const CopyPlan copies,
                      PlanGenericCopy(source, 1, choice.choice));
  ExportPlan plan;
  ckpt::ForeignFile file;
  file.name = kDataFile;
  MetadataBuilder metadata;
  SS_RETURN_IF_ERROR(AddObjects(state, file, metadata));
  auto items = std::make_shared<std::vector<Item>>();
  for (const TensorCopy& copy : copies.tensors) {
    const ckpt::FragmentSpec& spec =
        copies.parts[0].specs[copy.targets[0].spec];
    const std::string key = KeyOfName({spec.tensor, spec.role});
    TorchFileBuilder builder;
    const size_t storage =
        builder.AddStorage(spec.dtype, ckpt::NumElements(spec.box));
    Item item = {file.file_bytes,
                 builder.Layout(builder.Tensor(storage, spec.shape))};
    const FileRange payload = item.layout.Storage(storage);
    metadata.AddTensor(key, spec,
                       {item.offset_bytes, item.layout.total_bytes()});
    file.specs.push_back(spec);
    file.places.push_back({0, item.offset_bytes + payload.offset_bytes, 0});
    file.file_bytes += item.layout.total_bytes();
    items->push_back(std::move(item));
    plan.tensors.push_back({copy.source, spec.tensor, spec.role});
  }
  file.finish = [items](std::span<const uint32_t> crcs) {
    return Around(*items, crcs);
  };
  plan.files.push_back(std::move(file));
  // Last: a directory without it is no checkpoint.
  plan.texts.push_back({kDcpMetadataName, std::move(metadata).Pickle()});
  for (const auto& [key, value] : state.state.items()) {
    if (key != "generic") plan.left_out.push_back(absl::StrCat("state: ", key));
  }
  return plan;
}

}  // namespace shardshift::reshard
