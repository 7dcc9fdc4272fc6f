// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/dcp_metadata.h"

#include <algorithm>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/common_values.h"
#include "reshard/formats/pickle_value.h"
#include "reshard/formats/torch_dtype.h"
#include "reshard/plan/plan.h"

namespace shardshift::reshard {
namespace {

using ckpt::Box;
using ckpt::Shape;

constexpr size_t kMaxAttributeItems = 64;

// A class of this name, in whichever module of torch.distributed it was when
// the checkpoint was written.
bool IsDcp(const PickleValue& value, absl::string_view name) {
  if (value.kind() != PickleKind::kObject) return false;
  const Pickle& pickle = value.pickle();
  const Pickle::Id type = pickle.Callable(value.id());
  // Of a dict of attributes that thousands of objects share, each look-up
  // passes all: those of the real ones are few.
  const std::optional<Pickle::Id> state = pickle.State(value.id());
  return pickle.Name(type) == name &&
         absl::StartsWith(pickle.Module(type), "torch.distributed.") &&
         (!state || pickle.Items(*state).size() <= kMaxAttributeItems);
}

absl::Status CheckRelativePath(const PickleValue& value,
                               absl::string_view path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  const bool inside =
      std::none_of(parts.begin(), parts.end(), [](absl::string_view part) {
        return part.empty() || part == "." || part == ".." ||
               absl::StrContains(part, '\0');
      });
  if (inside) return absl::OkStatus();
  return value.Error(absl::StrCat("is \"", path,
                                  "\", expected a file in the directory of the "
                                  "checkpoint"));
}

// Whether a box with elements lies in the tensor. Nothing overflows.
bool LiesIn(const Shape& shape, const Box& box) {
  if (box.start.size() != shape.size() || box.extent.size() != shape.size()) {
    return false;
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.start[d] < 0 || box.extent[d] < 0 || box.extent[d] > shape[d] ||
        box.start[d] > shape[d] - box.extent[d]) {
      return false;
    }
  }
  return true;
}

// A name, whether it is a tensor's, and the offsets of a chunk of it.
using ItemKey = std::tuple<absl::string_view, bool, Shape>;

class Parser {
 public:
  explicit Parser(const Pickle& pickle)
      : root_(pickle), max_chunks_(pickle.num_nodes()) {}

  absl::StatusOr<DcpMetadata> Run();

 private:
  absl::Status ReadPlaces(const PickleValue& storage_data);
  absl::StatusOr<DcpPlace> ReadPlace(const PickleValue& info);
  // Once for each key.
  absl::StatusOr<DcpPlace> TakePlace(const PickleValue& value,
                                     const ItemKey& key);
  absl::Status AddTensor(absl::string_view fqn, const PickleValue& storage);
  absl::Status AddBytes(absl::string_view fqn, const PickleValue& storage);
  absl::Status CheckChunks(const PickleValue& storage,
                           const DcpTensor& tensor) const;

