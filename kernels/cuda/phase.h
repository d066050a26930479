// One kernel of a step as a phase of PersistentKernel (persistent.h): what it
// is, its blocks and its arguments, as they lie in the device's memory.
//
// Values. Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_PHASE_H_
#define KERNELS_CUDA_PHASE_H_

#include <cstddef>
#include <cstdint>

namespace nacre::kernels::cuda {

// Each is one kernel with template arguments; kNone: it can not be a phase.
enum class PhaseKind : int32_t {
  kNone,
  kNorm1,  // RMS norm, rounded; the number is NormalizeHead's kVectors
  kNorm4,
  kNorm8,
  kNormF32,  // not rounded, of kNormStep elements at most
  kAddToRows,
  kRotateAndStore,
  kAttend1x64,  // StreamBlock's kWarps and kDims
  kAttend2x64,
  kAttend1x128,
  kAttend2x128,
  kMerge,
  kRound,
  kGate,
  kProduct8,  // from here on products: bf16 weights, up to so many rows
  kProduct16,
  kGated8,  // GemmAndGate's, likewise
  kGated16,
  kGatedNormed,  // of rows that it norms itself
  kRotated8,     // GemmAndRotate's
  kRotated16,
  kRotatedNormed,
};

// Arguments of a kernel, each after the other.
template <typename... Types>
struct ArgumentPack {};

template <typename First, typename... Others>
struct ArgumentPack<First, Others...> {
  First first;
  ArgumentPack<Others...> others;
};

inline ArgumentPack<> PackArguments() { return {}; }

template <typename First, typename... Others>
ArgumentPack<First, Others...> PackArguments(const First& first,
                                             const Others&... others) {
  return {first, PackArguments(others...)};
}

struct alignas(16) Phase {
  static constexpr size_t kMostArgumentBytes = 240;

  PhaseKind kind = PhaseKind::kNone;
  unsigned blocks[3] = {};  // of its grid: x, y, z
  alignas(16) unsigned char arguments[kMostArgumentBytes] = {};
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PHASE_H_
