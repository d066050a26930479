#include "common/philox.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre {
namespace {

using ::testing::ElementsAre;

// Known answers of the Random123 library (kat_vectors, philox 4x32 10).
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_THAT(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                         {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxTest, EveryArgumentOfNoiseBlockMatters) {
  const std::set<PhiloxBlock> blocks = {
      NoiseBlock(1, 2, 3, NoisePurpose::kSample),
      NoiseBlock(5, 2, 3, NoisePurpose::kSample),
      NoiseBlock(uint64_t{1} << 32 | 1, 2, 3, NoisePurpose::kSample),
      NoiseBlock(1, 5, 3, NoisePurpose::kSample),
      NoiseBlock(1, 2, 5, NoisePurpose::kSample),
      NoiseBlock(1, 3, 2, NoisePurpose::kSample),
      NoiseBlock(1, 2, 3, NoisePurpose::kDraft),
      NoiseBlock(1, 2, 3, NoisePurpose::kAccept),
      NoiseBlock(1, 2, 3, NoisePurpose::kResidual)};
  EXPECT_EQ(blocks.size(), 9u);
  EXPECT_EQ(blocks.count(NoiseBlock(1, 2, 3, NoisePurpose::kSample)), 1u);
}

TEST(PhiloxTest, SeedAndPositionGoWhereTheCounterSaysTheyGo) {
  EXPECT_EQ(NoiseBlock(0x299f31d0a4093822, 7, 9, NoisePurpose::kAccept),
            Philox4x32({7, 9, 2, 0}, {0xa4093822, 0x299f31d0}));
}

}  // namespace
}  // namespace nacre
