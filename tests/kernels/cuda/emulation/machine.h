// An emulated multiprocessor: runs one block of a CUDA kernel that was compiled
// as C++, each thread a fiber. Warps take turns at random, some far ahead of
// others, asynchronous copies land as early or as late as they may, and a block
// may start before the kernel before its own is done. So may blocks of one
// launch, if they run at the same time: a missing wait or barrier, or an index
// that is off, gives wrong results. Says nothing about speed.
//
// One operating-system thread; the machine is global.

#ifndef TESTS_KERNELS_CUDA_EMULATION_MACHINE_H_
#define TESTS_KERNELS_CUDA_EMULATION_MACHINE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

namespace nacre::kernels::cuda::emulation {

// Ends the program.
[[noreturn]] void Die(const char* what);

// When a copy lands: when it is issued, or when it is waited for (poison until
// then).
enum class Copies { kEarly, kLate };
inline Copies copies = Copies::kLate;

// How a block's threads have to do with the kernel before theirs.
struct BlockRules {
  // Each thread must pass WaitForPrevious before it ends.
  bool must_wait = false;
  // WaitForPrevious returns at once: as if it stood at the kernel's end.
  bool waits_late = false;
  // Likewise WaitForBlocks, for this count.
  const unsigned* late_count = nullptr;
  // Other blocks run meanwhile: copies read when they are issued, or when they
  // land.
  bool together = false;
};

// The launch whose block runs: any value that others do not have.
inline const void* running_launch = nullptr;

struct BlockState;

// A block, whose threads run `body` once each; `body` outlives it.
class Block {
 public:
  Block(int threads, const std::function<void()>& body, BlockRules rules = {});
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // While the kernel before still runs: every thread as far as it comes without
  // passing WaitForPrevious. Copies that it issues read what memory holds now.
  void Start();
  // The rest, or all of it: the kernel before is done. False: it waits for
  // another device, and goes on when it is called again.
  bool Finish();

  // Likewise, a little of it at a time, for blocks that wait for each other.
  // False: nothing can go on, or all is done.
  bool Advance();
  bool is_done() const;

 private:
  const std::unique_ptr<BlockState> state_;
};

// For code that runs in `body`.
int Thread();
void WarpBarrier();
void BlockBarrier();
// Whether `predicate` is true of any thread.
bool BlockBarrierOr(bool predicate);
// Of the first or the second `threads` threads (whole warps).
void GroupBarrier(int group, int threads);
// A store to memory (`bytes` up to 8) that other blocks of the launch are to
// read. They see it as late as they may: once a thread has come to a Fence that
// is behind the store, its own or beyond a barrier; or when the launch is over.
void StoreForOthers(void* to, const void* value, int bytes);
void Fence();
// A thread tells other blocks that its block has got somewhere. Stores that no
// fence has brought to memory by then come too late for them.
void Announce();
// As kernels/cuda/block_counts.cuh.
void CountBlock(unsigned* count);
void WaitForBlocks(const unsigned* count, unsigned least);
// As kernels/cuda/peer_flags.cuh. Whether the flag has come to `least`: false
// only after other devices had their turn.
bool HasCome(const unsigned* flag, unsigned least);
// The value of the lane whose number differs in the bits of `distance`.
uint64_t ShuffleXor(uint64_t value, int distance);
// Of `bytes`, up to 16; zeros unless `inside`.
void Copy(void* to, const void* from, int bytes, bool inside);
void Commit();
void Wait(int pending);
void WaitForPrevious();
// As PTX's ldmatrix.x4 of a warp; `row` is this lane's.
void LoadMatrices(uint32_t words[4], const void* row);
// As PTX's mbarrier: Arrive also announces bytes of copies.
void MakeBarrier(uint64_t* barrier, int arrivals);
void Arrive(uint64_t* barrier, int bytes);
void WaitPhase(uint64_t* barrier, int parity);
// As PTX's cp.async.bulk. The first `inside` bytes come from `from`, the others
// are zeros; 16-byte pieces lie swapped as those of row `row` in the swizzle of
// 128 bytes.
void CopyBulk(void* to, const void* from, int bytes, int inside, int row,
              uint64_t* barrier);
// A matrix that a product has in shared memory: PTX's "matrix descriptor" and
// imm-trans, and a pointer nearby. (The descriptor has 18 bits of an address.)
struct SharedMatrix {
  uint64_t descriptor;
  int transposed;
  const void* nearby;
};
// Products of a warpgroup, as PTX's wgmma: of 64 weight rows (in shared memory,
// or, if `weights` is null, words of this lane's warp) x 8 row_tiles rows. At
// random they run at once, with what the warpgroup's first thread to come finds
// as weights in shared memory, or when they are waited for: so neither what
// they read nor their sums may change in between. A warpgroup whose threads
// issue different ones ends the program.
void MultiplyAddWide(float* d, int row_tiles, const SharedMatrix* weights,
                     const std::array<const uint32_t*, 4>& a,
                     const SharedMatrix& rows, bool keep);
// As PTX's fence.proxy.async: products may read what the thread's copies
// brought, and what it stored by StoreForProducts, once it has come to a
// barrier behind the fence. One that reads before ends the program.
void ShowToProducts();
void StoreForProducts(uint32_t* to, uint32_t word);
void CommitProducts();
void WaitProducts(int pending);
// Four matrices of 8 x 8 elements of 16 bits, as ldmatrix.x4.trans has them:
// lane 8m + r names row r of matrix m.
void LoadTransposed(const void* row, uint32_t words[4]);
// d += a b of one warp as m16n8k16 defines the fragments, with the bits that an
// H200 gives (tensor_core.h).
void MultiplyAdd(float d[4], const uint32_t a[4], const uint32_t b[2]);

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_MACHINE_H_
