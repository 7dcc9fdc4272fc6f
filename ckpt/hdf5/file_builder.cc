// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/file_builder.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/format/user_block.h"
#include "ckpt/hdf5/types.h"

namespace shardshift::ckpt {
namespace {

constexpr hsize_t kPageBytes = 4096;

// The filter's one parameter is the level that others compress with.
constexpr H5Z_filter_t kZstdFilter = 32015;
constexpr unsigned kZstdLevel = 1;

std::vector<hsize_t> Dims(const Shape& shape) {
  return std::vector<hsize_t>(shape.begin(), shape.end());
}

Handle Space(const Shape& shape) {
  if (shape.empty()) return Handle(H5Screate(H5S_SCALAR));
  const std::vector<hsize_t> dims = Dims(shape);
  return Handle(
      H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr));
}

Handle BoxSpace(const Shape& shape, const Box& box) {
  Handle space = Space(shape);
  const std::vector<hsize_t> start = Dims(box.start);
  const std::vector<hsize_t> count = Dims(box.extent);
  const bool ok = H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(),
                                      nullptr, count.data(), nullptr) >= 0;
  return ok ? std::move(space) : Handle();
}

// Newest file format of 1.10, which every later library reads.
Handle AccessProperties(const std::shared_ptr<FileImage>& image,
                        const std::shared_ptr<RawWrites>& raw) {
  Handle list(H5Pcreate(H5P_FILE_ACCESS));
  const bool ok =
      H5Pset_libver_bounds(list.get(), H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0 &&
      UseMemoryDriver(list, image, raw);
  return ok ? std::move(list) : Handle();
}

// The superblock's extension is made with the library's own default list of
// properties, and would hold the time.
Handle FileProperties() {
  Handle list(H5Pcreate(H5P_FILE_CREATE));
  const bool ok =
      H5Pset_obj_track_times(H5P_GROUP_CREATE_DEFAULT, false) >= 0 &&
      H5Pset_userblock(list.get(), kUserBlockBytes) >= 0 &&
      H5Pset_file_space_strategy(list.get(), H5F_FSPACE_STRATEGY_PAGE, false,
                                 1) >= 0 &&
      H5Pset_file_space_page_size(list.get(), kPageBytes) >= 0 &&
      H5Pset_obj_track_times(list.get(), false) >= 0;
  return ok ? std::move(list) : Handle();
}

Handle GroupProperties() {
  Handle list(H5Pcreate(H5P_GROUP_CREATE));
  const bool ok = H5Pset_obj_track_times(list.get(), false) >= 0;
  return ok ? std::move(list) : Handle();
}

Handle DatasetProperties() {
  Handle list(H5Pcreate(H5P_DATASET_CREATE));
  const bool ok = H5Pset_layout(list.get(), H5D_CONTIGUOUS) >= 0 &&
                  H5Pset_alloc_time(list.get(), H5D_ALLOC_TIME_EARLY) >= 0 &&
                  H5Pset_fill_time(list.get(), H5D_FILL_TIME_NEVER) >= 0 &&
                  H5Pset_obj_track_times(list.get(), false) >= 0;
  return ok ? std::move(list) : Handle();
}

// zstd is "optional", as the library refuses to make a dataset with a filter
// that it has not got and that it could not do without; its readers have to
// have it all the same.
Handle CompressedProperties(int64_t chunk_elements) {
  Handle list(H5Pcreate(H5P_DATASET_CREATE));
  const auto chunk = static_cast<hsize_t>(chunk_elements);
  const bool ok = H5Pset_chunk(list.get(), 1, &chunk) >= 0 &&
                  H5Pset_shuffle(list.get()) >= 0 &&
                  H5Pset_filter(list.get(), kZstdFilter, H5Z_FLAG_OPTIONAL, 1,
                                &kZstdLevel) >= 0 &&
                  H5Pset_alloc_time(list.get(), H5D_ALLOC_TIME_INCR) >= 0 &&
                  H5Pset_fill_time(list.get(), H5D_FILL_TIME_NEVER) >= 0 &&
                  H5Pset_obj_track_times(list.get(), false) >= 0;
  return ok ? std::move(list) : Handle();
}

bool AddAttribute(const Handle& object, const char* name, const Handle& type,
                  const Handle& space, const void* value) {
  const Handle attribute(H5Acreate2(object.get(), name, type.get(), space.get(),
                                    H5P_DEFAULT, H5P_DEFAULT));
  return attribute.ok() && H5Awrite(attribute.get(), type.get(), value) >= 0;
}

bool AddAttribute(const Handle& object, const char* name,
                  absl::string_view text) {
  return AddAttribute(object, name, TextType(static_cast<int64_t>(text.size())),
                      Space({}), text.data());
}

// An empty list has no bytes, but the library wants an address.
bool AddAttribute(const Handle& object, const char* name,
                  const Shape& numbers) {
  const int64_t none = 0;
  return AddAttribute(object, name, Handle(H5Tcopy(H5T_STD_I64LE)),
                      Space({static_cast<int64_t>(numbers.size())}),
                      numbers.empty() ? &none : numbers.data());
}

bool AddLabel(const Handle& dataset, const FragmentLabel& label) {
  return AddAttribute(dataset, "tensor", label.tensor) &&
         AddAttribute(dataset, "role", label.role) &&
         AddAttribute(dataset, "dtype", Name(label.dtype)) &&
         AddAttribute(dataset, "shape", label.shape) &&
         AddAttribute(dataset, "start", label.start);
}

// The library adds the user block even to the place of a dataset without
// bytes, which has none.
int64_t OffsetOf(const Handle& dataset) {
  if (H5Dget_storage_size(dataset.get()) == 0) return 0;
  return static_cast<int64_t>(H5Dget_offset(dataset.get()));
}

}  // namespace

