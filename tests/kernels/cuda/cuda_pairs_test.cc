// Products that use their results themselves (kernels/cuda/gemm_pairs.h) have
// the bits of a product and of what comes after it, which Backend runs one
// after another. On the emulated device, and on a GPU where there is one.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/kernels/cuda/host_view.h"
#include "tests/kernels/kernel_testing.h"

#ifdef NACRE_EMULATED_CUDA
#include "tests/kernels/cuda/emulation/runtime.h"
#endif

namespace nacre::kernels {
namespace {

using Values = std::vector<float>;

size_t Elements(int rows, int cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols);
}

// Whether all are as they were filled.
bool HasNothing(Values::const_iterator begin, Values::const_iterator end) {
  return std::all_of(begin, end, [](float value) { return std::isnan(value); });
}

bool SameBits(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Kernels that `run` launched. A GPU does not count them.
template <typename Run>
int LaunchesOf(const Run& run) {
#ifdef NACRE_EMULATED_CUDA
  cuda::emulation::counts.launches = 0;
  run();
  return cuda::emulation::counts.launches;
#else
  run();
  return 0;
#endif
}

struct Saving {
  int launches;   // of the emulated device
  bool together;  // nothing passed between the product and what follows
};

// By the type of weights.
class CudaPairsTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<PackedMatrix> Packed(int outputs, int inputs, uint32_t seed,
                                       int pairs_apart) {
    const UnalignedMatrix w(RandomFloats(Elements(outputs, inputs), seed),
                            outputs, inputs, DType::kF32);
    PackHints hints;
    hints.pairs_apart = pairs_apart;
    auto packed = backend_->PackFor({w.host()}, hints);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  }

  Saving CompareGate(const PackedMatrix& gate_up, const PackedMatrix& down,
                     int rows) {
    const Values x = RandomFloats(Elements(rows, gate_up.cols()), 1, 3.0f);
    const Values weight = RandomFloats(Elements(1, gate_up.cols()), 2);
    const Values residual = RandomFloats(Elements(rows, down.rows()), 3, 10.0f);
    Values between(Elements(rows, gate_up.rows()));
    Values unwritten(between.size(), NAN);
    Values gated(Elements(rows, down.cols()));
    Values expected(residual.size(), NAN);
    Values actual(residual.size(), NAN);
    const NormedRows in = {x.data(), rows, weight.data(), 1e-5f, nullptr};
    const int apart = LaunchesOf([&] {
      backend_->Backend::NormSiluMatMulAdd(in, gate_up, down, residual.data(),
                                           {between.data(), gated.data()},
                                           expected.data());
    });
    const int together = LaunchesOf([&] {
      backend_->NormSiluMatMulAdd(in, gate_up, down, residual.data(),
                                  {unwritten.data(), nullptr}, actual.data());
    });
    EXPECT_TRUE(SameBits(actual, expected))
        << rows << " rows, " << gate_up.rows() << " x " << gate_up.cols();
    return {apart - together, HasNothing(unwritten.begin(), unwritten.end())};
  }

  struct Heads {
    int queries;
    int keys;
    int dim;
  };

  // Of rows of two sessions, the last with a tail.
  Saving CompareRope(const PackedMatrix& w, const Heads& heads, bool has_bias,
                     DType kv_type, int rows) {
    const PagedCache::Shape shape = {3, 70, heads.keys, 5, heads.dim, kv_type};
    const PagedCache expected_cache(shape, 1);
    const PagedCache actual_cache(shape, 1);
    // Where the third session has its positions.
    const RowContext other = expected_cache.Row(2, 9);
    std::vector<KvSlot> slots;
    for (const int position : {4, 1, 7}) {
      slots.push_back(other.block_table[position / 5] * 5 + position % 5);
    }
    const auto contexts = [&](const PagedCache& cache) {
      std::vector<RowContext> made;
      for (int row = 0; row < rows; ++row) {
        made.push_back(cache.Row(row % 2, 2 * row + 3));
      }
      made.back().tail_begin = made.back().position - 2;
      made.back().tail_slots = slots.data();
      return made;
    };
    const Values x = RandomFloats(Elements(rows, w.cols()), 1, 3.0f);
    const Values weight = RandomFloats(Elements(1, w.cols()), 2);
    const Values bias = RandomFloats(Elements(1, w.rows()), 3);
    const Values cos = RandomFloats(Elements(rows, heads.dim / 2), 4);
    const Values sin = RandomFloats(Elements(rows, heads.dim / 2), 5);
    Values expected(Elements(rows, w.rows()), NAN);
    Values actual(expected.size(), NAN);
    const NormedRows in = {x.data(), rows, weight.data(), 1e-5f, nullptr};
    const HeadAngles angles = {heads.queries, cos.data(), sin.data()};
    const float* const added = has_bias ? bias.data() : nullptr;
    const int apart = LaunchesOf([&] {
      backend_->Backend::NormMatMulRopeStoreKv(
          in, w, added, angles, contexts(expected_cache),
          expected_cache.layer(), expected.data());
    });
    const int together = LaunchesOf([&] {
      backend_->NormMatMulRopeStoreKv(in, w, added, angles,
                                      contexts(actual_cache),
                                      actual_cache.layer(), actual.data());
    });
    EXPECT_EQ(actual_cache.words(), expected_cache.words()) << rows << " rows";
    EXPECT_NE(actual_cache.words(), PagedCache(shape, 1).words());
    const size_t queries = Elements(heads.queries, heads.dim);
    bool no_keys = true;
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      const size_t at = row * static_cast<size_t>(w.rows());
      EXPECT_EQ(
          std::memcmp(&actual[at], &expected[at], queries * sizeof(float)), 0)
          << rows << " rows, row " << row << ", heads of " << heads.dim;
      const auto row_begin = actual.begin() + static_cast<ptrdiff_t>(at);
      no_keys =
          no_keys && HasNothing(row_begin + static_cast<ptrdiff_t>(queries),
                                row_begin + w.rows());
    }
    return {apart - together, no_keys};
  }

