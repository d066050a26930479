// Threads of execution that take turns on stacks of their own, on one thread of
// the operating system. Emulated threads meet at every shuffle of a warp, so
// what a switch takes is most of what the emulated device takes.
//
// By hand where that is written for the processor. Elsewhere, and under
// sanitizers, which must see what happens to stacks, by _setjmp and _longjmp:
// these, unlike swapcontext, ask nothing of the kernel.

#ifndef TESTS_KERNELS_CUDA_EMULATION_STACK_SWITCH_H_
#define TESTS_KERNELS_CUDA_EMULATION_STACK_SWITCH_H_

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <memory>

#include "tests/testing/sanitizers.h"

namespace nacre::kernels::cuda::emulation {

#if defined(__x86_64__) && !defined(NACRE_IS_SANITIZED)

// Where one goes on: the top of its stack, on which its registers lie.
struct Turn {
  void* top = nullptr;
};

#else

struct Turn {
  jmp_buf at;
  std::unique_ptr<ucontext_t> begin;  // of one that has not begun
};

#endif

// `run`, which never returns, is to begin on the stack.
void PrepareTurn(char* stack, size_t bytes, void (*run)(), Turn* turn);

// Leaves `from`, where the caller is, and goes on with `to`. Returns when
// another one goes on with `from`.
void SwitchTurns(Turn* from, Turn* to);

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_STACK_SWITCH_H_
