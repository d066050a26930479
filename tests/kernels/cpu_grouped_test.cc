// Weights in groups (kernels/weight_groups.h) as the CPU backend keeps them
// (kernels/cpu/grouped_matrix.h): the same products, bit by bit, as of their
// values in float32.

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/host_memory.h"
#include "kernels/weight_groups.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

// A file that has blocks as they are taken apart.
void SplitAsItIs(const uint8_t* block, SplitBlock* out) {
  std::memcpy(out, block, sizeof(*out));
}

struct Kind {
  const char* name;
  WeightGroups groups;
};

WeightGroups Groups(int block, int group, int low_bits, int high_bits,
                    bool has_steps, bool has_offsets, int zero) {
  return {sizeof(SplitBlock), block,       group, low_bits,   high_bits,
          has_steps,          has_offsets, zero,  SplitAsItIs};
}

// Those of GGUF.
const Kind kKinds[] = {
    {"q4_0", Groups(32, 32, 4, 0, false, false, 8)},
    {"q4_1", Groups(32, 32, 4, 0, false, true, 0)},
    {"q5_0", Groups(32, 32, 4, 1, false, false, 16)},
    {"q5_1", Groups(32, 32, 4, 1, false, true, 0)},
    {"q8_0", Groups(32, 32, 8, 0, false, false, 128)},
    {"q2_k", Groups(256, 16, 2, 0, true, true, 0)},
    {"q3_k", Groups(256, 16, 2, 1, true, false, 4)},
    {"q4_k", Groups(256, 32, 4, 0, true, true, 0)},
    {"q5_k", Groups(256, 32, 4, 1, true, true, 0)},
    {"q6_k", Groups(256, 16, 4, 2, true, false, 32)},
};

// A matrix of random blocks, and its values.
class GroupedRows : public RowSource {
 public:
  GroupedRows(const WeightGroups& groups, int rows, int cols, uint32_t seed)
      : groups_(groups), rows_(rows), cols_(cols), given_back(rows) {
    std::mt19937 random(seed);
    const auto draw = [&](uint32_t count) {
      return static_cast<uint32_t>(random() % count);
    };
    // Scales of f16: of either sign, few of them 0 or below the normal ones.
    const auto scale = [&] {
      const uint32_t exponent = draw(16) == 0 ? draw(2) : 5 + draw(12);
      return static_cast<uint16_t>(draw(2) << 15 | exponent << 10 | draw(1024));
    };
    blocks_.resize(static_cast<size_t>(rows) * (cols / groups.block));
    values_.resize(static_cast<size_t>(rows) * cols);
    for (SplitBlock& block : blocks_) {
      for (uint8_t& integer : block.integers) {
        integer = static_cast<uint8_t>(
            draw(1u << (groups.low_bits + groups.high_bits)));
      }
      block.scale = scale();
      block.offset_scale = scale();
      for (int8_t& step : block.steps) {
        step = static_cast<int8_t>(groups.has_offsets ? draw(64) : draw(256));
      }
      for (uint8_t& offset : block.offsets) {
        offset = static_cast<uint8_t>(draw(64));
      }
    }
    GroupedWeights(groups, blocks_.data(), blocks_.size(), values_.data());
  }

  const void* Read(int first, int count,
                   std::vector<char>* scratch) const override {
    const char* const from = reinterpret_cast<const char*>(
        values_.data() + size_t{1} * first * cols_);
    scratch->assign(from, from + sizeof(float) * count * cols_);
    return scratch->data();
  }
  const void* Blocks(int row) const override {
    return blocks_.data() + static_cast<size_t>(row) * (cols_ / groups_.block);
  }
  void GiveBack(int first, int count) const override {
    for (int i = first; i < first + count; ++i) ++given_back[i];
  }

  HostMatrix matrix() const {
    return {DType::kF32, nullptr, rows_, cols_, this, &groups_};
  }
  HostMatrix in_floats() const {
    return {DType::kF32, values_.data(), rows_, cols_};
  }
  const std::vector<float>& values() const { return values_; }

 private:
  const WeightGroups groups_;
  const int rows_;
  const int cols_;
  std::vector<SplitBlock> blocks_;
  std::vector<float> values_;

