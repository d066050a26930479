#include "tests/testing/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NACRE_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NACRE_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef NACRE_COUNTS_ALLOCATIONS
#define NACRE_COUNTS_ALLOCATIONS 1
#endif

namespace nacre::testing {
namespace {

std::atomic<int64_t> count{0};
std::atomic<int64_t> bytes{0};

}  // namespace

bool CountsAllocations() { return NACRE_COUNTS_ALLOCATIONS != 0; }

Allocations AllocationsSoFar() { return {count.load(), bytes.load()}; }

#if NACRE_COUNTS_ALLOCATIONS
void CountAllocation(size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<int64_t>(size), std::memory_order_relaxed);
}
#endif

}  // namespace nacre::testing

#if NACRE_COUNTS_ALLOCATIONS
extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  nacre::testing::CountAllocation(size);
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  nacre::testing::CountAllocation(count * size);
  return __libc_calloc(count, size);
}

void* realloc(void* old, size_t size) {
  nacre::testing::CountAllocation(size);
  return __libc_realloc(old, size);
}

void* memalign(size_t alignment, size_t size) {
  nacre::testing::CountAllocation(size);
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
  *result = memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}

}  // extern "C"
#endif
