// SPDX-License-Identifier: Apache-2.0
#include "reshard/formats/torch_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ckpt/core/status_macros.h"
#include "reshard/formats/common_values.h"
#include "reshard/formats/torch_dtype.h"

namespace shardshift::reshard {
namespace {

using ckpt::DType;
using ckpt::Shape;

// Of the entries beside pickle and storages.
constexpr int64_t kMaxNoteBytes = 4096;
constexpr int64_t kMinVersion = 1;
constexpr int64_t kMaxVersion = 10;
// The length of a safetensors header, and its first character.
constexpr int64_t kMagicBytes = 9;
// Classes around classes around a tensor.
constexpr int kMaxWrappers = 8;
// What says of a tensor that its values are other than its bytes.
constexpr size_t kMaxMetadata = 64;

// Says what a file is that is no zip. Of one of safetensors, the range may be
// that of one tensor.
absl::Status CheckMagic(const ckpt::File& file, FileRange range) {
  SS_ASSIGN_OR_RETURN(const FileRange all, WholeFile(file));
  std::array<std::byte, kMagicBytes> head = {};
  SS_RETURN_IF_ERROR(
      file.ReadAt(range.offset_bytes,
                  std::span(head).first(std::min(
                      kMagicBytes, all.num_bytes - range.offset_bytes))));
  if (head.front() == std::byte{0x80}) {
    return absl::UnimplementedError(absl::StrCat(
        file.path(), ", byte ", range.offset_bytes,
        ": a pickle without a zip around it, as torch before 1.6 saved, or "
        "torch.save with _use_new_zipfile_serialization=False: load it with "
        "torch.load and save it anew"));
  }
  if (head.back() == std::byte{'{'}) {
    return absl::UnimplementedError(absl::StrCat(
        file.path(), ", byte ", range.offset_bytes,
        ": looks like safetensors, expected what torch.save writes"));
  }
  return absl::OkStatus();
}

// The text of a small entry, or nullopt if there is none.
absl::StatusOr<std::optional<std::string>> ReadNote(const ckpt::File& file,
                                                    const ZipArchive& zip,
                                                    absl::string_view name) {
  const ZipEntry* entry = zip.Find(name);
  if (entry == nullptr) return std::nullopt;
  SS_ASSIGN_OR_RETURN(std::string text,
                      ReadZipEntry(file, *entry, kMaxNoteBytes));
  return text;
}

absl::Status CheckNotes(const ckpt::File& file, const ZipArchive& zip,
                        absl::string_view prefix) {
  SS_ASSIGN_OR_RETURN(const auto byteorder,
                      ReadNote(file, zip, absl::StrCat(prefix, "byteorder")));
  if (byteorder && *byteorder != "little") {
    return absl::UnimplementedError(absl::StrCat(
        file.path(), ": its values are in byte order \"", *byteorder,
        "\", only little is read: save it anew on a little-endian machine"));
  }
  SS_ASSIGN_OR_RETURN(auto version,
                      ReadNote(file, zip, absl::StrCat(prefix, "version")));
  if (!version) {
    SS_ASSIGN_OR_RETURN(
        version, ReadNote(file, zip, absl::StrCat(prefix, ".data/version")));
  }
  int64_t number = 0;
  if (!version || !absl::SimpleAtoi(*version, &number) ||
      number < kMinVersion || number > kMaxVersion) {
    return absl::DataLossError(
        absl::StrCat(file.path(), ": ",
                     version ? absl::StrCat("format version \"", *version, "\"")
                             : "no entry \"version\"",
                     ", expected one of ", kMinVersion, " to ", kMaxVersion));
  }
  return absl::OkStatus();
}

bool IsUtil(const PickleValue& callable, absl::string_view name) {
  return callable.IsGlobal("torch._utils", name);
}

bool IsView(const PickleValue& callable) {
  return IsUtil(callable, "_rebuild_tensor") ||
         IsUtil(callable, "_rebuild_tensor_v2") ||
         IsUtil(callable, "_rebuild_tensor_v3");
}

bool IsParameter(const PickleValue& callable) {
  return IsUtil(callable, "_rebuild_parameter") ||
         IsUtil(callable, "_rebuild_parameter_with_state");
}

bool IsWrapper(const PickleValue& callable) {
  return callable.IsGlobal("torch._tensor", "_rebuild_from_type_v2");
}

std::optional<PickleValue> CallableOf(const PickleValue& value) {
  if (value.kind() != PickleKind::kObject) return std::nullopt;
  return PickleValue(value.pickle(), value.pickle().Callable(value.id()));
}

// The number of elements of a storage that are in or before the last one of
// the view; nullopt if it does not fit.
std::optional<int64_t> ElementsSpanned(const TorchTensor& tensor,
                                       int64_t offset) {
  int64_t last = offset;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] == 0) return 0;
    int64_t step = 0;
    if (__builtin_mul_overflow(tensor.shape[d] - 1, tensor.strides[d], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return std::nullopt;
    }
  }
  int64_t spanned = 0;
  if (__builtin_add_overflow(last, 1, &spanned)) return std::nullopt;
  return spanned;
}

}  // namespace

