// Matchers for absl::Status and absl::StatusOr.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TESTS_TESTUTIL_STATUS_MATCHERS_H_
#define SHARDSHIFT_TESTS_TESTUTIL_STATUS_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shardshift {

inline const absl::Status& ToStatus(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& ToStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << ToStatus(arg).ToString();
  return ToStatus(arg).ok();
}

// EXPECT_THAT(Decode(bytes), StatusIs(kDataLoss, HasSubstr("overlap")))
MATCHER_P2(StatusIs, code, message_matcher, "has the code and the message") {
  const absl::Status& status = ToStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(
             message_matcher, std::string(status.message()), result_listener);
}

}  // namespace shardshift

#define EXPECT_OK(expr) EXPECT_THAT((expr), ::shardshift::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT((expr), ::shardshift::IsOk())

// ASSERT_OK_AND_ASSIGN(auto x, F()): the value, or the test fails.
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL_(SS_TEST_CONCAT_(ss_test_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL_(var, lhs, expr) \
  auto var = (expr);                               \
  ASSERT_OK(var);                                  \
  lhs = *std::move(var)
#define SS_TEST_CONCAT_(a, b) SS_TEST_CONCAT_INNER_(a, b)
#define SS_TEST_CONCAT_INNER_(a, b) a##b

#endif  // SHARDSHIFT_TESTS_TESTUTIL_STATUS_MATCHERS_H_
