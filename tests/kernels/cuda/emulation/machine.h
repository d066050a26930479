// An emulated multiprocessor: runs one block of a CUDA kernel that was compiled
// as C++, each thread a fiber. Warps take turns at random, some far ahead of
// others, and asynchronous copies land as early or as late as they may: a
// missing wait or barrier, or an index that is off, gives wrong results. Says
// nothing about speed, and nothing about how tensor cores round.
//
// One operating-system thread; the machine is global.

#ifndef TESTS_KERNELS_CUDA_EMULATION_MACHINE_H_
#define TESTS_KERNELS_CUDA_EMULATION_MACHINE_H_

#include <cstdint>
#include <functional>

namespace nacre::kernels::cuda::emulation {

// When a copy lands: when it is issued, or when it is waited for (poison until
// then).
enum class Copies { kEarly, kLate };
inline Copies copies = Copies::kLate;

// Runs `body` once for every thread of a block.
void RunBlock(int threads, const std::function<void(int thread)>& body);

// For code that runs in `body`.
int Thread();
void WarpBarrier();
void BlockBarrier();
// The value of the lane whose number differs in the bits of `distance`.
uint64_t ShuffleXor(uint64_t value, int distance);
void Copy(void* to, const void* from, bool inside);
void Commit();
void Wait(int pending);
// d += a b of one warp as m16n8k16 defines the fragments; exact but for one
// rounding to f32 of each element.
void MultiplyAdd(float d[4], const uint32_t a[4], const uint32_t b[2]);

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_MACHINE_H_