// A function's name and arguments. A class around a tensor has them apart.
struct TorchFile::View {
  PickleValue callable;
  PickleValue args;
};

bool TorchTensor::IsDense() const {
  int64_t expected = 1;
  bool dense = true;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1) dense = dense && strides[d] == expected;
    expected *= shape[d];
  }
  return dense;
}

absl::StatusOr<TorchFile> TorchFile::Read(const ckpt::File& file,
                                          const PickleOptions& options) {
  SS_ASSIGN_OR_RETURN(const FileRange range, WholeFile(file));
  return Read(file, range, options);
}

absl::StatusOr<TorchFile> TorchFile::Read(const ckpt::File& file,
                                          FileRange range,
                                          const PickleOptions& options) {
  TorchFile torch_file;
  torch_file.path_ = file.path();
  SS_RETURN_IF_ERROR(CheckRange(file, range));
  SS_RETURN_IF_ERROR(CheckMagic(file, range));
  SS_ASSIGN_OR_RETURN(torch_file.zip_, ZipArchive::Read(file, range));
  const ZipArchive& zip = torch_file.zip_;
  if (!zip.entries().empty()) {
    const std::string& first = zip.entries().front().name;
    torch_file.prefix_ = first.substr(0, first.find('/') + 1);
  }
  const ZipEntry* entry =
      zip.Find(absl::StrCat(torch_file.prefix_, "data.pkl"));
  if (entry == nullptr) {
    return absl::DataLossError(
        absl::StrCat(file.path(), ": the zip archive at byte ",
                     range.offset_bytes, " has no \"", torch_file.prefix_,
                     "data.pkl\", expected what torch.save writes"));
  }
  SS_RETURN_IF_ERROR(CheckNotes(file, zip, torch_file.prefix_));
  SS_ASSIGN_OR_RETURN(std::string bytes,
                      ReadZipEntry(file, *entry, options.max_bytes));
  auto pickle = Pickle::Parse(std::move(bytes), options);
  if (!pickle.ok()) return Annotate(pickle.status(), file.path());
  torch_file.pickle_ = std::make_unique<Pickle>(*std::move(pickle));
  return torch_file;
}

bool TorchFile::IsTensor(const PickleValue& value) {
  const std::optional<PickleValue> callable = CallableOf(value);
  return callable &&
         (IsView(*callable) || IsParameter(*callable) || IsWrapper(*callable));
}

