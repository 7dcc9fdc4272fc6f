// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/core/coding.h"
#include "ckpt/core/crc32.h"
#include "reshard/formats/torch_dtype.h"

namespace shardshift::reshard {
namespace {

constexpr absl::string_view kByteOrder = "little";
constexpr absl::string_view kVersion = "3\n";

uint32_t CrcOf(absl::string_view bytes) {
  return ckpt::UpdateCrc32(0, ckpt::AsBytes(bytes));
}

}  // namespace

size_t TorchFileBuilder::AddStorage(ckpt::DType dtype, int64_t num_elements) {
  storages_.push_back({.num_elements = num_elements, .dtype = dtype});
  return storages_.size() - 1;
}

PyValue TorchFileBuilder::Tensor(size_t storage,
                                 const ckpt::Shape& shape) const {
  // As PyTorch: an extent of 0 counts as 1.
  ckpt::Shape strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<int64_t>(shape[d], 1);
  }
  return Tensor(storage, shape, strides, 0);
}

PyValue TorchFileBuilder::Tensor(size_t storage, const ckpt::Shape& shape,
                                 const ckpt::Shape& strides,
                                 int64_t offset) const {
  const auto& [num_elements, dtype] = storages_[storage];
  const auto type = TorchStorageClass(dtype);
  const int64_t untyped_bytes = num_elements * ckpt::ItemSize(dtype);
  PyValue id =
      PyValue::Tuple({PyValue::Str("storage"),
                      type ? PyValue::Global("torch", *type)
                           : PyValue::Global("torch.storage", "UntypedStorage"),
                      PyValue::Str(absl::StrCat(storage)), PyValue::Str("cpu"),
                      PyValue::Int(type ? num_elements : untyped_bytes)});
  PyValue::Items args = {PyValue::PersistentId(std::move(id)),
                         PyValue::Int(offset),
                         PyValue::IntTuple(shape),
                         PyValue::IntTuple(strides),
                         PyValue::Bool(false),       // requires_grad
                         PyValue::OrderedDict({})};  // hooks
  if (!type) args.push_back(PyValue::Global("torch", TorchName(dtype)));
  return PyValue::Call("torch._utils",
                       type ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3",
                       std::move(args));
}

TorchFileLayout TorchFileBuilder::Layout(const PyValue& root) const {
  TorchFileLayout layout;
  layout.pickle_ = WritePickle(root);
  layout.num_storages_ = storages_.size();
  const auto add = [&](absl::string_view name, int64_t num_bytes) {
    layout.zip_.Add(absl::StrCat(folder_, "/", name), num_bytes);
  };
  add("data.pkl", std::ssize(layout.pickle_));
  add("byteorder", std::ssize(kByteOrder));
  for (size_t i = 0; i < storages_.size(); ++i) {
    add(absl::StrCat("data/", i),
        storages_[i].num_elements * ckpt::ItemSize(storages_[i].dtype));
  }
  add("version", std::ssize(kVersion));
  return layout;
}

FileRange TorchFileLayout::Storage(size_t storage) const {
  const size_t entry = kFirstStorage + storage;
  return {.offset_bytes = zip_.payload_offset(entry),
          .num_bytes = zip_.payload_size(entry)};
}

std::vector<TorchFileLayout::Piece> TorchFileLayout::Rest(
    std::span<const uint32_t> storage_crcs) const {
  std::vector<uint32_t> crcs = {CrcOf(pickle_), CrcOf(kByteOrder)};
  crcs.insert(crcs.end(), storage_crcs.begin(), storage_crcs.end());
  crcs.push_back(CrcOf(kVersion));
  std::vector<Piece> pieces;
  pieces.reserve(crcs.size() + 1);
  for (size_t i = 0; i < crcs.size(); ++i) {
    pieces.push_back({.offset_bytes = zip_.header_offset(i),
                      .bytes = zip_.Header(i, crcs[i])});
  }
  pieces[0].bytes += pickle_;
  absl::StrAppend(&pieces[1].bytes, kByteOrder);
  absl::StrAppend(&pieces.back().bytes, kVersion, zip_.End(crcs));
  return pieces;
}

std::string TorchFileLayout::Bytes(
    std::span<const std::string> storages) const {
  std::vector<uint32_t> crcs;
  crcs.reserve(storages.size());
  for (const std::string& storage : storages) crcs.push_back(CrcOf(storage));
  std::string bytes(total_bytes(), '\0');
  for (const Piece& piece : Rest(crcs)) {
    bytes.replace(piece.offset_bytes, piece.bytes.size(), piece.bytes);
  }
  for (size_t i = 0; i < storages.size(); ++i) {
    bytes.replace(Storage(i).offset_bytes, storages[i].size(), storages[i]);
  }
  return bytes;
}

}  // namespace shardshift::reshard
