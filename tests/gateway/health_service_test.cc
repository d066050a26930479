// What /health says of the coordinators.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "tests/gateway/gateway_fixture.h"

namespace nacre::gateway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HealthServiceTest : public GatewayServiceTest {
 protected:
  // /health, once its status is that one.
  std::string HealthWith(int status) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    std::string answer;
    do {
      answer = Get(server_->address(), "/health");
    } while (StatusOf(answer) != status && absl::Now() < deadline);
    return answer;
  }
};

// The coordinators' file of tokens changes first.
TEST_F(HealthServiceTest, AChangedTokenOfTheGatewayIsShownFromThenOn) {
  // The client asks for it until it is closed, after this test's end.
  const auto is_new = std::make_shared<std::atomic<bool>>(false);
  client_options_.poll_period = absl::Milliseconds(1);
  client_options_.token = [is_new]() -> std::string {
    return *is_new ? "second" : "first";
  };
  AddCoordinator([](auto*, const auto&, auto*) { return grpc::Status::OK; });
  coordinators_[0]->RequireToken("first");
  StartGateway();
  EXPECT_EQ(StatusOf(HealthWith(200)), 200);
  coordinators_[0]->RequireToken("second");
  EXPECT_THAT(HealthWith(503),
              AllOf(HasSubstr("coordinator " + coordinators_[0]->address()),
                    HasSubstr("UNAUTHENTICATED: the token is not accepted")));
  *is_new = true;
  EXPECT_EQ(StatusOf(HealthWith(200)), 200);
}

TEST_F(HealthServiceTest, SaysWhyTheLastCoordinatorTakesNoRequests) {
  client_options_.poll_period = absl::Milliseconds(1);
  StartGateway();
  coordinators_[0]->Drain(1000000);
  EXPECT_THAT(HealthWith(503), HasSubstr("UNAVAILABLE: draining"));
}

}  // namespace
}  // namespace nacre::gateway
