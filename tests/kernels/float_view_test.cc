#include "kernels/float_view.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/weight_type.h"
#include "tests/testing/device_backend.h"

namespace nacre::kernels {
namespace {

using Values = std::vector<float>;
using nacre::testing::DeviceBackend;

TEST(FloatViewTest, OfTheHostIsReadInPlace) {
  const Values values = {1, 2, 3, 4};
  const FloatView view(values);
  EXPECT_EQ(view.location(), Location::kHost);
  EXPECT_EQ(view.host().data(), values.data());
  Values scratch;
  EXPECT_EQ(view.OnHost(&scratch).data(), values.data());
  EXPECT_TRUE(scratch.empty());
  const FloatView part = view.subview(1, 2);
  EXPECT_EQ(Values(part.host().begin(), part.host().end()), (Values{2, 3}));
  Values copy(2);
  part.CopyTo(copy.data());
  EXPECT_EQ(copy, (Values{2, 3}));
}

TEST(FloatViewTest, OfABackendOnTheHostIsTheHosts) {
  ReferenceBackend backend(WeightType::kAuto);
  const Values values = {1, 2};
  const FloatView view(&backend, values.data(), values.size());
  EXPECT_EQ(view.location(), Location::kHost);
  EXPECT_EQ(view.host().data(), values.data());
}

TEST(FloatViewTest, OfADeviceIsCopiedOnlyWhereTheHostReadsIt) {
  DeviceBackend backend;
  const Values values = {1, 2, 3, 4};
  const FloatView view(&backend, values.data(), values.size());
  EXPECT_EQ(view.location(), Location::kDevice);
  EXPECT_EQ(view.device(), &backend);
  const FloatView part = view.subview(2, 2);
  EXPECT_EQ(part.data(), values.data() + 2);
  EXPECT_EQ(backend.num_copies, 0);
  Values scratch;
  const absl::Span<const float> read = part.OnHost(&scratch);
  EXPECT_EQ(Values(read.begin(), read.end()), (Values{3, 4}));
  EXPECT_EQ(read.data(), scratch.data());
  EXPECT_EQ(backend.num_copies, 1);
  EXPECT_EQ(backend.num_bytes, 2 * sizeof(float));
}

TEST(FloatViewTest, NothingIsOnTheHostAndEmpty) {
  const FloatView none;
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.host().empty());
  none.CopyTo(nullptr);
}

TEST(FloatViewTest, OurOwnBugsAreFatal) {
  DeviceBackend backend;
  const Values values = {1, 2};
  const FloatView view(&backend, values.data(), values.size());
  EXPECT_DEATH(view.host(), "memory of a device is read as the host's");
  EXPECT_DEATH(view.subview(1, 2), "a view of more than there is");
}

}  // namespace
}  // namespace nacre::kernels
