// The library of JSON. Include this one and not <nlohmann/json.hpp>:
// tools/check_layout.py asks for it. Reading a field that a constant object
// lacks, or a value of another kind without a check, ends the process, with
// the assertion. The library alone goes on with whatever lies in memory there.

#ifndef COMMON_JSON_H_
#define COMMON_JSON_H_

#include <cstdio>
#include <cstdlib>

namespace nacre::json_internal {

[[noreturn]] inline void Fail(const char* asserted, const char* function) {
  std::fprintf(stderr, "JSON: %s: not so: %s\n", function, asserted);
  std::abort();
}

}  // namespace nacre::json_internal

#ifdef INCLUDE_NLOHMANN_JSON_HPP_
#error "common/json.h must come before nlohmann/json.hpp"
#endif

#define JSON_ASSERT(x) ((x) ? void() : nacre::json_internal::Fail(#x, __func__))

#include <nlohmann/json.hpp>  // IWYU pragma: export

#endif  // COMMON_JSON_H_
