// Signatures and sizes of a zip's records, for its reader and its writer.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_ZIP_RECORDS_H_
#define SHARDSHIFT_RESHARD_FORMATS_ZIP_RECORDS_H_

#include <cstdint>

namespace shardshift::reshard::zip {

inline constexpr uint32_t kLocalSignature = 0x04034b50;
inline constexpr uint32_t kCentralSignature = 0x02014b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocator64Signature = 0x07064b50;

// Without names, extra fields and comments.
inline constexpr int64_t kLocalBytes = 30;
inline constexpr int64_t kCentralBytes = 46;
inline constexpr int64_t kEndBytes = 22;
inline constexpr int64_t kEnd64Bytes = 56;
inline constexpr int64_t kLocator64Bytes = 20;
inline constexpr int64_t kExtraHeaderBytes = 4;
inline constexpr int64_t kMaxCommentBytes = 0xFFFF;

// A field with its greatest value is found in the extra field of this id, or
// in the 64-bit end record.
inline constexpr uint64_t kMax16 = 0xFFFF;
inline constexpr uint64_t kMax32 = 0xFFFFFFFF;
inline constexpr uint64_t kExtra64 = 0x0001;
// That of torch.save, of any number of bytes, which aligns the payload.
inline constexpr uint64_t kExtraPadding = 0x4246;

inline constexpr uint64_t kEncryptedFlag = 0x0001;
// Sizes and CRC follow the payload; in the local header they are zero.
inline constexpr uint64_t kDescriptorFlag = 0x0008;
inline constexpr uint64_t kUtf8Flag = 0x0800;

}  // namespace shardshift::reshard::zip

#endif  // SHARDSHIFT_RESHARD_FORMATS_ZIP_RECORDS_H_