FileBuilder::FileBuilder(std::string path, std::shared_ptr<FileImage> image,
                         std::shared_ptr<RawWrites> raw, Handle file)
    : path_(std::move(path)),
      image_(std::move(image)),
      raw_(std::move(raw)),
      file_(std::move(file)) {}

FileBuilder::~FileBuilder() {
  const Hdf5Lock lock;
  file_.Close();
}

absl::StatusOr<std::unique_ptr<FileBuilder>> FileBuilder::Create(
    const std::string& path) {
  const Hdf5Lock lock;
  SS_RETURN_IF_ERROR(CheckHdf5Version());
  auto image = std::make_shared<FileImage>();
  auto raw = std::make_shared<RawWrites>();
  Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, FileProperties().get(),
                        AccessProperties(image, raw).get()));
  if (!file.ok()) return Hdf5Error("create", path);
  return std::unique_ptr<FileBuilder>(
      new FileBuilder(path, std::move(image), std::move(raw), std::move(file)));
}

absl::Status FileBuilder::AddGroupsOf(const std::string& dataset) {
  for (size_t slash = dataset.find('/', 1); slash != std::string::npos;
       slash = dataset.find('/', slash + 1)) {
    const std::string group = dataset.substr(0, slash);
    if (!groups_.insert(group).second) continue;
    const Handle handle(H5Gcreate2(file_.get(), group.c_str(), H5P_DEFAULT,
                                   GroupProperties().get(), H5P_DEFAULT));
    if (!handle.ok())
      return Hdf5Error(absl::StrCat("add ", group, " to"), path_);
  }
  return absl::OkStatus();
}

absl::StatusOr<Handle> FileBuilder::AddDataset(const std::string& dataset,
                                               const Handle& type,
                                               const Handle& space,
                                               const Handle& properties) {
  SS_RETURN_IF_ERROR(AddGroupsOf(dataset));
  Handle handle(H5Dcreate2(file_.get(), dataset.c_str(), type.get(),
                           space.get(), H5P_DEFAULT, properties.get(),
                           H5P_DEFAULT));
  if (handle.ok()) return handle;
  return Hdf5Error(absl::StrCat("add ", dataset, " to"), path_);
}

absl::StatusOr<int64_t> FileBuilder::AddFragment(const std::string& dataset,
                                                 const FragmentLabel& label,
                                                 const Shape& extent) {
  const Hdf5Lock lock;
  SS_ASSIGN_OR_RETURN(const Handle handle,
                      AddDataset(dataset, FileType(label.dtype), Space(extent),
                                 DatasetProperties()));
  if (!AddLabel(handle, label)) {
    return Hdf5Error(absl::StrCat("label ", dataset, " in"), path_);
  }
  return OffsetOf(handle);
}

