// Passing an absl::Status on, with context added on the way out.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_CORE_STATUS_MACROS_H_
#define SHARDSHIFT_CKPT_CORE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace shardshift {

// `status` with "context: " before its message. Code and OK are kept.
inline absl::Status Annotate(const absl::Status& status,
                             absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(context, ": ", status.message()));
}

}  // namespace shardshift

// Returns from the enclosing function if `expr` is not OK.
#define SS_RETURN_IF_ERROR(expr) \
  SS_RETURN_IF_ERROR_IMPL_(SS_CONCAT_(ss_status_, __LINE__), expr)
#define SS_RETURN_IF_ERROR_IMPL_(var, expr) \
  do {                                      \
    absl::Status var = (expr);              \
    if (!var.ok()) return var;              \
  } while (false)

// SS_ASSIGN_OR_RETURN(auto x, F()): declares or assigns x from a StatusOr, or
// returns its error.
#define SS_ASSIGN_OR_RETURN(lhs, expr) \
  SS_ASSIGN_OR_RETURN_IMPL_(SS_CONCAT_(ss_statusor_, __LINE__), lhs, expr)
#define SS_ASSIGN_OR_RETURN_IMPL_(var, lhs, expr) \
  auto var = (expr);                              \
  if (!var.ok()) return std::move(var).status();  \
  lhs = *std::move(var)
#define SS_CONCAT_(a, b) SS_CONCAT_INNER_(a, b)
#define SS_CONCAT_INNER_(a, b) a##b

#endif  // SHARDSHIFT_CKPT_CORE_STATUS_MACROS_H_
