// Checks of what not every model has, for any backend: attention with windows
// and soft caps, LayerNorm, norms of heads, gelu, scales and caps. Against the
// reference, and bit by bit in every batch.

#ifndef TESTS_KERNELS_RULE_CHECKS_H_
#define TESTS_KERNELS_RULE_CHECKS_H_

#include <cmath>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {

inline bool EqualBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

// Windows around the edges of splits, of one position, and wider than all.
inline std::vector<AttentionRule> CheckedRules(
    float scale, const std::vector<int>& windows = {1, 2, 17, 64, 65, 128, 129,
                                                    200, 1000, kNoWindow}) {
  std::vector<AttentionRule> rules;
  for (const int window : windows) {
    AttentionRule rule = scale;
    rule.window = window;
    rule.soft_cap = window % 2 == 0 ? 0.0f : 0.75f;
    rules.push_back(rule);
  }
  return rules;
}

// Rows of two sessions, apart and after each other.
inline std::vector<RowContext> CheckedRows(const PagedCache& cache) {
  std::vector<RowContext> rows;
  for (const int position : {0, 1, 63, 64, 127, 128, 130, 199, 255, 299}) {
    rows.push_back(cache.Row(0, position));
  }
  for (int position = 120; position < 140; ++position) {
    rows.push_back(cache.Row(1, position));
  }
  return rows;
}

// `rounding`: of results, where the backend rounds queries or weights.
inline void ExpectRulesAccurate(Backend* backend, DType type,
                                float rounding = 0) {
  const auto reference = MakeBackend("reference");
  for (const int head_dim : {20, 64, 128}) {
    const int width = 6 * head_dim;
    const PagedCache cache({2, 300, 2, 16, head_dim, type}, 50);
    const std::vector<RowContext> rows = CheckedRows(cache);
    const auto q = RandomFloats(rows.size() * width, 51);
    for (const AttentionRule& rule :
         CheckedRules(1.0f / std::sqrt(static_cast<float>(head_dim)))) {
      std::vector<float> expected(q.size(), NAN);
      std::vector<float> actual(q.size(), NAN);
      reference->Attention(q.data(), width, 6, rule, rows, cache.layer(),
                           expected.data());
      backend->Attention(q.data(), width, 6, rule, rows, cache.layer(),
                         actual.data());
      for (size_t i = 0; i < actual.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], 1e-5 + rounding)
            << "head_dim " << head_dim << " window " << rule.window << " cap "
            << rule.soft_cap << " position "
            << rows[i / static_cast<size_t>(width)].position;
      }
    }
  }
}

inline void ExpectRulesInvariant(Backend* backend, DType type,
                                 const std::vector<AttentionRule>& rules) {
  const int head_dim = 72;
  const size_t width = 6 * head_dim;
  const PagedCache cache({2, 300, 2, 16, head_dim, type}, 52);
  const std::vector<RowContext> rows = CheckedRows(cache);
  const auto q = RandomFloats(rows.size() * width, 53);
  for (const AttentionRule& rule : rules) {
    const auto attend = [&](size_t first, size_t count, float* out) {
      backend->Attention(q.data() + first * width, static_cast<int>(width), 6,
                         rule, absl::MakeSpan(rows).subspan(first, count),
                         cache.layer(), out);
    };
    std::vector<float> alone(q.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      attend(row, 1, alone.data() + row * width);
    }
    for (const size_t count : {2, 3, 9, 20, 30}) {
      const size_t first = rows.size() - count;
      std::vector<float> together(count * width);
      attend(first, count, together.data());
      ASSERT_TRUE(EqualBits(together.data(), alone.data() + first * width,
                            together.size()))
          << count << " rows, window " << rule.window;
    }
  }
}

