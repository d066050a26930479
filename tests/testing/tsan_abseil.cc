// Shows ThreadSanitizer what Abseil's locks order. Linked into every program of
// the tsan preset and into no other.
//
// Debian's libabsl_synchronization is not built with ThreadSanitizer, so a
// mutex in it orders nothing in the tool's eyes and everything that it guards
// would be reported as a race. These definitions come before those of the
// shared library, also for gRPC, which takes the same locks: each announces the
// edge and calls the real function, found by its mangled name (Abseil 20220623
// as Debian 12 names it; a missing name stops the program).
//
// Conditions run inside the real functions, some of them on the thread that
// unlocks. They are correct by Abseil's design and their reads are not watched.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

// The next definition of `symbol` after this program's own.
void* RealFunction(const char* symbol) {
  void* real = dlsym(RTLD_NEXT, symbol);
  if (real == nullptr) {
    std::fprintf(stderr, "tsan_abseil: no function %s\n", symbol);
    std::abort();
  }
  return real;
}

// Calls the member function `symbol` of `object` with reads unwatched.
template <typename Result, typename Object, typename... Args>
Result CallReal(void* real, Object* object, Args... args) {
  using Function = Result (*)(Object*, Args...);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  if constexpr (std::is_void_v<Result>) {
    reinterpret_cast<Function>(real)(object, args...);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  } else {
    Result result = reinterpret_cast<Function>(real)(object, args...);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    return result;
  }
}

void* Address(const void* object) { return const_cast<void*>(object); }

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

#define NACRE_REAL(mangled) \
  static void* const real = RealFunction("_ZN4absl7debian3" mangled)

void Mutex::Lock() {
  NACRE_REAL("5Mutex4LockEv");
  CallReal<void>(real, this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  NACRE_REAL("5Mutex7TryLockEv");
  const bool locked = CallReal<bool>(real, this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  NACRE_REAL("5Mutex6UnlockEv");
  __tsan_release(this);
  CallReal<void>(real, this);
}

void Mutex::ReaderLock() {
  NACRE_REAL("5Mutex10ReaderLockEv");
  CallReal<void>(real, this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  NACRE_REAL("5Mutex12ReaderUnlockEv");
  __tsan_release(this);
  CallReal<void>(real, this);
}

void Mutex::LockWhen(const Condition& condition) {
  NACRE_REAL("5Mutex8LockWhenERKNS0_9ConditionE");
  CallReal<void, Mutex, const Condition&>(real, this, condition);
  __tsan_acquire(this);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  NACRE_REAL("5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  const bool held =
      CallReal<bool, Mutex, const Condition&>(real, this, condition, timeout);
  __tsan_acquire(this);
  return held;
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  NACRE_REAL("5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  const bool held =
      CallReal<bool, Mutex, const Condition&>(real, this, condition, deadline);
  __tsan_acquire(this);
  return held;
}

void Mutex::Await(const Condition& condition) {
  NACRE_REAL("5Mutex5AwaitERKNS0_9ConditionE");
  __tsan_release(this);
  CallReal<void, Mutex, const Condition&>(real, this, condition);
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  NACRE_REAL("5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  __tsan_release(this);
  const bool held =
      CallReal<bool, Mutex, const Condition&>(real, this, condition, timeout);
  __tsan_acquire(this);
  return held;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  NACRE_REAL("5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  __tsan_release(this);
  const bool held =
      CallReal<bool, Mutex, const Condition&>(real, this, condition, deadline);
  __tsan_acquire(this);
  return held;
}

void CondVar::Wait(Mutex* mutex) {
  NACRE_REAL("7CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  CallReal<void>(real, this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  NACRE_REAL("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool timed_out = CallReal<bool>(real, this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  NACRE_REAL("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  const bool timed_out = CallReal<bool>(real, this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

void Notification::Notify() {
  NACRE_REAL("12Notification6NotifyEv");
  __tsan_release(this);
  CallReal<void>(real, this);
}

#undef NACRE_REAL
#define NACRE_REAL(mangled) \
  static void* const real = RealFunction("_ZNK4absl7debian3" mangled)

void Notification::WaitForNotification() const {
  NACRE_REAL("12Notification19WaitForNotificationEv");
  CallReal<void>(real, this);
  __tsan_acquire(Address(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  NACRE_REAL("12Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
  const bool notified = CallReal<bool>(real, this, timeout);
  if (notified) __tsan_acquire(Address(this));
  return notified;
}

#undef NACRE_REAL

ABSL_NAMESPACE_END
}  // namespace absl
