// Pickles for tests, spelled out.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_RESHARD_FORMATS_PICKLE_TEXT_H_
#define SHARDSHIFT_TESTS_RESHARD_FORMATS_PICKLE_TEXT_H_

#include <cstddef>
#include <string>
#include <utility>

#include "reshard/formats/pickle.h"
#include "tests/testutil/status_matchers.h"

namespace shardshift::reshard {

// A text with any bytes, '\0' among them.
template <size_t N>
std::string Raw(const char (&text)[N]) {
  return std::string(text, N - 1);
}

inline Pickle Parsed(const std::string& bytes) {
  auto pickle = Pickle::Parse(bytes);
  EXPECT_OK(pickle);
  return pickle.ok() ? *std::move(pickle) : *Pickle::Parse("N.");
}

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_TESTS_RESHARD_FORMATS_PICKLE_TEXT_H_
