// HDF5's registered filter 32015, zstd, as a plugin: with its directory in
// HDF5_PLUGIN_PATH h5py, h5dump and all that use libhdf5 read compressed
// checkpoints. Its one parameter is the level to compress with.
// SPDX-License-Identifier: Apache-2.0
#include <H5PLextern.h>
#include <hdf5.h>
#include <limits.h>
#include <zstd.h>

// Replaces *buffer, of *room bytes, by `bytes`; gives `used`, its size.
static size_t Replace(void** buffer, size_t* room, void* bytes, size_t size,
                      size_t used) {
  H5free_memory(*buffer);
  *buffer = bytes;
  *room = size;
  return used;
}

static size_t Compress(int level, size_t num_bytes, size_t* room,
                       void** buffer) {
  const size_t bound = ZSTD_compressBound(num_bytes);
  void* out = H5allocate_memory(bound, 0);
  if (out == NULL) return 0;
  const size_t used = ZSTD_compress(out, bound, *buffer, num_bytes, level);
  if (!ZSTD_isError(used)) return Replace(buffer, room, out, bound, used);
  H5free_memory(out);
  return 0;
}

static size_t Decompress(size_t num_bytes, size_t* room, void** buffer) {
  // HDF5 keeps the size of a chunk below 4 GiB.
  const unsigned long long size = ZSTD_getFrameContentSize(*buffer, num_bytes);
  if (size == 0 || size > UINT_MAX) return 0;
  void* out = H5allocate_memory(size, 0);
  if (out == NULL) return 0;
  const size_t used = ZSTD_decompress(out, size, *buffer, num_bytes);
  if (used == size) return Replace(buffer, room, out, size, used);
  H5free_memory(out);
  return 0;
}

// As H5Z_func_t: 0 is failure.
static size_t Filter(unsigned flags, size_t num_parameters,
                     const unsigned parameters[], size_t num_bytes,
                     size_t* room, void** buffer) {
  if (flags & H5Z_FLAG_REVERSE) return Decompress(num_bytes, room, buffer);
  const int level = num_parameters > 0 ? (int)parameters[0] : 0;
  return Compress(level, num_bytes, room, buffer);
}

static const H5Z_class2_t kFilter = {
    .version = H5Z_CLASS_T_VERS,
    .id = 32015,
    .encoder_present = 1,
    .decoder_present = 1,
    .name = "zstd",
    .filter = Filter,
};

H5PL_type_t H5PLget_plugin_type(void) { return H5PL_TYPE_FILTER; }
const void* H5PLget_plugin_info(void) { return &kFilter; }
