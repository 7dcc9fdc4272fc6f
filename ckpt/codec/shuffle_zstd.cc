// SPDX-License-Identifier: Apache-2.0
#include "ckpt/codec/shuffle_zstd.h"

// For the compression of literals, without which fast levels do nothing here.
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "ckpt/codec/byte_shuffle.h"

namespace shardshift::ckpt {
namespace {

static_assert(ZSTD_COMPRESSBOUND(kBlockBytes) <= kMaxStoredBytes);

// Mantissas are noise, in which a search for matches finds nothing: this level
// hardly searches, and leaves the work to the entropy coder. On weights and
// moments it is several times as fast as level 1, and no less small.
constexpr int kLevel = -50;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError("out of memory in zstd");
}

}  // namespace

absl::StatusOr<int64_t> CompressBlock(std::span<const std::byte> values,
                                      int64_t item_size,
                                      std::span<std::byte> planes,
                                      std::span<std::byte> stored) {
  ByteShuffle(values, item_size, planes);
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  if (context == nullptr) return OutOfMemory();
  for (const auto& [parameter, value] :
       {std::pair(ZSTD_c_compressionLevel, kLevel),
        std::pair(ZSTD_c_literalCompressionMode, int{ZSTD_ps_enable})}) {
    if (ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), parameter, value))) {
      return absl::InternalError("zstd does not know its own parameters");
    }
  }
  const size_t size =
      ZSTD_compress2(context.get(), stored.data(), stored.size(), planes.data(),
                     planes.size());
  // Room suffices, so that only memory can lack.
  if (ZSTD_isError(size)) return OutOfMemory();
  return static_cast<int64_t>(size);
}

absl::Status DecompressBlock(std::span<const std::byte> stored,
                             int64_t item_size, std::span<std::byte> planes,
                             std::span<std::byte> values) {
  // Without these a frame might be followed by others, or by nothing.
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != planes.size() ||
      ZSTD_findFrameCompressedSize(stored.data(), stored.size()) !=
          stored.size()) {
    return absl::DataLossError(
        absl::StrCat("expected one zstd frame of ", planes.size(), " bytes"));
  }
  const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  if (context == nullptr) return OutOfMemory();
  const size_t size =
      ZSTD_decompressDCtx(context.get(), planes.data(), planes.size(),
                          stored.data(), stored.size());
  if (ZSTD_isError(size) || size != planes.size()) {
    return absl::DataLossError(absl::StrCat(
        "the zstd frame does not decode: ",
        ZSTD_isError(size) ? ZSTD_getErrorName(size) : "it is too short"));
  }
  ByteUnshuffle(planes, item_size, values);
  return absl::OkStatus();
}

}  // namespace shardshift::ckpt