absl::StatusOr<TorchTensor> TorchFile::Tensor(const PickleValue& value) const {
  std::optional<PickleValue> callable = CallableOf(value);
  if (!callable) {
    return Annotate(value.Wrong("a tensor"), path_);
  }
  View view = {.callable = *callable, .args = value.Args()};
  absl::StatusOr<TorchTensor> tensor =
      value.Error("is a tensor within too many others");
  for (int i = 0; i < kMaxWrappers; ++i) {
    if (IsView(view.callable)) {
      tensor = Resolve(view);
      break;
    }
    if (IsWrapper(view.callable)) {
      // (function, class, arguments of the function, attributes)
      const auto function = view.args.At(0);
      const auto args = view.args.At(2);
      if (!function.ok() || !args.ok()) {
        tensor = value.Wrong("a class around a tensor");
        break;
      }
      view = {.callable = *function, .args = *args};
      continue;
    }
    const auto inner = view.args.At(0);
    callable = IsParameter(view.callable) && inner.ok() ? CallableOf(*inner)
                                                        : std::nullopt;
    if (!callable) {
      tensor = value.Wrong("a tensor");
      break;
    }
    view = {.callable = *callable, .args = inner->Args()};
  }
  if (!tensor.ok()) return Annotate(tensor.status(), path_);
  return tensor;
}

absl::StatusOr<TorchTensor> TorchFile::Resolve(const View& view) const {
  // (storage, offset, size, stride, requires_grad, hooks), of which only the
  // first four are always there; of _v3 also the dtype; metadata.
  const bool typed = !IsUtil(view.callable, "_rebuild_tensor_v3");
  TorchTensor tensor;
  SS_ASSIGN_OR_RETURN(const PickleValue storage, view.args.At(0));
  if (!typed) {
    SS_ASSIGN_OR_RETURN(const PickleValue dtype, view.args.At(6));
    SS_ASSIGN_OR_RETURN(tensor.dtype, AsTorchDType(dtype));
  }
  SS_RETURN_IF_ERROR(SetStorage(storage, typed, tensor));
  SS_ASSIGN_OR_RETURN(const PickleValue offset_value, view.args.At(1));
  SS_ASSIGN_OR_RETURN(const int64_t offset, offset_value.AsInt());
  SS_ASSIGN_OR_RETURN(const PickleValue size, view.args.At(2));
  SS_ASSIGN_OR_RETURN(tensor.shape, AsShape(size));
  SS_ASSIGN_OR_RETURN(const PickleValue stride, view.args.At(3));
  SS_ASSIGN_OR_RETURN(tensor.strides, AsShape(stride));
  const auto metadata = view.args.At(typed ? 6 : 7);
  if (metadata.ok() && metadata->IsMapping()) {
    if (metadata->num_children() > kMaxMetadata) {
      return metadata->Error("is overlong");
    }
    for (const absl::string_view bit : {"conj", "neg"}) {
      SS_ASSIGN_OR_RETURN(const auto set, metadata->Find(bit));
      if (set && !(set->AsBool().ok() && !*set->AsBool())) {
        return metadata->Error(
            absl::StrCat("has the bit \"", bit,
                         "\", so that the values are not the bytes: "
                         "save the tensor after resolve_",
                         bit, "()"));
      }
    }
  }

  const int64_t item_bytes = ckpt::ItemSize(tensor.dtype);
  const int64_t num_elements = tensor.storage.num_bytes / item_bytes;
  const auto logical = ckpt::CheckedNumElements(tensor.shape);
  const std::optional<int64_t> spanned =
      tensor.shape.size() == tensor.strides.size() && logical.ok()
          ? ElementsSpanned(tensor, offset)
          : std::nullopt;
  int64_t logical_bytes = 0;
  if (offset < 0 || offset > num_elements || !spanned ||
      *spanned > num_elements ||
      __builtin_mul_overflow(*logical, item_bytes, &logical_bytes)) {
    return view.args.Error(absl::StrCat(
        "is a tensor of shape ", ckpt::ToString(tensor.shape), ", strides ",
        ckpt::ToString(tensor.strides), " from element ", offset,
        ", which storage \"", tensor.storage_key, "\" of ", num_elements,
        " elements does not hold"));
  }
  tensor.offset_bytes = tensor.storage.offset_bytes + offset * item_bytes;
  return tensor;
}

