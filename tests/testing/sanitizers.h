// Whether this program is an instrumented one, in which tests that repeat pure
// code thousands of times do so less often.

#ifndef TESTS_TESTING_SANITIZERS_H_
#define TESTS_TESTING_SANITIZERS_H_

// For what must not be compiled at all.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NACRE_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NACRE_IS_SANITIZED 1
#endif
#endif

namespace nacre::testing {

#ifdef NACRE_IS_SANITIZED
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace nacre::testing

#endif  // TESTS_TESTING_SANITIZERS_H_