  // Kernels that are saved of a product of pairs, with inputs so many.
  int Saved(int rows, int inputs, int more = 0) const {
    if (!has_format() || rows > 16) return 0;
    const bool norms = rows <= 8 && rows * inputs <= 16384;
    return 1 + norms + more;
  }
  bool has_format() const { return GetParam() != "f32"; }

  // What can be saved is saved. Of a GPU that is all but the norm.
  static void ExpectSaved(const Saving& saving, int wanted) {
    EXPECT_EQ(saving.together, wanted > 0);
#ifdef NACRE_EMULATED_CUDA
    EXPECT_EQ(saving.launches, wanted);
#endif
  }

  const std::unique_ptr<Backend> backend_ = MakeCudaBackend(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Weights, CudaPairsTest,
                         ::testing::Values("bf16", "int8", "fp8", "int4",
                                           "f32"),
                         [](const auto& info) { return info.param; });

TEST_P(CudaPairsTest, GatesOfEveryNumberOfRows) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  const auto gate_up = Packed(80, 19, 6, 40);
  const auto down = Packed(17, 40, 7, 0);
  for (int rows = 1; rows <= 18; ++rows) {
    const Saving saved = CompareGate(*gate_up, *down, rows);
    ExpectSaved(saved, Saved(rows, 19));
  }
}

// One pair of tiles and many, padded inputs, slices of either product.
TEST_P(CudaPairsTest, GatesOfAwkwardShapes) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  const struct {
    int hidden;
    int inter;
  } shapes[] = {{19, 8}, {72, 264}, {2056, 24}, {40, 2104}};
  for (const auto& [hidden, inter] : shapes) {
    if (!has_format() && hidden + inter > 400) continue;  // takes long
    const auto gate_up = Packed(2 * inter, hidden, 6, inter);
    const auto down = Packed(hidden, inter, 7, 0);
    for (const int rows : {1, 3, 8, 9, 16, 33}) {
      const Saving saved = CompareGate(*gate_up, *down, rows);
      ExpectSaved(saved, Saved(rows, hidden));
    }
  }
}

