// A kernel's launch, kept instead of queued: to be queued later, and compared
// with others. Compares what the launch does, argument by argument.
//
// Values. Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_RECORDED_LAUNCH_H_
#define KERNELS_CUDA_RECORDED_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <new>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/cuda/phase.h"

namespace nacre::kernels::cuda {

struct Grid {
  dim3 blocks;
  int threads = 0;                     // of a block
  size_t shared_bytes = 0;             // of a block
  PhaseKind phase = PhaseKind::kNone;  // what the kernel may be one of
};

inline bool operator==(const Grid& a, const Grid& b) {
  return a.blocks.x == b.blocks.x && a.blocks.y == b.blocks.y &&
         a.blocks.z == b.blocks.z && a.threads == b.threads &&
         a.shared_bytes == b.shared_bytes;
}

// Queues a kernel now. `overlap` as in Queue (launch.h).
template <typename... Parameters>
cudaError_t StartKernel(cudaStream_t stream, bool overlap, const Grid& grid,
                        void (*kernel)(Parameters...),
                        const std::tuple<Parameters...>& arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  return std::apply(
      [&](const Parameters&... each) {
        return cudaLaunchKernelEx(&config, kernel, each...);
      },
      arguments);
}

class RecordedLaunch {
 public:
  template <typename... Parameters>
  RecordedLaunch(bool overlap, const Grid& grid, void (*kernel)(Parameters...),
                 const std::tuple<Parameters...>& arguments)
      : start_(&Start<Parameters...>),
        equal_(&Equal<Parameters...>),
        pack_(&Pack<Parameters...>),
        kernel_(reinterpret_cast<void (*)()>(kernel)),
        grid_(grid),
        overlap_(overlap) {
    using Arguments = std::tuple<Parameters...>;
    static_assert(sizeof(Arguments) <= sizeof(arguments_));
    static_assert(alignof(Arguments) <= kAlignment);
    // What is copied with the bytes, and never destroyed.
    static_assert((std::is_trivially_copyable_v<Parameters> && ...));
    ::new (arguments_) Arguments(arguments);
  }

  cudaError_t Launch(cudaStream_t stream) const {
    return start_(*this, stream);
  }

  const Grid& grid() const { return grid_; }
  // Of a kernel that may be one.
  Phase phase() const {
    Phase phase = {grid_.phase,
                   {grid_.blocks.x, grid_.blocks.y, grid_.blocks.z}};
    pack_(*this, phase.arguments);
    return phase;
  }

  // Whether they queue the same.
  friend bool operator==(const RecordedLaunch& a, const RecordedLaunch& b) {
    return a.kernel_ == b.kernel_ && a.overlap_ == b.overlap_ &&
           a.grid_ == b.grid_ && a.equal_(a, b);
  }

 private:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kMostBytes = 448;

  template <typename... Parameters>
  static const std::tuple<Parameters...>& ArgumentsOf(
      const RecordedLaunch& launch) {
    return *std::launder(
        reinterpret_cast<const std::tuple<Parameters...>*>(launch.arguments_));
  }
  template <typename... Parameters>
  static cudaError_t Start(const RecordedLaunch& launch, cudaStream_t stream) {
    return StartKernel(
        stream, launch.overlap_, launch.grid_,
        reinterpret_cast<void (*)(Parameters...)>(launch.kernel_),
        ArgumentsOf<Parameters...>(launch));
  }
  // Of launches of one kernel.
  template <typename... Parameters>
  static bool Equal(const RecordedLaunch& a, const RecordedLaunch& b) {
    return ArgumentsOf<Parameters...>(a) == ArgumentsOf<Parameters...>(b);
  }
  template <typename... Parameters>
  static void Pack(const RecordedLaunch& launch, unsigned char* to) {
    using Arguments = ArgumentPack<Parameters...>;
    if constexpr (sizeof(Arguments) <= Phase::kMostArgumentBytes) {
      std::apply(
          [to](const Parameters&... each) {
            ::new (to) Arguments(PackArguments(each...));
          },
          ArgumentsOf<Parameters...>(launch));
    }
  }

  cudaError_t (*start_)(const RecordedLaunch&, cudaStream_t);
  bool (*equal_)(const RecordedLaunch&, const RecordedLaunch&);
  void (*pack_)(const RecordedLaunch&, unsigned char*);
  void (*kernel_)();
  Grid grid_;
  bool overlap_;
  alignas(kAlignment) unsigned char arguments_[kMostBytes];
};

using RecordedLaunches = std::vector<RecordedLaunch>;

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_RECORDED_LAUNCH_H_
