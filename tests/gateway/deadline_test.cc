#include "gateway/deadline.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

namespace nacre::gateway {
namespace {

class DeadlineTest : public ::testing::Test {
 protected:
  boost::asio::io_context io_;
  int passed_ = 0;
  Deadline deadline_{io_, [this] { ++passed_; }};
  std::shared_ptr<int> owner_ = std::make_shared<int>();
};

TEST_F(DeadlineTest, PassesOnceForEachSet) {
  deadline_.Set(absl::ZeroDuration(), owner_);
  io_.run();
  EXPECT_EQ(passed_, 1);
  io_.restart();
  deadline_.Set(absl::ZeroDuration(), owner_);
  io_.run();
  EXPECT_EQ(passed_, 2);
}

TEST_F(DeadlineTest, IsBroughtForward) {
  deadline_.Set(absl::Hours(1), owner_);
  deadline_.Set(absl::ZeroDuration(), owner_);
  io_.run();
  EXPECT_EQ(passed_, 1);
}

TEST_F(DeadlineTest, IsPutOff) {
  deadline_.Set(absl::ZeroDuration(), owner_);
  deadline_.Set(absl::Hours(1), owner_);
  EXPECT_EQ(io_.run_one(), 1u);  // the first moment: it waits for the second
  EXPECT_EQ(passed_, 0);
  EXPECT_FALSE(io_.stopped());
  deadline_.Cancel();
  io_.run();
  EXPECT_EQ(passed_, 0);
}

TEST_F(DeadlineTest, WhatWaitsKeepsTheOwnerUntilItIsCancelled) {
  const std::weak_ptr<int> owner = owner_;
  deadline_.Set(absl::Hours(1), std::exchange(owner_, nullptr));
  EXPECT_FALSE(owner.expired());
  deadline_.Cancel();
  io_.run();
  EXPECT_TRUE(owner.expired());
  EXPECT_EQ(passed_, 0);
  // For good.
  deadline_.Set(absl::ZeroDuration(), std::make_shared<int>());
  io_.restart();
  EXPECT_EQ(io_.run(), 0u);
  EXPECT_EQ(passed_, 0);
}

}  // namespace
}  // namespace nacre::gateway