absl::Status FileBuilder::AddCompressedFragment(const std::string& dataset,
                                                const FragmentLabel& label,
                                                const Shape& extent,
                                                int64_t chunk_elements) {
  const Hdf5Lock lock;
  const Shape row = {NumElements(extent)};
  SS_ASSIGN_OR_RETURN(const Handle handle,
                      AddDataset(dataset, FileType(label.dtype), Space(row),
                                 CompressedProperties(chunk_elements)));
  if (AddLabel(handle, label) && AddAttribute(handle, "extent", extent)) {
    return absl::OkStatus();
  }
  return Hdf5Error(absl::StrCat("label ", dataset, " in"), path_);
}

absl::StatusOr<int64_t> FileBuilder::AddChunk(
    const std::string& dataset, int64_t first_element,
    std::span<const std::byte> stored) {
  const Hdf5Lock lock;
  const Handle handle(H5Dopen2(file_.get(), dataset.c_str(), H5P_DEFAULT));
  const auto offset = static_cast<hsize_t>(first_element);
  raw_->are_kept = false;
  const bool ok =
      handle.ok() && H5Dwrite_chunk(handle.get(), H5P_DEFAULT, 0, &offset,
                                    stored.size(), stored.data()) >= 0;
  raw_->are_kept = true;
  if (ok) return raw_->last_offset_bytes;
  return Hdf5Error(absl::StrCat("add a chunk of ", dataset, " to"), path_);
}

absl::StatusOr<int64_t> FileBuilder::SizeSoFar() const {
  const Hdf5Lock lock;
  hsize_t bytes = 0;
  if (H5Fget_filesize(file_.get(), &bytes) >= 0) {
    return static_cast<int64_t>(bytes);
  }
  return Hdf5Error("measure", path_);
}

absl::StatusOr<int64_t> FileBuilder::AddBytes(const std::string& dataset,
                                              int64_t num_bytes) {
  const Hdf5Lock lock;
  SS_ASSIGN_OR_RETURN(const Handle handle,
                      AddDataset(dataset, FileType(DType::kU8),
                                 Space({num_bytes}), DatasetProperties()));
  return OffsetOf(handle);
}

absl::Status FileBuilder::AddText(const std::string& dataset,
                                  absl::string_view text) {
  const Hdf5Lock lock;
  // HDF5 has no text of no bytes; a padding byte reads as "".
  const std::string padded =
      text.empty() ? std::string(1, '\0') : std::string(text);
  const Handle type = TextType(static_cast<int64_t>(padded.size()));
  SS_ASSIGN_OR_RETURN(const Handle handle, AddDataset(dataset, type, Space({}),
                                                      DatasetProperties()));
  if (H5Dwrite(handle.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
               padded.data()) < 0) {
    return Hdf5Error(absl::StrCat("write ", dataset, " to"), path_);
  }
  return absl::OkStatus();
}

absl::Status FileBuilder::AddTensor(const std::string& dataset, DType dtype,
                                    const Shape& shape,
                                    std::span<const std::byte> bytes) {
  const Hdf5Lock lock;
  const Handle type = FileType(dtype);
  SS_ASSIGN_OR_RETURN(
      const Handle handle,
      AddDataset(dataset, type, Space(shape), DatasetProperties()));
  if (!bytes.empty() && H5Dwrite(handle.get(), type.get(), H5S_ALL, H5S_ALL,
                                 H5P_DEFAULT, bytes.data()) < 0) {
    return Hdf5Error(absl::StrCat("write ", dataset, " to"), path_);
  }
  return absl::OkStatus();
}

absl::Status FileBuilder::AddView(const std::string& dataset, DType dtype,
                                  const Shape& shape,
                                  const std::vector<ViewSource>& sources) {
  const Hdf5Lock lock;
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE));
  bool ok = H5Pset_obj_track_times(properties.get(), false) >= 0;
  for (const ViewSource& source : sources) {
    // "%b" would be a block number.
    const std::string name = absl::StrReplaceAll(source.dataset, {{"%", "%%"}});
    ok = ok &&
         H5Pset_virtual(properties.get(), BoxSpace(shape, source.box).get(),
                        source.file.c_str(), name.c_str(),
                        Space(source.shape).get()) >= 0;
  }
  if (!ok)
    return Hdf5Error(absl::StrCat("describe view ", dataset, " of"), path_);
  return AddDataset(dataset, FileType(dtype), Space(shape), properties)
      .status();
}

absl::StatusOr<FileImage> FileBuilder::Finish() {
  const Hdf5Lock lock;
  if (!file_.Close()) return Hdf5Error("close", path_);
  return std::move(*image_);
}

}  // namespace shardshift::ckpt