absl::Status TorchFile::SetStorage(const PickleValue& storage, bool typed,
                                   TorchTensor& tensor) const {
  if (storage.kind() != PickleKind::kPersistentId) {
    return storage.Wrong("a storage");
  }
  // ("storage", class, key, device, number of elements)
  SS_ASSIGN_OR_RETURN(const size_t num_parts, storage.Child(0).ListSize());
  if (num_parts != 5) return storage.Error("is no 5-tuple of a storage");
  SS_ASSIGN_OR_RETURN(const auto parts, storage.Child(0).AsList());
  SS_ASSIGN_OR_RETURN(const absl::string_view what, parts[0].AsString());
  SS_ASSIGN_OR_RETURN(const absl::string_view key, parts[2].AsString());
  SS_ASSIGN_OR_RETURN(const int64_t count, parts[4].AsInt());
  if (what != "storage" || parts[1].kind() != PickleKind::kGlobal) {
    return storage.Error("is no 5-tuple of a storage");
  }
  const Pickle& pickle = storage.pickle();
  const absl::string_view type = pickle.Name(parts[1].id());
  std::optional<DType> dtype = DTypeOfStorageClass(type);
  if (type == "UntypedStorage") dtype = DType::kU8;
  if (!dtype) {
    return absl::UnimplementedError(absl::StrCat(
        storage.Where(), " is a ", type, ", whose dtype cannot be kept"));
  }
  if (typed) tensor.dtype = *dtype;

  const ZipEntry* entry = zip_.Find(absl::StrCat(prefix_, "data/", key));
  if (entry == nullptr) {
    return storage.Error(
        absl::StrCat("is storage \"", key, "\", which the file does not have"));
  }
  int64_t num_bytes = 0;
  if (count < 0 ||
      __builtin_mul_overflow(count, ckpt::ItemSize(*dtype), &num_bytes) ||
      num_bytes != entry->payload.num_bytes ||
      num_bytes % ckpt::ItemSize(tensor.dtype) != 0) {
    return storage.Error(absl::StrCat(
        "is a ", type, " of ", count, " elements, but \"", key, "\" has ",
        entry->payload.num_bytes, " bytes in the file"));
  }
  tensor.storage_key = std::string(key);
  tensor.storage = entry->payload;
  tensor.storage_crc32 = entry->crc32;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::byte>> ReadTensor(const ckpt::File& file,
                                                  const TorchTensor& tensor,
                                                  int64_t max_bytes) {
  if (tensor.num_bytes() > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        file.path(), ": a tensor of shape ", ckpt::ToString(tensor.shape),
        ", at most ", max_bytes, " bytes are read"));
  }
  SS_ASSIGN_OR_RETURN(const std::string storage,
                      ReadZipEntry(file,
                                   {.name = tensor.storage_key,
                                    .payload = tensor.storage,
                                    .crc32 = tensor.storage_crc32},
                                   max_bytes));
  std::vector<std::byte> dense(tensor.num_bytes());
  const int64_t item_bytes = ckpt::ItemSize(tensor.dtype);
  const size_t ndim = tensor.shape.size();
  Shape index(ndim, 0);
  int64_t at = tensor.offset_bytes - tensor.storage.offset_bytes;
  for (size_t done = 0; done < dense.size(); done += item_bytes) {
    std::memcpy(dense.data() + done, storage.data() + at, item_bytes);
    // The next index, as a counter of `ndim` digits.
    for (size_t d = ndim; d-- > 0;) {
      const int64_t stride_bytes = tensor.strides[d] * item_bytes;
      at += stride_bytes;
      if (++index[d] < tensor.shape[d]) break;
      at -= stride_bytes * tensor.shape[d];
      index[d] = 0;
    }
  }
  return dense;
}

}  // namespace shardshift::reshard
