#include "worker/tensors/latest_queue.h"

#include <gtest/gtest.h>

#include <memory>

namespace nacre::worker {
namespace {

std::shared_ptr<const Tensor> Make(uint64_t channel, int position,
                                   int layer = 0, bool after_norm = true) {
  Tensor tensor;
  tensor.tag = {channel, 1, position, layer, after_norm};
  return std::make_shared<const Tensor>(std::move(tensor));
}

TEST(LatestQueue, ANewerTensorTakesThePlaceOfTheOneThatWaits) {
  LatestQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.Pop(), nullptr);
  EXPECT_FALSE(queue.Push(Make(1, 10)));
  EXPECT_FALSE(queue.Push(Make(2, 20)));
  EXPECT_TRUE(queue.Push(Make(1, 11)));
  EXPECT_TRUE(queue.Push(Make(1, 12)));
  // In its turn: what publishes often does not come later for it.
  EXPECT_EQ(queue.Pop()->tag.position, 12);
  EXPECT_EQ(queue.Pop()->tag.position, 20);
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.Push(Make(1, 13)));
  EXPECT_EQ(queue.Pop()->tag.position, 13);
}

TEST(LatestQueue, LayersAndSidesOfTheNormDoNotReplaceEachOther) {
  LatestQueue queue;
  EXPECT_FALSE(queue.Push(Make(1, 10, 0)));
  EXPECT_FALSE(queue.Push(Make(1, 10, 5)));
  EXPECT_FALSE(queue.Push(Make(1, 10, 0, /*after_norm=*/false)));
  EXPECT_TRUE(queue.Push(Make(1, 11, 5)));
  EXPECT_EQ(queue.Pop()->tag, (TensorTag{1, 1, 10, 0, true}));
  EXPECT_EQ(queue.Pop()->tag, (TensorTag{1, 1, 11, 5, true}));
  EXPECT_EQ(queue.Pop()->tag, (TensorTag{1, 1, 10, 0, false}));
}

TEST(LatestQueue, ForgetsAChannelThatIsNotReadAnyMore) {
  LatestQueue queue;
  queue.Push(Make(1, 10));
  queue.Push(Make(1, 10, 3));
  queue.Push(Make(2, 20));
  queue.Remove(1);
  EXPECT_EQ(queue.Pop()->tag.channel, 2u);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace nacre::worker
