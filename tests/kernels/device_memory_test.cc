#include "kernels/device_memory.h"

#include "gtest/gtest.h"

namespace nacre::kernels {
namespace {

TEST(DeviceMemoryTest, WithoutALimitWhatIsFreeIsAvailable) {
  const DeviceMemory memory = {8000, 5000, 100, {}};
  EXPECT_EQ(memory.available(), 5000);
  EXPECT_EQ(memory.ToString(), "5000 of 8000 are free");
}

TEST(DeviceMemoryTest, ALimitIsOfWhatTheBackendUses) {
  DeviceMemory memory = {8000, 5000, 100, 4000};
  EXPECT_EQ(memory.available(), 3900);
  EXPECT_EQ(memory.ToString(),
            "5000 of 8000 are free; 100 of the limit of 4000 are used");
  memory.limit = 7000;  // others use more
  EXPECT_EQ(memory.available(), 5000);
  memory.limit = 50;
  EXPECT_EQ(memory.available(), 0);
}

}  // namespace
}  // namespace nacre::kernels
