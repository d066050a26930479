// SIMD targets that the kernels are compiled for: all of Highway's but those
// with vectors of a size unknown at compile time. Include before Highway.

#ifndef KERNELS_CPU_TARGETS_H_
#define KERNELS_CPU_TARGETS_H_

#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#endif  // KERNELS_CPU_TARGETS_H_
