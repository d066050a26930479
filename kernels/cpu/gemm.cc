#include "kernels/cpu/gemm.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <atomic>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

// Rows of a tile at most: 4 accumulators a row must leave registers for the
// weights, of which bf16 needs more while it widens them.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kMaxTileRowsF32 = 6;
constexpr int kMaxTileRowsBF16 = 6;
#else
constexpr int kMaxTileRowsF32 = 3;
constexpr int kMaxTileRowsBF16 = 2;
#endif

struct DenseCells : CellDefaults {
  static constexpr size_t kUnitOutputs = kUnitVectors * hn::MaxLanes(F32());
  static constexpr size_t kStepBytes = kUnitOutputs * sizeof(float);
  static constexpr size_t kTailBytes = 0;
  static constexpr size_t kRowBytes = kDenseCellInputs * sizeof(float);
  static constexpr int kTilesTogether = 4;
};

struct F32Cells : DenseCells {
  static constexpr int kStepInputs = 1;
  static constexpr int kTileRows = kMaxTileRowsF32;
  static constexpr size_t kBytes = kDenseCellInputs * kStepBytes;
};

struct BF16Cells : DenseCells {
  static constexpr int kStepInputs = 2;
  static constexpr int kTileRows = kMaxTileRowsBF16;
  static constexpr size_t kBytes = kDenseCellInputs / 2 * kStepBytes;
};

// bf16 weights times inputs that are rounded to bf16 as well.
struct RoundedCells : BF16Cells {};

// x [kRows, cols] to out [cells][8][kRows].
struct AsIs {
  template <int kRows>
  static void PackTile(const float* HWY_RESTRICT x, size_t cols,
                       float* HWY_RESTRICT out) {
    for (size_t k = 0; k < cols; ++k, out += kRows) {
      for (int row = 0; row < kRows; ++row) out[row] = x[row * cols + k];
    }
    const size_t padding =
        (kDenseCellInputs - cols % kDenseCellInputs) % kDenseCellInputs;
    std::fill_n(out, padding * kRows, 0.0f);
  }
};

// The same of rounded inputs, the second of two first.
struct Rounded {
  template <int kRows>
  static void PackTile(const float* HWY_RESTRICT x, size_t cols,
                       float* HWY_RESTRICT out) {
    const size_t padded =
        (cols + kDenseCellInputs - 1) / kDenseCellInputs * kDenseCellInputs;
    for (size_t k = 0; k < padded; ++k, out += kRows) {
      const size_t from = k ^ 1;
      for (int row = 0; row < kRows; ++row) {
        out[row] = from < cols ? FromBF16(ToBF16(x[row * cols + from])) : 0.0f;
      }
    }
  }
};

template <class Kind>
void PackActivations(const float* x, const RowTiling& tiling, int tile_begin,
                     int tile_end, int cols, void* packed) {
  static constexpr decltype(&Kind::template PackTile<1>) kPack[] = {
      Kind::template PackTile<1>, Kind::template PackTile<2>,
      Kind::template PackTile<3>, Kind::template PackTile<4>,
      Kind::template PackTile<5>, Kind::template PackTile<6>};
  auto* const out = static_cast<float*>(packed);
  const size_t inputs = static_cast<size_t>(cols);
  const size_t padded =
      (inputs + kDenseCellInputs - 1) / kDenseCellInputs * kDenseCellInputs;
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const size_t row = static_cast<size_t>(tiling.begin(tile));
    kPack[tiling.size(tile) - 1](x + row * inputs, inputs, out + row * padded);
  }
}

// sums += weights * x for every row.                               x [kRows]
template <int kRows>
HWY_INLINE void MultiplyAdd(const VF32 (&weights)[kUnitVectors],
                            const float* HWY_RESTRICT x,
                            VF32 (&sums)[kRows][kUnitVectors]) {
  const F32 df;
  for (int row = 0; row < kRows; ++row) {
    const VF32 v = hn::Set(df, x[row]);
    for (int i = 0; i < kUnitVectors; ++i) {
      sums[row][i] = hn::MulAdd(weights[i], v, sums[row][i]);
    }
  }
}

template <int kRows>
HWY_INLINE void AddStep(F32Cells, const char* w, const float* x,
                        VF32 (&sums)[kRows][kUnitVectors]) {
  const F32 df;
  const auto* from = reinterpret_cast<const float*>(w);
  VF32 weights[kUnitVectors];
  for (int i = 0; i < kUnitVectors; ++i) {
    weights[i] = hn::Load(df, from + i * hn::Lanes(df));
  }
  MultiplyAdd(weights, x, sums);
}

// Keeps the compiler from loading what comes after it before what comes before
// it, which would not all fit in registers; no code. (HWY_FENCE does nothing on
// Arm, and the other targets do not need it.)
HWY_INLINE void KeepOrder() {
#if HWY_TARGET == HWY_NEON
  std::atomic_signal_fence(std::memory_order_acq_rel);
#endif
}

