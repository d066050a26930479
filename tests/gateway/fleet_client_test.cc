#include "gateway/fleet_client.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/gateway/fake_admin.h"

namespace nacre::gateway {
namespace {

class FleetClientTest : public ::testing::Test {
 protected:
  ~FleetClientTest() override {
    if (client_ != nullptr) client_->Close();
    loop_.Stop();
  }

  std::vector<CoordinatorView> Ask(const std::string& token = "") {
    if (client_ == nullptr) {
      // No machine is too busy for it.
      options_.timeout = absl::Minutes(1);
      client_ = std::make_unique<FleetClient>(options_, &loop_);
    }
    std::vector<CoordinatorView> views;
    absl::Notification done;
    loop_.Post([&] {
      client_->Ask(token, [&](std::vector<CoordinatorView> answer) {
        views = std::move(answer);
        done.Notify();
      });
    });
    done.WaitForNotification();
    return views;
  }

  EventLoop loop_;
  FleetClient::Options options_;
  std::unique_ptr<FleetClient> client_;
};

TEST_F(FleetClientTest, EachCoordinatorIsAskedForAllOfIt) {
  const FakeAdmin one;
  const FakeAdmin two;
  options_.addresses = {one.address(), two.address()};
  const auto views = Ask("secret");
  ASSERT_EQ(views.size(), 2u);
  for (const CoordinatorView& view : views) {
    EXPECT_TRUE(view.status.ok()) << view.status;
    EXPECT_EQ(view.info.version(), "1.2.3");
    EXPECT_EQ(view.workers.workers_size(), 2);
    EXPECT_EQ(view.sessions.sessions_size(), 2);
  }
  EXPECT_EQ(views[0].address, one.address());
  EXPECT_EQ(views[1].address, two.address());
  EXPECT_EQ(one.authorization(), "Bearer secret");
  Ask();
  EXPECT_EQ(two.authorization(), "");
}

TEST_F(FleetClientTest, OneThatFailsShowsNothingButItsStatus) {
  const FakeAdmin good;
  const FakeAdmin bad(grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "no"));
  options_.addresses = {good.address(), bad.address(), "127.0.0.1:1"};
  const auto views = Ask();
  ASSERT_EQ(views.size(), 3u);
  EXPECT_TRUE(views[0].status.ok());
  EXPECT_TRUE(absl::IsPermissionDenied(views[1].status)) << views[1].status;
  EXPECT_EQ(views[1].workers.workers_size(), 0);
  EXPECT_TRUE(absl::IsUnavailable(views[2].status)) << views[2].status;
}

TEST_F(FleetClientTest, OpenQuestionsAreBounded) {
  const FakeAdmin admin;
  options_.addresses = {admin.address()};
  Ask();
  int asked = 0;
  int answers = 0;
  absl::Notification done;
  loop_.Post([&] {
    while (client_->Ask("", [&](const std::vector<CoordinatorView>&) {
      if (++answers == FleetClient::kMaxOpen) done.Notify();
    })) {
      ++asked;
    }
  });
  done.WaitForNotification();
  EXPECT_EQ(asked, FleetClient::kMaxOpen);
  EXPECT_EQ(Ask().size(), 1u);
}

TEST_F(FleetClientTest, WithoutCoordinatorsTheAnswerIsEmpty) {
  EXPECT_TRUE(Ask().empty());
}

TEST_F(FleetClientTest, AfterItsEndNothingIsAsked) {
  const FakeAdmin admin;
  options_.addresses = {admin.address()};
  Ask();
  client_->Close();
  client_->Close();
  EXPECT_TRUE(absl::IsUnavailable(Ask()[0].status));
}

}  // namespace
}  // namespace nacre::gateway