// What a window hides reaches no row, were it NaN or infinite.
inline void ExpectHiddenPositionsUnseen(Backend* backend, DType type) {
  const int head_dim = 16;
  const PagedCache cache({1, 300, 1, 16, head_dim, type}, 54);
  AttentionRule rule = 0.25f;
  rule.window = 40;
  std::vector<RowContext> rows;
  for (int position = 150; position < 170; ++position) {
    rows.push_back(cache.Row(0, position));
  }
  const auto q = RandomFloats(rows.size() * head_dim, 55);
  std::vector<float> expected(q.size());
  backend->Attention(q.data(), head_dim, 1, rule, rows, cache.layer(),
                     expected.data());
  const std::vector<float> poison(head_dim, NAN);
  const std::vector<float> infinite(head_dim, INFINITY);
  for (int position = 0; position < 129; ++position) {
    // Row 19 sees 130 and later, row 0 111 and later.
    const RowContext at = cache.Row(0, position);
    backend->StoreKv(poison.data(), infinite.data(), head_dim, {&at, 1},
                     cache.layer());
  }
  std::vector<float> actual(q.size());
  backend->Attention(q.data(), head_dim, 1, rule, rows, cache.layer(),
                     actual.data());
  EXPECT_TRUE(EqualBits(actual.data() + 18 * head_dim,
                        expected.data() + 18 * head_dim, 2 * head_dim));
  EXPECT_TRUE(std::isnan(actual[0]));
}

inline void ExpectRowOpsAccurate(Backend* backend) {
  const auto reference = MakeBackend("reference");
  for (const int cols : {1, 17, 300}) {
    for (const float magnitude : {1e-3f, 1.0f, 20.0f, 200.0f}) {
      const auto gate_up = RandomFloats(3 * 2 * cols, 9, magnitude);
      std::vector<float> expected(3 * cols, NAN);
      std::vector<float> actual(3 * cols, NAN);
      reference->GeluMul(gate_up.data(), 3, cols, expected.data());
      backend->GeluMul(gate_up.data(), 3, cols, actual.data());
      for (int i = 0; i < 3 * cols; ++i) {
        // Where the gate shuts, the exponent's error counts.
        ASSERT_NEAR(actual[i], expected[i],
                    2e-6 * std::fabs(expected[i]) +
                        1e-6 * magnitude * std::fmin(magnitude, 1.0f))
            << "cols " << cols << " magnitude " << magnitude;
      }
      auto capped = RandomFloats(cols, 10, magnitude);
      auto expected_capped = capped;
      reference->SoftCap(expected_capped.data(), expected_capped.size(), 30);
      backend->SoftCap(capped.data(), capped.size(), 30);
      auto scaled = RandomFloats(cols, 11, magnitude);
      const auto before = scaled;
      backend->Scale(scaled.data(), scaled.size(), 1.7f);
      for (size_t i = 0; i < scaled.size(); ++i) {
        ASSERT_NEAR(capped[i], expected_capped[i], 30 * 4 * 0x1p-23);
        ASSERT_EQ(scaled[i], before[i] * 1.7f);
      }
    }
  }
  for (const int head_dim : {2, 20, 64, 80}) {
    const int stride = 3 * head_dim + 5;
    auto x = RandomFloats(4 * stride, 12);
    auto expected = x;
    const auto weight = RandomFloats(head_dim, 13);
    reference->NormHeads(expected.data(), 4, stride, 3, head_dim, weight.data(),
                         1e-5f);
    backend->NormHeads(x.data(), 4, stride, 3, head_dim, weight.data(), 1e-5f);
    for (size_t i = 0; i < x.size(); ++i) {
      const bool is_gap = static_cast<int>(i) % stride >= 3 * head_dim;
      ASSERT_NEAR(x[i], expected[i], is_gap ? 0.0 : 1e-5)
          << "head_dim " << head_dim;
    }
  }
}

