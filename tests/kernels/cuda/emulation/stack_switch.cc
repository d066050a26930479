#include "tests/kernels/cuda/emulation/stack_switch.h"

#include <cstdint>
#include <memory>
#include <utility>

#if defined(__x86_64__) && !defined(NACRE_IS_SANITIZED)

// Saves on the stack the registers that a called function must keep. It ends
// with a jump, not a return: processors predict that a return goes to its
// caller, and here it would not.
extern "C" void NacreSwitchStacks(void** from, void* const* to);
asm(R"(
  .text
  .p2align 4
  .type NacreSwitchStacks, @function
NacreSwitchStacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
  .size NacreSwitchStacks, . - NacreSwitchStacks
)");

namespace nacre::kernels::cuda::emulation {

void PrepareTurn(char* stack, size_t bytes, void (*run)(), Turn* turn) {
  constexpr size_t kRegisters = 6;
  constexpr uintptr_t kAlignment = 16;  // of the stack, before a call
  char* const end = stack + bytes;
  auto** const aligned = reinterpret_cast<void**>(
      end - reinterpret_cast<uintptr_t>(end) % kAlignment);
  aligned[-1] = nullptr;  // to return to
  aligned[-2] = reinterpret_cast<void*>(run);
  turn->top = aligned - 2 - kRegisters;
}

void SwitchTurns(Turn* from, Turn* to) {
  NacreSwitchStacks(&from->top, &to->top);
}

}  // namespace nacre::kernels::cuda::emulation

#else

namespace nacre::kernels::cuda::emulation {

void PrepareTurn(char* stack, size_t bytes, void (*run)(), Turn* turn) {
  turn->begin = std::make_unique<ucontext_t>();
  getcontext(turn->begin.get());
  turn->begin->uc_stack.ss_sp = stack;
  turn->begin->uc_stack.ss_size = bytes;
  turn->begin->uc_link = nullptr;
  makecontext(turn->begin.get(), run, 0);
}

void SwitchTurns(Turn* from, Turn* to) {
  if (_setjmp(from->at) != 0) return;
  if (to->begin == nullptr) _longjmp(to->at, 1);
  // It points into itself, so it is not copied, and lives until the next
  // begins.
  static std::unique_ptr<ucontext_t> begin;
  begin = std::move(to->begin);
  setcontext(begin.get());
}

}  // namespace nacre::kernels::cuda::emulation

#endif
