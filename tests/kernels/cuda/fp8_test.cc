#include "kernels/cuda/fp8.h"

#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"

namespace nacre::kernels::cuda {
namespace {

TEST(Fp8Test, KnownValues) {
  EXPECT_EQ(FromE4m3(0x00), 0);
  EXPECT_EQ(FromE4m3(0x01), 0x1p-9f);
  EXPECT_EQ(FromE4m3(0x07), 7 * 0x1p-9f);
  EXPECT_EQ(FromE4m3(0x08), 0x1p-6f);
  EXPECT_EQ(FromE4m3(0x38), 1);
  EXPECT_EQ(FromE4m3(0x3c), 1.5f);
  EXPECT_EQ(FromE4m3(0x7e), 448);
  EXPECT_EQ(FromE4m3(0xfe), -448);
  EXPECT_TRUE(std::isnan(FromE4m3(0x7f)));
  EXPECT_TRUE(std::isnan(FromE4m3(0xff)));
}

TEST(Fp8Test, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    EXPECT_EQ(ToE4m3(FromE4m3(static_cast<uint8_t>(code))), code);
  }
}

// Between two neighbours: the nearer, the even one in the middle.
TEST(Fp8Test, RoundsToTheNearest) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = FromE4m3(static_cast<uint8_t>(code));
    const float high = FromE4m3(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(ToE4m3(middle), even) << code;
    EXPECT_EQ(ToE4m3(std::nextafter(middle, low)), code);
    EXPECT_EQ(ToE4m3(std::nextafter(middle, high)), code + 1);
    EXPECT_EQ(ToE4m3(-middle), even | 0x80);
  }
}

TEST(Fp8Test, TooLargeBecomesTheLargest) {
  EXPECT_EQ(ToE4m3(449), 0x7e);
  EXPECT_EQ(ToE4m3(-1e30f), 0xfe);
  EXPECT_EQ(ToE4m3(INFINITY), 0x7e);
}

}  // namespace
}  // namespace nacre::kernels::cuda