inline void ExpectLayerNormAccurate(Backend* backend) {
  const auto reference = MakeBackend("reference");
  for (const int cols : {1, 2, 17, 300, 1300}) {
    // What is added to all elements of a row is taken away again.
    for (const float added : {0.0f, 3.0f}) {
      auto x = RandomFloats(3 * cols, 14);
      for (float& value : x) value += added;
      const auto weight = RandomFloats(cols, 15);
      const auto bias = RandomFloats(cols, 16);
      std::vector<float> expected(x.size(), NAN);
      std::vector<float> actual(x.size(), NAN);
      reference->LayerNorm(x.data(), 3, cols, weight.data(), bias.data(), 1e-3f,
                           expected.data());
      backend->LayerNorm(x.data(), 3, cols, weight.data(), bias.data(), 1e-3f,
                         actual.data());
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], 2e-5)
            << "cols " << cols << " added " << added;
      }
      backend->LayerNorm(x.data(), 3, cols, weight.data(), bias.data(), 1e-3f,
                         x.data());
      ASSERT_TRUE(EqualBits(x.data(), actual.data(), x.size())) << "in place";
    }
  }
}

inline void ExpectGeluAccurate(Backend* backend) {
  const auto reference = MakeBackend("reference");
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
    for (const float magnitude : {1e-3f, 1.0f, 6.0f, 20.0f, 1e4f}) {
      auto x = RandomFloats(3 * 301, 17, magnitude);
      auto expected = x;
      reference->Gelu(expected.data(), 3, 301, form);
      backend->Gelu(x.data(), 3, 301, form);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(
            x[i], expected[i],
            1e-6 * std::fabs(expected[i]) + 1e-6 * std::fmin(magnitude, 1.0f))
            << "magnitude " << magnitude;
      }
    }
    std::vector<float> ends = {0.0f, -0.0f, INFINITY, 90.0f, -90.0f, NAN};
    backend->Gelu(ends.data(), 1, static_cast<int>(ends.size()), form);
    EXPECT_EQ(ends[0], 0.0f);
    EXPECT_EQ(ends[1], 0.0f);
    EXPECT_EQ(ends[2], INFINITY);
    EXPECT_EQ(ends[3], 90.0f);
    EXPECT_NEAR(ends[4], 0.0f, 1e-30f);
    EXPECT_TRUE(std::isnan(ends[5]));
  }
}

// Rows alone and in batches of every size up to nine.
inline void ExpectNormAndGeluInvariant(Backend* backend) {
  constexpr int kRows = 9;
  for (const int cols : {1, 3, 17, 100, 344}) {
    const size_t width = static_cast<size_t>(cols);
    const auto x = RandomFloats(kRows * width, 18);
    const auto weight = RandomFloats(width, 19);
    const auto bias = RandomFloats(width, 20);
    const auto run = [&](size_t first, int rows) {
      std::vector<std::vector<float>> results;
      const std::vector<float> in(
          x.begin() + static_cast<std::ptrdiff_t>(first * width), x.end());
      results.emplace_back(static_cast<size_t>(rows) * width);
      backend->LayerNorm(in.data(), rows, cols, weight.data(), bias.data(),
                         1e-5f, results.back().data());
      for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
        results.push_back(in);
        backend->Gelu(results.back().data(), rows, cols, form);
      }
      return results;
    };
    std::vector<std::vector<std::vector<float>>> alone;
    for (size_t row = 0; row < kRows; ++row) alone.push_back(run(row, 1));
    for (int rows = 2; rows <= kRows; ++rows) {
      const size_t first = static_cast<size_t>(kRows - rows);
      const auto together = run(first, rows);
      for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
        for (size_t op = 0; op < together.size(); ++op) {
          ASSERT_TRUE(EqualBits(together[op].data() + i * width,
                                alone[first + i][op].data(), width))
              << "op " << op << ", " << rows << " rows of " << cols;
        }
      }
    }
  }
}

}  // namespace nacre::kernels

#endif  // TESTS_KERNELS_RULE_CHECKS_H_
