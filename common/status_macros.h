// Early return on a failed absl::Status. Both macros work in functions that
// return absl::Status or absl::StatusOr<T>.

#ifndef COMMON_STATUS_MACROS_H_
#define COMMON_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// NACRE_RETURN_IF_ERROR(file.Close());
#define NACRE_RETURN_IF_ERROR(expr)                     \
  do {                                                  \
    if (absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                   \
    }                                                   \
  } while (false)

// NACRE_ASSIGN_OR_RETURN(ModelConfig config, ReadConfig(dir));
#define NACRE_ASSIGN_OR_RETURN(lhs, expr) \
  NACRE_ASSIGN_OR_RETURN_(NACRE_CONCAT_(status_or_, __LINE__), lhs, expr)
#define NACRE_ASSIGN_OR_RETURN_(tmp, lhs, expr)  \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)
#define NACRE_CONCAT_(a, b) NACRE_CONCAT_IMPL_(a, b)
#define NACRE_CONCAT_IMPL_(a, b) a##b

#endif  // COMMON_STATUS_MACROS_H_