// A norm that its threads do not keep in registers.
TEST_P(CudaPairsTest, GatesBehindALongNorm) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  const int hidden = 8235;
  ExpectSaved(CompareGate(*Packed(32, hidden, 6, 16), *Packed(17, 16, 7, 0), 1),
              Saved(1, hidden));
}

TEST_P(CudaPairsTest, GatesThatAreNotInPairs) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  const auto down = Packed(17, 20, 7, 0);
  ExpectSaved(CompareGate(*Packed(40, 19, 6, 20), *down, 3), 0);
  const auto wide = Packed(17, 48, 7, 0);
  ExpectSaved(CompareGate(*Packed(96, 19, 6, 0), *wide, 3), 0);
  ExpectSaved(CompareGate(*Packed(96, 19, 6, 24), *wide, 3), 0);
}

TEST_P(CudaPairsTest, HeadsOfEveryNumberOfRows) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  const Heads heads = {3, 1, 48};
  const auto w = Packed(5 * 48, 19, 8, 24);
  for (int rows = 1; rows <= 18; ++rows) {
    const bool has_bias = rows % 3 == 0;
    const DType kv_type = rows % 2 == 0 ? DType::kBF16 : DType::kF32;
    const Saving saved = CompareRope(*w, heads, has_bias, kv_type, rows);
    ExpectSaved(saved, Saved(rows, 19, has_bias));
  }
}

TEST_P(CudaPairsTest, HeadsOfAwkwardShapes) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  for (const Heads& heads :
       {Heads{2, 2, 16}, Heads{4, 2, 80}, Heads{1, 1, 128}, Heads{4, 1, 256}}) {
    const int outputs = (heads.queries + 2 * heads.keys) * heads.dim;
    for (const int hidden : {72, 2056}) {
      if (hidden > 72 && (heads.dim > 80 || !has_format())) continue;
      const auto w = Packed(outputs, hidden, 8, heads.dim / 2);
      for (const int rows : {1, 5, 12, 16}) {
        for (const DType kv_type : {DType::kF32, DType::kBF16}) {
          ExpectSaved(CompareRope(*w, heads, true, kv_type, rows),
                      Saved(rows, hidden, 1));
        }
      }
    }
  }
}

TEST_P(CudaPairsTest, HeadsThatAreNotInPairs) {
  NACRE_SKIP_WITHOUT_GPU(backend_);
  const Heads heads = {2, 1, 20};
  ExpectSaved(
      CompareRope(*Packed(80, 19, 8, 10), heads, false, DType::kBF16, 3), 0);
  const Heads of_32 = {2, 1, 32};
  for (const int pairs_apart : {0, 32}) {
    ExpectSaved(CompareRope(*Packed(128, 19, 8, pairs_apart), of_32, true,
                            DType::kBF16, 3),
                0);
  }
}

TEST(CudaPairsOfNothingTest, DoNothing) {
  const auto backend = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(backend);
  const UnalignedMatrix w(RandomFloats(Elements(64, 16), 2), 64, 16,
                          DType::kBF16);
  PackHints hints;
  hints.pairs_apart = 8;
  const auto packed = backend->PackFor({w.host()}, hints);
  const PagedCache cache({1, 16, 1, 16, 16}, 1);
  float none = 0;
  const NormedRows in = {&none, 0, &none, 1e-5f, &none};
  backend->NormSiluMatMulAdd(in, **packed, **packed, &none, {&none, &none},
                             &none);
  backend->NormMatMulRopeStoreKv(in, **packed, nullptr, {2, &none, &none}, {},
                                 cache.layer(), &none);
  EXPECT_TRUE(backend->Synchronize().ok());
}

}  // namespace
}  // namespace nacre::kernels