 public:
  mutable std::vector<int> given_back;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> Products(Backend* backend,
                            absl::Span<const HostMatrix> parts, int rows) {
  const auto packed = backend->Pack(parts);
  EXPECT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ((*packed)->size_bytes(), backend->PackedBytes(parts));
  const auto x = RandomFloats(static_cast<size_t>(rows) * (*packed)->cols(), 5);
  std::vector<float> y(static_cast<size_t>(rows) * (*packed)->rows(), -1.0f);
  backend->MatMul(x.data(), rows, **packed, y.data());
  return y;
}

class CpuGroupedTest : public EveryTargetTest {};

// What one input is multiplied by is the weight.
TEST_P(CpuGroupedTest, WeightsAreExact) {
  constexpr int kCols = 512;
  for (const Kind& kind : kKinds) {
    const GroupedRows rows(kind.groups, 83, kCols, 1);
    const auto backend = MakeBackend("cpu");
    const auto packed = *backend->Pack({rows.matrix()});
    std::vector<float> x(size_t{kCols} * kCols, 0.0f);
    for (size_t i = 0; i < kCols; ++i) x[i * kCols + i] = 1.0f;
    std::vector<float> y(size_t{kCols} * 83);
    backend->MatMul(x.data(), kCols, *packed, y.data());
    for (size_t row = 0; row < 83; ++row) {
      for (size_t col = 0; col < kCols; ++col) {
        ASSERT_EQ(y[col * 83 + row], rows.values()[row * kCols + col])
            << kind.name << " [" << row << ", " << col << "]";
      }
    }
    EXPECT_EQ(rows.given_back, std::vector<int>(83, 1)) << kind.name;
  }
}

// Of each kind alone, and stacked on the one before.
TEST_P(CpuGroupedTest, ProductsHaveTheBitsOfFloats) {
  const Kind* before = &kKinds[9];
  for (const Kind& kind : kKinds) {
    // Of an odd number of pieces where blocks allow it.
    const bool is_odd = kind.groups.block == 32 && before->groups.block == 32;
    const int cols = is_odd ? 800 : 768;
    const GroupedRows first(before->groups, 70, cols, 2);
    const GroupedRows second(kind.groups, 131, cols, 3);
    const GroupedRows third(kind.groups, 1, cols, 4);
    const std::vector<HostMatrix> parts = {first.matrix(), second.matrix(),
                                           third.matrix()};
    const std::vector<HostMatrix> floats = {
        first.in_floats(), second.in_floats(), third.in_floats()};
    const auto backend = MakeBackend("cpu", "auto", AllowedCores(2));
    for (const int rows : {1, 2, 3, 5, 6, 7, 12, 13, 16, 47, 49, 100}) {
      EXPECT_TRUE(SameBits(Products(backend.get(), parts, rows),
                           Products(backend.get(), floats, rows)))
          << before->name << " and " << kind.name << ", " << rows << " rows";
      EXPECT_TRUE(SameBits(Products(backend.get(), {&parts[1], 1}, rows),
                           Products(backend.get(), {&floats[1], 1}, rows)))
          << kind.name << ", " << rows << " rows";
    }
    before = &kind;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, CpuGroupedTest,
                         ::testing::ValuesIn(SupportedSimdTargets()),
                         SimdTargetName);

// Bits of memory a weight.
TEST(CpuGroupedMemoryTest, IsWhatTheFileHasOrLittleMore) {
  const double kBits[] = {4.5,   5,      5.5,   6,     8.5,
                          3.125, 3.5625, 4.625, 5.625, 6.5625};
  const auto backend = MakeBackend("cpu");
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    const GroupedRows rows(kKinds[i].groups, 256, 512, 1);
    EXPECT_EQ(backend->PackedBytes({rows.matrix()}) * 8.0 / (256 * 512),
              kBits[i])
        << kKinds[i].name;
  }
}

// Of any other type, and beside weights that are in no groups, they are the
// floats that they stand for.
TEST(CpuGroupedTypesTest, OtherTypesAreMadeOfTheValues) {
  constexpr int kCols = 256;
  const GroupedRows rows(kKinds[7].groups, 83, kCols, 1);
  const HostMatrix grouped[] = {rows.matrix(), rows.in_floats()};
  const HostMatrix floats[] = {rows.in_floats(), rows.in_floats()};
  for (const char* kind : {"cpu", "reference"}) {
    for (const char* type :
         {"auto", "f32", "bf16", "bf16a16", "int8", "int4"}) {
      const auto backend = MakeBackend(kind, type);
      EXPECT_TRUE(SameBits(Products(backend.get(), grouped, 9),
                           Products(backend.get(), floats, 9)))
          << kind << " " << type;
      const bool stays =
          kind == std::string("cpu") && type == std::string("auto");
      EXPECT_EQ(backend->PackedBytes({grouped, 1}) <
                    backend->PackedBytes({floats, 1}),
                stays)
          << kind << " " << type;
    }
  }
}

TEST(CpuGroupedTypesTest, TablesStayInTheirBlocks) {
  for (const Kind& kind : kKinds) {
    const GroupedRows rows(kind.groups, 41, 512, 1);
    EXPECT_EQ(HostTable::Bytes(rows.matrix()),
              static_cast<int64_t>(41 * 512 / kind.groups.block *
                                   sizeof(SplitBlock)));
    for (const char* backend_kind : {"cpu", "reference"}) {
      const auto backend = MakeBackend(backend_kind);
      const auto table = *backend->PackTable(rows.matrix());
      const std::vector<int32_t> ids = {40, 0, 7, 7};
      std::vector<float> out(ids.size() * 512);
      backend->Embed(*table, ids, out.data());
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(std::memcmp(&out[i * 512],
                              &rows.values()[static_cast<size_t>(ids[i]) * 512],
                              512 * sizeof(float)),
                  0)
            << kind.name << " " << ids[i];
      }
    }
  }
}

}  // namespace
}  // namespace nacre::kernels
