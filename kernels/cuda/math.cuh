// Arithmetic of the kernels. Each function is one fixed sequence of IEEE
// operations (no approximate instruction, no contraction). So its bits are the
// same in every launch, on every GPU and on the emulated device.

#ifndef KERNELS_CUDA_MATH_CUH_
#define KERNELS_CUDA_MATH_CUH_

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace nacre::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// e^x within 2 units in the last place; 0 below e^-104, infinity above the
// range of floats, NaN of NaN.
__device__ __forceinline__ float Exp(float x) {
  if (!(x > -104.0f)) return x == x ? 0.0f : x;
  if (x > 88.8f) return __int_as_float(0x7f800000);
  // x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts, so that n ln 2 is exact
  // enough. The polynomial is that of Cephes' expf.
  const float n = rintf(x * 1.44269504088896341f);
  float r = fmaf(n, -0.693145751953125f, x);
  r = fmaf(n, -1.42860682030941723e-6f, r);
  float p = fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
  p = fmaf(p, r, 8.3334519073e-3f);
  p = fmaf(p, r, 4.1665795894e-2f);
  p = fmaf(p, r, 1.6666665459e-1f);
  p = fmaf(p, r, 5.0000001201e-1f);
  p = fmaf(p, r * r, r) + 1.0f;
  // 2^n in two factors: n may be beyond the exponents of normal floats.
  const int power = static_cast<int>(n);
  const int half = power >> 1;
  return p * __int_as_float((half + 127) << 23) *
         __int_as_float((power - half + 127) << 23);
}

// silu(gate) * up.
__device__ __forceinline__ float Gated(float gate, float up) {
  return gate / (1.0f + Exp(-gate)) * up;
}

// 2^x of x <= 0 within 4 units in the last place, where what follows rounds
// more than that: no branch, 12 instructions. 0 below 2^-126, NaN of NaN.
__device__ __forceinline__ float Exp2Below0(float x) {
  // Adding 1.5 * 2^23 rounds to an integer, which lies in the low bits then.
  constexpr float kRound = 12582912.0f;
  const float rounded = x + kRound;
  const float r = x - (rounded - kRound);
  // (2^r - 1) / r through the Chebyshev nodes of |r| <= 1/2.
  float p = fmaf(1.3381302e-3f, r, 9.6663684e-3f);
  p = fmaf(p, r, 5.5503812e-2f);
  p = fmaf(p, r, 2.4022350e-1f);
  p = fmaf(p, r, 6.9314718e-1f);
  p = fmaf(p, r, 1.0f);
  const float power =
      __uint_as_float((__float_as_uint(rounded) << 23) + 0x3f800000u);
  return x < -126.0f ? 0.0f : p * power;
}

// Round to nearest, ties to even; NaN stays NaN. As ToBF16 in kernels/dtype.h.
__device__ __forceinline__ uint16_t RoundToBF16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// The two bf16 of a word, exact.
__device__ __forceinline__ float LowBF16(uint32_t word) {
  return __uint_as_float(word << 16);
}
__device__ __forceinline__ float HighBF16(uint32_t word) {
  return __uint_as_float(word & 0xffff0000u);
}

__device__ __forceinline__ float ToFloat(float value) { return value; }
// bf16 bits.
__device__ __forceinline__ float ToFloat(uint16_t bits) {
  return __uint_as_float(uint32_t{bits} << 16);
}
__device__ __forceinline__ float ToFloat(__half value) {
  return __half2float(value);
}

__device__ __forceinline__ void Store(float value, float* to) { *to = value; }
__device__ __forceinline__ void Store(float value, uint16_t* to) {
  *to = RoundToBF16(value);
}

// Four elements; `from` is aligned to all of them.
__device__ __forceinline__ float4 LoadVector(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ float4 LoadVector(const uint16_t* from) {
  const uint2 words = *reinterpret_cast<const uint2*>(from);
  return make_float4(LowBF16(words.x), HighBF16(words.x), LowBF16(words.y),
                     HighBF16(words.y));
}

// The first `count` of four elements, zeros for the others; one load where
// `vector` says that the alignment permits it.
template <typename Element>
__device__ __forceinline__ float4 LoadFour(const Element* from, int count,
                                           bool vector) {
  if (vector && count >= 4) return LoadVector(from);
  return make_float4(
      count > 0 ? ToFloat(from[0]) : 0.0f, count > 1 ? ToFloat(from[1]) : 0.0f,
      count > 2 ? ToFloat(from[2]) : 0.0f, count > 3 ? ToFloat(from[3]) : 0.0f);
}

__device__ __forceinline__ void StoreVector(const float4& v, float* to) {
  *reinterpret_cast<float4*>(to) = v;
}
__device__ __forceinline__ void StoreVector(const float4& v, uint16_t* to) {
  const auto pair = [](float low, float high) {
    return uint32_t{RoundToBF16(low)} | uint32_t{RoundToBF16(high)} << 16;
  };
  *reinterpret_cast<uint2*>(to) = make_uint2(pair(v.x, v.y), pair(v.z, v.w));
}

// The first `count` of four elements; one store as LoadFour's load.
template <typename Element>
__device__ __forceinline__ void StoreFour(const float4& v, int count,
                                          bool vector, Element* to) {
  if (vector && count >= 4) return StoreVector(v, to);
  if (count > 0) Store(v.x, to);
  if (count > 1) Store(v.y, to + 1);
  if (count > 2) Store(v.z, to + 2);
  if (count > 3) Store(v.w, to + 3);
}

// A pair of elements of a head, turned by an angle.
struct Pair {
  float first;
  float second;
};

__device__ __forceinline__ Pair Rotate(float a, float b, float cos, float sin) {
  return {a * cos - b * sin, b * cos + a * sin};
}

// Of the 32 lanes of a warp, in a tree of one shape; every lane has the result.
__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}
__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_MATH_CUH_