// The first, or the second, of each pair of bf16 weights times x.
template <bool kSecond, int kRows>
HWY_INLINE void AddHalfStep(const char* w, const float* x,
                            VF32 (&sums)[kRows][kUnitVectors]) {
  const F32 df;
  const hn::RebindToUnsigned<F32> du;
  const auto high_half = hn::Set(du, 0xFFFF0000u);
  const auto* from = reinterpret_cast<const uint32_t*>(w);
  VF32 weights[kUnitVectors];
  for (int i = 0; i < kUnitVectors; ++i) {
    const auto pairs = hn::Load(du, from + i * hn::Lanes(df));
    weights[i] = hn::BitCast(
        df, kSecond ? hn::And(pairs, high_half) : hn::ShiftLeft<16>(pairs));
  }
  MultiplyAdd(weights, x, sums);
}

template <int kRows>
HWY_INLINE void AddStep(BF16Cells, const char* w, const float* x,
                        VF32 (&sums)[kRows][kUnitVectors]) {
  AddHalfStep<false>(w, x, sums);
  KeepOrder();
  AddHalfStep<true>(w, x + kRows, sums);
}

template <int kRows>
HWY_INLINE void AddStep(RoundedCells, const char* w, const float* x,
                        VF32 (&sums)[kRows][kUnitVectors]) {
  AddHalfStep<true>(w, x, sums);
  KeepOrder();
  AddHalfStep<false>(w, x + kRows, sums);
}

// These walk the sums by recursion: a loop would send them through memory once
// more.
template <int kRow = 0, int kRows>
HWY_INLINE void LoadSums(const float* from, VF32 (&sums)[kRows][kUnitVectors]) {
  if constexpr (kRow < kRows) {
    const F32 df;
    const size_t lanes = hn::Lanes(df);
    sums[kRow][0] = hn::Load(df, from);
    sums[kRow][1] = hn::Load(df, from + lanes);
    sums[kRow][2] = hn::Load(df, from + 2 * lanes);
    sums[kRow][3] = hn::Load(df, from + 3 * lanes);
    LoadSums<kRow + 1>(from + kUnitVectors * lanes, sums);
  }
}

template <int kRow = 0, int kRows>
HWY_INLINE void StoreSums(const VF32 (&sums)[kRows][kUnitVectors], float* to) {
  if constexpr (kRow < kRows) {
    const F32 df;
    const size_t lanes = hn::Lanes(df);
    hn::Store(sums[kRow][0], df, to);
    hn::Store(sums[kRow][1], df, to + lanes);
    hn::Store(sums[kRow][2], df, to + 2 * lanes);
    hn::Store(sums[kRow][3], df, to + 3 * lanes);
    StoreSums<kRow + 1>(sums, to + kUnitVectors * lanes);
  }
}
static_assert(kUnitVectors == 4);

// kLines lines of weights to come are fetched each step.
template <class Cells, int kRows, int kLines>
void RunSegment(const GemmSegment& s) {
  VF32 sums[kRows][kUnitVectors];
  LoadSums(s.sums, sums);
  const char* w = s.weights;
  const char* ahead = s.ahead;
  const auto* x = reinterpret_cast<const float*>(s.x);
  const size_t steps = s.cells * (Cells::kBytes / Cells::kStepBytes);
  for (size_t step = 0; step < steps; ++step) {
    for (int line = 0; line < kLines; ++line) {
      hwy::Prefetch(ahead + size_t{64} * line);
    }
    ahead += s.ahead_step;
    AddStep<kRows>(Cells(), w, x, sums);
    w += Cells::kStepBytes;
    x += Cells::kStepInputs * kRows;
  }
  StoreSums(sums, s.sums);
}

template <class Cells, int kLines>
struct Runs {
  static constexpr int kLast = Cells::kTileRows;
  // Entries past kTileRows are never called.
  static constexpr RunGemmSegment kTable[6] = {
      RunSegment<Cells, 1, kLines>,
      RunSegment<Cells, std::min(2, kLast), kLines>,
      RunSegment<Cells, std::min(3, kLast), kLines>,
      RunSegment<Cells, std::min(4, kLast), kLines>,
      RunSegment<Cells, std::min(5, kLast), kLines>,
      RunSegment<Cells, std::min(6, kLast), kLines>};
};

template <class Cells>
void Multiply(const GemmArgs& args, int unit_begin, int unit_end) {
  constexpr int kLines =
      static_cast<int>(std::max<size_t>(1, Cells::kStepBytes / 64));
  MultiplyUnits<Cells>(args, unit_begin, unit_end,
                       {Runs<Cells, kLines>::kTable,
                        Runs<Cells, std::max(1, kLines / 2)>::kTable,
                        Runs<Cells, std::max(1, kLines / 4)>::kTable});
}

GemmKernels GetGemmKernels() {
  return {static_cast<int>(FloatLanes()),
          kMaxTileRowsF32,
          kMaxTileRowsBF16,
          PackActivations<AsIs>,
          PackActivations<Rounded>,
          Multiply<F32Cells>,
          Multiply<BF16Cells>,
          Runs<F32Cells, 0>::kTable,
          Multiply<RoundedCells>};
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::kernels {

HWY_EXPORT(GetGemmKernels);

GemmKernels PortableGemmKernels() {
  return HWY_DYNAMIC_DISPATCH(GetGemmKernels)();
}

GemmKernels ChooseGemmKernels() {
  GemmKernels kernels = PortableGemmKernels();
  // Tests may forbid what the CPU has.
  if ((hwy::SupportedTargets() & (HWY_AVX3 | HWY_AVX3_DL)) != 0) {
    UsePairProducts(&kernels);
  }
  return kernels;
}

}  // namespace nacre::kernels
#endif  // HWY_ONCE
