// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_FORMATS_UTF8_H_
#define SHARDSHIFT_RESHARD_FORMATS_UTF8_H_

#include "absl/strings/string_view.h"

namespace shardshift::reshard {

// Whether `text` is UTF-8: shortest forms, no surrogates, at most U+10FFFF.
bool IsUtf8(absl::string_view text);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_FORMATS_UTF8_H_
