// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/memory_driver.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>

namespace shardshift::ckpt {
namespace {

// What a list of access properties carries.
struct Properties {
  const std::shared_ptr<FileImage>* image;
  const std::shared_ptr<RawWrites>* raw;
};

// An open file. The library sees `base` alone.
struct MemoryFile {
  H5FD_t base;
  std::shared_ptr<FileImage> image;
  std::shared_ptr<RawWrites> raw;
  haddr_t allocated_bytes;
};
static_assert(offsetof(MemoryFile, base) == 0);

MemoryFile& Self(H5FD_t* file) { return *reinterpret_cast<MemoryFile*>(file); }
const MemoryFile& Self(const H5FD_t* file) {
  return *reinterpret_cast<const MemoryFile*>(file);
}

// The library copies a file's properties without those of the driver, to open
// the sources of a view for one: such a list opens nothing.
H5FD_t* Open(const char*, unsigned, hid_t list, haddr_t) {
  const auto* properties =
      static_cast<const Properties*>(H5Pget_driver_info(list));
  if (properties == nullptr) return nullptr;
  auto* file = new (std::nothrow)
      MemoryFile{{}, *properties->image, *properties->raw, 0};
  return file == nullptr ? nullptr : &file->base;
}

herr_t Close(H5FD_t* file) {
  delete &Self(file);
  return 0;
}

// Those of the library's driver of plain files that decide where things lie.
herr_t Query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
           H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
           H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t GetAllocated(const H5FD_t* file, H5FD_mem_t) {
  return Self(file).allocated_bytes;
}

herr_t SetAllocated(H5FD_t* file, H5FD_mem_t, haddr_t bytes) {
  Self(file).allocated_bytes = bytes;
  return 0;
}

haddr_t GetEnd(const H5FD_t* file, H5FD_mem_t) {
  return static_cast<haddr_t>(Self(file).image->file_bytes());
}

// The library has checked that what it reads and writes is allocated.
herr_t Read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, size_t size,
            void* bytes) {
  Self(file).image->Get(static_cast<int64_t>(offset),
                        {static_cast<std::byte*>(bytes), size});
  return 0;
}

herr_t Write(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t offset, size_t size,
             const void* bytes) {
  if (type == H5FD_MEM_DRAW) {
    RawWrites& raw = *Self(file).raw;
    raw.last_offset_bytes = static_cast<int64_t>(offset);
    if (!raw.are_kept) return 0;
  }
  try {
    Self(file).image->Put(static_cast<int64_t>(offset),
                          {static_cast<const std::byte*>(bytes), size});
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return 0;
}

herr_t Truncate(H5FD_t* file, hid_t, hbool_t) {
  Self(file).image->Resize(static_cast<int64_t>(Self(file).allocated_bytes));
  return 0;
}

// An object left open must not keep the file open behind our back, so closing
// the file fails then. There is nothing to lock, and no two files are one.
constexpr H5FD_class_t kDriver = {
    .name = "shardshift_memory",
    .maxaddr = std::numeric_limits<int64_t>::max(),
    .fc_degree = H5F_CLOSE_SEMI,
    .terminate = nullptr,
    .sb_size = nullptr,
    .sb_encode = nullptr,
    .sb_decode = nullptr,
    .fapl_size = sizeof(Properties),
    .fapl_get = nullptr,
    .fapl_copy = nullptr,
    .fapl_free = nullptr,
    .dxpl_size = 0,
    .dxpl_copy = nullptr,
    .dxpl_free = nullptr,
    .open = Open,
    .close = Close,
    .cmp = nullptr,
    .query = Query,
    .get_type_map = nullptr,
    .alloc = nullptr,
    .free = nullptr,
    .get_eoa = GetAllocated,
    .set_eoa = SetAllocated,
    .get_eof = GetEnd,
    .get_handle = nullptr,
    .read = Read,
    .write = Write,
    .flush = nullptr,
    .truncate = Truncate,
    .lock = nullptr,
    .unlock = nullptr,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

}  // namespace

bool UseMemoryDriver(const Handle& list,
                     const std::shared_ptr<FileImage>& image,
                     const std::shared_ptr<RawWrites>& raw) {
  static const hid_t driver = H5FDregister(&kDriver);
  const Properties properties = {&image, &raw};
  return H5Pset_driver(list.get(), driver, &properties) >= 0;
}

}  // namespace shardshift::ckpt
