// SPDX-License-Identifier: Apache-2.0
#include "tests/reshard/formats/torch_tree.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"
#include "reshard/formats/pickle_json.h"
#include "tests/ckpt/sample.h"

namespace shardshift::reshard {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxTensorBytes = int64_t{1} << 20;

class TreeReader {
 public:
  TreeReader(const ckpt::File& file, const TorchFile& torch, TorchTree& tree)
      : file_(file), torch_(torch), tree_(tree) {}

  absl::StatusOr<ordered_json> Read(const PickleValue& value) {
    if (TorchFile::IsTensor(value)) return ReadTensorValue(value);
    if (value.IsMapping()) return ReadMapping(value);
    if (value.kind() == PickleKind::kList) {
      ordered_json list = ordered_json::array();
      SS_ASSIGN_OR_RETURN(const auto items, value.AsList());
      for (const PickleValue& item : items) {
        SS_ASSIGN_OR_RETURN(ordered_json read, Read(item));
        list.push_back(std::move(read));
      }
      return list;
    }
    SS_ASSIGN_OR_RETURN(const nlohmann::json kept, PickleToJson(value));
    if (kept.is_primitive()) return ordered_json(kept);
    return ordered_json{{"kept", kept}};
  }

 private:
  absl::StatusOr<ordered_json> ReadTensorValue(const PickleValue& value) {
    SS_ASSIGN_OR_RETURN(const TorchTensor tensor, torch_.Tensor(value));
    SS_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                        ReadTensor(file_, tensor, kMaxTensorBytes));
    tree_.tensors.push_back(
        {tensor.dtype, tensor.shape,
         std::string(reinterpret_cast<const char*>(bytes.data()),
                     bytes.size())});
    return ordered_json{{"tensor", tree_.tensors.size() - 1}};
  }

  absl::StatusOr<ordered_json> ReadMapping(const PickleValue& value) {
    ordered_json object = ordered_json::object();
    SS_ASSIGN_OR_RETURN(const auto entries, value.AsEntries());
    for (const auto& [key, inner] : entries) {
      std::string name;
      if (key.kind() == PickleKind::kInt) {
        name = absl::StrCat("#", *key.AsInt());
      } else {
        SS_ASSIGN_OR_RETURN(const absl::string_view text, key.AsString());
        name = std::string(text);
      }
      SS_ASSIGN_OR_RETURN(ordered_json read, Read(inner));
      object[name] = std::move(read);
    }
    return object;
  }

  const ckpt::File& file_;
  const TorchFile& torch_;
  TorchTree& tree_;
};

class TreeWriter {
 public:
  explicit TreeWriter(const TorchTree& tree) : tree_(tree) {}

  absl::StatusOr<std::string> Bytes() {
    SS_ASSIGN_OR_RETURN(const PyValue root, Make(tree_.root));
    return builder_.Layout(root).Bytes(storages_);
  }

 private:
  absl::StatusOr<PyValue> Make(const ordered_json& value) {
    if (value.is_array()) {
      PyValue::Items items;
      for (const ordered_json& item : value) {
        SS_ASSIGN_OR_RETURN(PyValue made, Make(item));
        items.push_back(std::move(made));
      }
      return PyValue::List(std::move(items));
    }
    if (!value.is_object()) return PickleFromJson(nlohmann::json(value));
    if (value.contains("kept")) {
      return PickleFromJson(nlohmann::json(value["kept"]));
    }
    if (value.contains("tensor")) return MakeTensor(tree_.At(value));
    PyValue::Entries entries;
    for (const auto& [key, inner] : value.items()) {
      SS_ASSIGN_OR_RETURN(PyValue made, Make(inner));
      int64_t number = 0;
      const bool is_number =
          key.starts_with("#") && absl::SimpleAtoi(key.substr(1), &number);
      entries.emplace_back(is_number ? PyValue::Int(number) : PyValue::Str(key),
                           std::move(made));
    }
    return PyValue::Dict(std::move(entries));
  }

  PyValue MakeTensor(const TorchTree::Tensor& tensor) {
    storages_.push_back(tensor.bytes);
    return builder_.Tensor(
        builder_.AddStorage(tensor.dtype, ckpt::NumElements(tensor.shape)),
        tensor.shape);
  }

  const TorchTree& tree_;
  TorchFileBuilder builder_;
  std::vector<std::string> storages_;
};

}  // namespace

absl::StatusOr<TorchTree> TorchTree::Read(const std::string& path) {
  SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::OpenForRead(path));
  SS_ASSIGN_OR_RETURN(const TorchFile torch, TorchFile::Read(file));
  TorchTree tree;
  SS_ASSIGN_OR_RETURN(tree.root,
                      TreeReader(file, torch, tree).Read(torch.root()));
  return tree;
}

absl::Status TorchTree::Write(const std::string& path) const {
  SS_ASSIGN_OR_RETURN(const std::string bytes, TreeWriter(*this).Bytes());
  ckpt::WriteFile(path, bytes);
  return absl::OkStatus();
}

}  // namespace shardshift::reshard
