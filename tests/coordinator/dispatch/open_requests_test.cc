#include "coordinator/dispatch/open_requests.h"

#include <gtest/gtest.h>

#include <string>

namespace nacre::coordinator {
namespace {

RequestSpec WaitingRequest(const std::string& id,
                           int64_t deadline_ns = kNever) {
  RequestSpec request;
  request.request_id = id;
  request.deadline_ns = deadline_ns;
  return request;
}

TEST(OpenRequestsTest, ANameIsFreeWhenItsLastChoiceHasEnded) {
  OpenRequests open;
  EXPECT_FALSE(open.Has("r"));
  open.Add(1, WaitingRequest("r"));
  open.Add(2, WaitingRequest("r"));
  open.Remove(1, WaitingRequest("r"));
  EXPECT_TRUE(open.Has("r"));
  open.Remove(2, WaitingRequest("r"));
  EXPECT_FALSE(open.Has("r"));
}

TEST(OpenRequestsTest, DeadlinesComeInOrder) {
  OpenRequests open;
  EXPECT_EQ(open.next_deadline_ns(), kNever);
  open.Add(1, WaitingRequest("a", 300));
  open.Add(2, WaitingRequest("b", 200));
  open.Add(3, WaitingRequest("c"));
  EXPECT_EQ(open.next_deadline_ns(), 200);
  EXPECT_EQ(open.Overdue(199), absl::nullopt);
  EXPECT_EQ(open.Overdue(200), 2u);
  open.Remove(2, WaitingRequest("b", 200));
  EXPECT_EQ(open.Overdue(200), absl::nullopt);
  EXPECT_EQ(open.Overdue(300), 1u);
  open.Remove(1, WaitingRequest("a", 300));
  EXPECT_EQ(open.Overdue(kNever), absl::nullopt);
}

}  // namespace
}  // namespace nacre::coordinator
