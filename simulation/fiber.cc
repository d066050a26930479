#include "simulation/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "common/check.h"

// Sanitizers must be told of every change of the stack.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NACRE_FIBER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define NACRE_FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define NACRE_FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define NACRE_FIBER_TSAN 1
#endif
#ifdef NACRE_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef NACRE_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace nacre::simulation {
namespace {

// Untouched pages take no memory.
constexpr size_t kStackBytes = 256 << 10;

// Stacks of fibers that ended, kept for the next ones: mapping a stack takes
// longer than a short schedule.
std::vector<void*>& FreeStacks() {
  thread_local std::vector<void*> stacks;
  return stacks;
}

size_t PageBytes() {
  static const auto kBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return kBytes;
}

// The page below it can be neither read nor written.
void* TakeStack() {
  std::vector<void*>& free = FreeStacks();
  if (!free.empty()) {
    void* const stack = free.back();
    free.pop_back();
    return stack;
  }
  void* const mapped =
      mmap(nullptr, kStackBytes + PageBytes(), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  NACRE_CHECK(mapped != MAP_FAILED, "no memory for a stack");
  NACRE_CHECK(mprotect(mapped, PageBytes(), PROT_NONE) == 0,
              "a stack cannot be guarded");
  return static_cast<char*>(mapped) + PageBytes();
}

}  // namespace

struct Fiber::Context {
  void* stack = nullptr;
  ucontext_t inside;
  ucontext_t outside;
#ifdef NACRE_FIBER_ASAN
  void* inside_fake = nullptr;
  void* outside_fake = nullptr;
  const void* outside_stack = nullptr;
  size_t outside_bytes = 0;
#endif
#ifdef NACRE_FIBER_TSAN
  void* inside_tsan = nullptr;
  void* outside_tsan = nullptr;
#endif

  void SwitchIn() {
#ifdef NACRE_FIBER_ASAN
    __sanitizer_start_switch_fiber(&outside_fake, stack, kStackBytes);
#endif
#ifdef NACRE_FIBER_TSAN
    outside_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(inside_tsan, 0);
#endif
    NACRE_CHECK(swapcontext(&outside, &inside) == 0, "swapcontext failed");
#ifdef NACRE_FIBER_ASAN
    __sanitizer_finish_switch_fiber(outside_fake, nullptr, nullptr);
#endif
  }
  void SwitchOut([[maybe_unused]] bool for_good) {
#ifdef NACRE_FIBER_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &inside_fake,
                                   outside_stack, outside_bytes);
#endif
#ifdef NACRE_FIBER_TSAN
    __tsan_switch_to_fiber(outside_tsan, 0);
#endif
    NACRE_CHECK(swapcontext(&inside, &outside) == 0, "swapcontext failed");
    Arrived();
  }
  // On the fiber's stack, after a change to it.
  void Arrived() {
#ifdef NACRE_FIBER_ASAN
    __sanitizer_finish_switch_fiber(inside_fake, &outside_stack,
                                    &outside_bytes);
#endif
  }
};

Fiber::Fiber() : context_(std::make_unique<Context>()) {}

Fiber::~Fiber() {
  NACRE_CHECK(done_, "a fiber ends before its body");
  if (context_->stack == nullptr) return;
  FreeStacks().push_back(context_->stack);
#ifdef NACRE_FIBER_TSAN
  __tsan_destroy_fiber(context_->inside_tsan);
#endif
}

void Fiber::Start(std::function<void()> body) {
  NACRE_CHECK(done_, "a fiber has one body at a time");
  Context& context = *context_;
  if (context.stack == nullptr) {
    context.stack = TakeStack();
#ifdef NACRE_FIBER_TSAN
    context.inside_tsan = __tsan_create_fiber(0);
#endif
  }
  body_ = std::move(body);
  done_ = false;
  NACRE_CHECK(getcontext(&context.inside) == 0, "getcontext failed");
  context.inside.uc_stack.ss_sp = context.stack;
  context.inside.uc_stack.ss_size = kStackBytes;
  context.inside.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&context.inside, reinterpret_cast<void (*)()>(&Fiber::Enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
#ifdef NACRE_FIBER_ASAN
  context.inside_fake = nullptr;
#endif
  Resume();
}

void Fiber::Enter(unsigned high, unsigned low) {
  const uintptr_t self =
      (static_cast<uintptr_t>(high) << 32) | static_cast<uintptr_t>(low);
  // makecontext hands on nothing but ints.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  reinterpret_cast<Fiber*>(self)->Run();
}

void Fiber::Run() {
  context_->Arrived();
  std::exchange(body_, nullptr)();
  done_ = true;
  context_->SwitchOut(/*for_good=*/true);
}

void Fiber::Resume() {
  NACRE_CHECK(!done_ && !running_, "only a fiber that waits can go on");
  running_ = true;
  context_->SwitchIn();
  running_ = false;
}

void Fiber::Wait() {
  NACRE_CHECK(running_, "a fiber waits only while it runs");
  context_->SwitchOut(/*for_good=*/false);
}

}  // namespace nacre::simulation