  const PickleValue root_;
  DcpMetadata metadata_;
  absl::flat_hash_map<std::string, size_t> files_;
  // Of the places with one key, the first one; chunks without an element may
  // have several.
  struct Places {
    DcpPlace place;
    bool ambiguous = false;
    bool taken = false;
  };
  absl::flat_hash_map<ItemKey, Places> places_;
  // Each is a node, unless tensors share one list of millions.
  const int64_t max_chunks_;
  int64_t num_chunks_ = 0;
};

absl::StatusOr<DcpMetadata> Parser::Run() {
  if (!IsDcp(root_, "Metadata")) {
    return root_.Wrong("a Metadata of torch.distributed.checkpoint");
  }
  SS_ASSIGN_OR_RETURN(const PickleValue data, root_.Attribute("storage_data"));
  SS_RETURN_IF_ERROR(ReadPlaces(data));
  SS_ASSIGN_OR_RETURN(const PickleValue items,
                      root_.Attribute("state_dict_metadata"));
  SS_ASSIGN_OR_RETURN(const auto entries, items.AsEntries());
  absl::flat_hash_set<absl::string_view> seen;
  for (const auto& [key, storage] : entries) {
    SS_ASSIGN_OR_RETURN(const absl::string_view fqn, key.AsString());
    if (!seen.insert(fqn).second) {
      return items.Error(absl::StrCat("has \"", fqn, "\" twice"));
    }
    if (IsDcp(storage, "TensorStorageMetadata")) {
      SS_RETURN_IF_ERROR(AddTensor(fqn, storage));
    } else if (IsDcp(storage, "BytesStorageMetadata")) {
      SS_RETURN_IF_ERROR(AddBytes(fqn, storage));
    } else {
      return storage.Wrong("a TensorStorageMetadata or BytesStorageMetadata");
    }
  }
  return std::move(metadata_);
}

absl::Status Parser::ReadPlaces(const PickleValue& storage_data) {
  SS_ASSIGN_OR_RETURN(const auto entries, storage_data.AsEntries());
  for (const auto& [index, info] : entries) {
    if (!IsDcp(index, "MetadataIndex")) return index.Wrong("a MetadataIndex");
    if (!IsDcp(info, "_StorageInfo")) return info.Wrong("a _StorageInfo");
    SS_ASSIGN_OR_RETURN(const PickleValue fqn, index.Attribute("fqn"));
    ItemKey key = {};
    SS_ASSIGN_OR_RETURN(std::get<0>(key), fqn.AsString());
    SS_ASSIGN_OR_RETURN(const auto offset, index.FindAttribute("offset"));
    std::get<1>(key) = offset && !offset->IsNone();
    if (std::get<1>(key)) {
      SS_ASSIGN_OR_RETURN(std::get<2>(key), AsShape(*offset));
    }
    SS_ASSIGN_OR_RETURN(const DcpPlace place, ReadPlace(info));
    const auto [found, added] =
        places_.emplace(std::move(key), Places{.place = place});
    found->second.ambiguous = !added;
  }
  return absl::OkStatus();
}

absl::StatusOr<DcpPlace> Parser::ReadPlace(const PickleValue& info) {
  SS_ASSIGN_OR_RETURN(const auto transforms,
                      info.FindAttribute("transform_descriptors"));
  if (transforms && !transforms->IsNone() && transforms->num_children() > 0) {
    return absl::UnimplementedError(
        absl::StrCat(transforms->Where(),
                     ": the item was transformed when it was written: "
                     "save the checkpoint without extensions of the storage"));
  }
  SS_ASSIGN_OR_RETURN(const PickleValue path_value,
                      info.Attribute("relative_path"));
  SS_ASSIGN_OR_RETURN(const absl::string_view path, path_value.AsString());
  SS_RETURN_IF_ERROR(CheckRelativePath(path_value, path));
  DcpPlace place;
  SS_ASSIGN_OR_RETURN(const PickleValue offset, info.Attribute("offset"));
  SS_ASSIGN_OR_RETURN(place.range.offset_bytes, offset.AsInt());
  SS_ASSIGN_OR_RETURN(const PickleValue length, info.Attribute("length"));
  SS_ASSIGN_OR_RETURN(place.range.num_bytes, length.AsInt());
  int64_t end = 0;
  if (place.range.offset_bytes < 0 || place.range.num_bytes < 0 ||
      __builtin_add_overflow(place.range.offset_bytes, place.range.num_bytes,
                             &end)) {
    return info.Error(absl::StrCat("has offset ", place.range.offset_bytes,
                                   " and length ", place.range.num_bytes));
  }
  const auto [found, added] = files_.emplace(path, metadata_.files.size());
  if (added) metadata_.files.emplace_back(path);
  place.file = found->second;
  return place;
}

absl::StatusOr<DcpPlace> Parser::TakePlace(const PickleValue& value,
                                           const ItemKey& key) {
  const auto& [fqn, is_tensor, offsets] = key;
  const auto found = places_.find(key);
  const bool missing = found == places_.end();
  if (!missing && !found->second.ambiguous && !found->second.taken) {
    found->second.taken = true;
    return found->second.place;
  }
  return value.Error(absl::StrCat(
      "(\"", fqn, "\"",
      is_tensor ? absl::StrCat(" at ", ckpt::ToString(offsets)) : "", ") ",
      missing                   ? "has no place in storage_data"
      : found->second.ambiguous ? "has two places in storage_data"
                                : "is there twice"));
}

absl::Status Parser::AddTensor(absl::string_view fqn,
                               const PickleValue& storage) {
  DcpTensor tensor;
  tensor.fqn = std::string(fqn);
  SS_ASSIGN_OR_RETURN(const PickleValue properties,
                      storage.Attribute("properties"));
  if (!IsDcp(properties, "TensorProperties")) {
    return properties.Wrong("a TensorProperties");
  }
  SS_ASSIGN_OR_RETURN(const PickleValue state, properties.State());
  SS_ASSIGN_OR_RETURN(const PickleValue dtype, state.kind() == PickleKind::kDict
                                                   ? state.Get("dtype")
                                                   : state.At(0));
  SS_ASSIGN_OR_RETURN(tensor.dtype, AsTorchDType(dtype));
  SS_ASSIGN_OR_RETURN(const PickleValue size, storage.Attribute("size"));
  SS_ASSIGN_OR_RETURN(tensor.shape, AsShape(size));
  if (const auto count = ckpt::CheckedNumElements(tensor.shape); !count.ok()) {
    return size.Error(absl::StrCat("is no size: ", count.status().message()));
  }
  SS_ASSIGN_OR_RETURN(const PickleValue chunks, storage.Attribute("chunks"));
  SS_ASSIGN_OR_RETURN(const auto items, chunks.AsList());
  num_chunks_ += std::ssize(items);
  if (num_chunks_ > max_chunks_) {
    return chunks.Error("is used by too many tensors");
  }
  for (const PickleValue& item : items) {
    if (!IsDcp(item, "ChunkStorageMetadata")) {
      return item.Wrong("a ChunkStorageMetadata");
    }
    SS_ASSIGN_OR_RETURN(const PickleValue offsets, item.Attribute("offsets"));
    SS_ASSIGN_OR_RETURN(const PickleValue sizes, item.Attribute("sizes"));
    DcpChunk chunk;
    SS_ASSIGN_OR_RETURN(chunk.box.start, AsShape(offsets));
    SS_ASSIGN_OR_RETURN(chunk.box.extent, AsShape(sizes));
    // A process without a row writes an empty chunk, as does another.
    if (std::find(chunk.box.extent.begin(), chunk.box.extent.end(), 0) !=
        chunk.box.extent.end()) {
      continue;
    }
    if (!LiesIn(tensor.shape, chunk.box)) {
      return item.Error(absl::StrCat(
          "has offsets ", ckpt::ToString(chunk.box.start), " and sizes ",
          ckpt::ToString(chunk.box.extent), ", outside the tensor of shape ",
          ckpt::ToString(tensor.shape)));
    }
    SS_ASSIGN_OR_RETURN(chunk.place,
                        TakePlace(item, ItemKey(fqn, true, chunk.box.start)));
    tensor.chunks.push_back(std::move(chunk));
  }
  SS_RETURN_IF_ERROR(CheckChunks(storage, tensor));
  metadata_.tensors.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status Parser::CheckChunks(const PickleValue& storage,
                                 const DcpTensor& tensor) const {
  const Box whole = ckpt::WholeBox(tensor.shape);
  if (ckpt::NumElements(whole) == 0) return absl::OkStatus();
  std::vector<Box> boxes;
  boxes.reserve(tensor.chunks.size());
  for (const DcpChunk& chunk : tensor.chunks) boxes.push_back(chunk.box);
  const auto plan = PlanCopies(boxes, std::span(&whole, 1));
  if (plan.ok()) return absl::OkStatus();
  return storage.Error(absl::StrCat("has chunks that do not make it up: ",
                                    plan.status().message()));
}

absl::Status Parser::AddBytes(absl::string_view fqn,
                              const PickleValue& storage) {
  DcpBytes item;
  item.key = std::string(fqn);
  SS_ASSIGN_OR_RETURN(item.place, TakePlace(storage, ItemKey(fqn, false, {})));
  metadata_.bytes.push_back(std::move(item));
  return absl::OkStatus();
}

template <typename Item, typename Name>
const Item* FindByName(const std::vector<Item>& items, Name Item::*name,
                       absl::string_view wanted) {
  const auto found =
      std::find_if(items.begin(), items.end(),
                   [&](const Item& item) { return item.*name == wanted; });
  return found == items.end() ? nullptr : &*found;
}

}  // namespace

const DcpTensor* DcpMetadata::FindTensor(absl::string_view fqn) const {
  return FindByName(tensors, &DcpTensor::fqn, fqn);
}

const DcpBytes* DcpMetadata::FindBytes(absl::string_view key) const {
  return FindByName(bytes, &DcpBytes::key, key);
}

absl::StatusOr<DcpMetadata> ParseDcpMetadata(std::string bytes,
                                             const PickleOptions& options) {
  SS_ASSIGN_OR_RETURN(const Pickle pickle,
                      Pickle::Parse(std::move(bytes), options));
  return Parser(pickle).Run();
}

absl::StatusOr<DcpMetadata> ReadDcpMetadata(const std::string& directory,
                                            const PickleOptions& options) {
  const std::string path = ckpt::JoinPath(directory, kDcpMetadataName);
  auto file = ckpt::File::OpenForRead(path);
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(absl::StrCat(
        path,
        " is not there: this is no distributed checkpoint of PyTorch, or "
        "one whose saving did not finish"));
  }
  if (!file.ok()) return std::move(file).status();
  SS_ASSIGN_OR_RETURN(const FileRange all, WholeFile(*file));
  if (all.num_bytes > options.max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " has ", all.num_bytes, " bytes, at most ",
                     options.max_bytes, " are read"));
  }
  SS_ASSIGN_OR_RETURN(std::string bytes, ReadRange(*file, all));
  auto metadata = ParseDcpMetadata(std::move(bytes), options);
  if (!metadata.ok()) return Annotate(metadata.status(), path);
  return metadata;
}

absl::StatusOr<TorchTensor> ResolveDcpChunk(const ckpt::File& file,
                                            const DcpTensor& tensor,
                                            const DcpChunk& chunk) {
  const std::string where = absl::StrCat(tensor.fqn, ckpt::ToString(chunk.box));
  auto saved = TorchFile::Read(file, chunk.place.range);
  if (!saved.ok()) return Annotate(saved.status(), where);
  auto found = saved->Tensor(saved->root());
  if (!found.ok()) return Annotate(found.status(), where);
  if (found->dtype == tensor.dtype && found->shape == chunk.box.extent) {
    return found;
  }
  return absl::DataLossError(absl::StrCat(
      where, ": ", file.path(), " has at byte ", chunk.place.range.offset_bytes,
      " a tensor of shape ", ckpt::ToString(found->shape), " of ",
      ckpt::Name(found->dtype), ", expected ", ckpt::ToString(chunk.box.extent),
      " of ", ckpt::Name(tensor.dtype)));
}

}  // namespace shardshift::reshard
