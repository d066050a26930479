#include "worker/process/coordinators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "common/rpc/server.h"
#include "tests/worker/fake_registry.h"

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kCapacity = 1600;

// A coordinator that does what the test says.
struct FakeCoordinator {
  explicit FakeCoordinator(uint64_t number)
      : id(number), server(*rpc::RpcServer::Start({}, {&registry})) {}

  // Takes the worker on; its first heartbeat.
  v1::Heartbeat Accept() {
    EXPECT_TRUE(registry.NextEvent().has_hello());
    registry.Ask(1, /*attachment=*/id + 100, id);
    EXPECT_TRUE(registry.NextEvent().has_vocabulary_proof());
    registry.Accept();
    return Heartbeat();
  }
  v1::Heartbeat Heartbeat() {
    const v1::WorkerEvent event = registry.NextEvent();
    EXPECT_TRUE(event.has_heartbeat()) << event.ShortDebugString();
    return event.heartbeat();
  }
  void Lose() {
    registry.Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"));
  }

  const uint64_t id;
  FakeRegistry registry;
  std::unique_ptr<rpc::RpcServer> server;
};

class CoordinatorsTest : public ::testing::Test {
 protected:
  Coordinators::Options Options(const std::string& list) {
    Coordinators::Options options;
    options.names = *ParseCoordinators(list);
    Registration::Options& registration = options.registration;
    registration.hello.set_protocol_version(2);
    registration.hello.set_tokenizer_vocab_size(1);
    registration.hello.set_kv_capacity_tokens(kCapacity);
    registration.vocabulary_hash = [](int) { return "hash"; };
    registration.heartbeat = [](uint64_t) { return v1::Heartbeat(); };
    registration.kept_lists = [](uint64_t) { return uint64_t{0}; };
    registration.on_attachment = [](uint64_t, uint64_t) {};
    registration.on_lost = [this](uint64_t coordinator) {
      absl::MutexLock lock(&mu_);
      lost_.push_back(coordinator);
    };
    registration.on_drain = [] {};
    // Only what the test waits for.
    registration.heartbeat_period = absl::Hours(1);
    registration.min_backoff = absl::Milliseconds(1);
    registration.max_backoff = absl::Milliseconds(4);
    options.on_refused = [this](const absl::Status& status) {
      absl::MutexLock lock(&mu_);
      refused_ = status;
    };
    options.resolve =
        [this](const std::string&,
               const std::string&) -> absl::StatusOr<std::vector<std::string>> {
      absl::MutexLock lock(&mu_);
      ++num_resolved_;
      return resolved_;
    };
    options.resolve_period = absl::Milliseconds(1);
    return options;
  }
  std::string Both() {
    return one_.server->address() + "," + two_.server->address();
  }
  static wire::KvReport Report(const v1::Heartbeat& answered, int64_t reserved,
                               int64_t need = 0) {
    wire::KvReport report;
    report.serial = answered.kv_grant().serial();
    report.reserved = reserved;
    report.need = report.wanted = need;
    report.need_session = need == 0 ? 0 : 7;
    report.sessions = reserved == 0 ? 0 : 1;
    return report;
  }
  void AwaitResolved(int more) {
    absl::MutexLock lock(&mu_);
    const int count = num_resolved_ + more;
    const auto resolved = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return num_resolved_ >= count;
    };
    mu_.Await(absl::Condition(&resolved));
  }
  void SetResolved(std::vector<std::string> addresses) {
    absl::MutexLock lock(&mu_);
    resolved_ = std::move(addresses);
  }

  FakeCoordinator one_{1};
  FakeCoordinator two_{2};
  absl::Mutex mu_;
  std::vector<uint64_t> lost_ ABSL_GUARDED_BY(mu_);
  absl::Status refused_ ABSL_GUARDED_BY(mu_);
  int num_resolved_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> resolved_ ABSL_GUARDED_BY(mu_);
};

TEST_F(CoordinatorsTest, OneHasAllWithoutAGrant) {
  const Coordinators coordinators(Options(one_.server->address()));
  const v1::WorkerEvent hello = one_.registry.NextEvent();
  EXPECT_FALSE(hello.hello().grants_kv());
  EXPECT_EQ(hello.hello().kv_capacity_tokens(), uint64_t{kCapacity});
  one_.registry.Ask(1);
  one_.registry.NextEvent();
  one_.registry.Accept();
  EXPECT_FALSE(one_.Heartbeat().has_kv_grant());
}

TEST_F(CoordinatorsTest, TheKvIsSharedAmongThoseThatAreThere) {
  Coordinators coordinators(Options(Both()));
  const v1::Heartbeat all = one_.Accept();
  EXPECT_EQ(all.kv_grant().tokens(), uint64_t{kCapacity});
  coordinators.OnReport(1, Report(all, 160));
  // The first keeps what it has until it answers.
  const v1::Heartbeat none = two_.Accept();
  EXPECT_EQ(none.kv_grant().tokens(), 0u);
  EXPECT_EQ(none.other_sessions(), 1u);
  // A request waits: both hear at once.
  coordinators.OnReport(2, Report(none, 0, 640));
  const v1::Heartbeat less = one_.Heartbeat();
  EXPECT_LT(less.kv_grant().tokens(), uint64_t{kCapacity - 640} + 1);
  coordinators.OnReport(1, Report(less, 160));
  const v1::Heartbeat room = two_.Heartbeat();
  EXPECT_GE(room.kv_grant().tokens(), 640u);
  EXPECT_LE(room.kv_grant().tokens() + less.kv_grant().tokens(),
            uint64_t{kCapacity});
}

TEST_F(CoordinatorsTest, WhatALostOneHadIsFreeOnceItsSessionsAreClosed) {
  Coordinators coordinators(Options(Both()));
  const v1::Heartbeat all = one_.Accept();
  coordinators.OnReport(1, Report(all, 1600));
  const v1::Heartbeat none = two_.Accept();
  coordinators.OnReport(2, Report(none, 0, 1600));
  one_.Lose();
  EXPECT_EQ(two_.Heartbeat().kv_grant().tokens(), uint64_t{kCapacity});
  absl::MutexLock lock(&mu_);
  EXPECT_THAT(lost_, ElementsAre(1));
}

TEST_F(CoordinatorsTest, ARefusalByOneIsNoEnd) {
  const Coordinators coordinators(Options(Both()));
  two_.Accept();
  EXPECT_TRUE(one_.registry.NextEvent().has_hello());
  const grpc::Status refusal(grpc::StatusCode::FAILED_PRECONDITION, "no");
  one_.registry.Finish(refusal);
  // It asks again.
  EXPECT_TRUE(one_.registry.NextEvent().has_hello());
  {
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(refused_.ok());
  }
  // Now the other one refuses it, too.
  one_.registry.Finish(refusal);
  two_.registry.Finish(refusal);
  absl::MutexLock lock(&mu_);
  const auto refused = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !refused_.ok();
  };
  mu_.Await(absl::Condition(&refused));
  EXPECT_EQ(refused_.message(), "no");
}

TEST_F(CoordinatorsTest, WhoHasAcceptedSinceRefusesNoMore) {
  const Coordinators coordinators(Options(Both()));
  two_.Accept();
  EXPECT_TRUE(one_.registry.NextEvent().has_hello());
  const grpc::Status refusal(grpc::StatusCode::FAILED_PRECONDITION, "no");
  one_.registry.Finish(refusal);
  one_.Accept();
  two_.registry.Finish(refusal);
  EXPECT_TRUE(two_.registry.NextEvent().has_hello());  // it asks again
  absl::MutexLock lock(&mu_);
  EXPECT_TRUE(refused_.ok()) << refused_;
}

TEST_F(CoordinatorsTest, FollowsANameButNoCoordinatorIsLeftWhileItIsThere) {
  SetResolved({one_.server->address()});
  const Coordinators coordinators(Options("dns:name:50051"));
  EXPECT_EQ(one_.Accept().kv_grant().tokens(), uint64_t{kCapacity});
  // Another pod; the first one drains, and still has sessions here.
  SetResolved({two_.server->address()});
  two_.Accept();
  AwaitResolved(2);
  EXPECT_EQ(coordinators.states().size(), 2u);
  one_.Lose();
  while (coordinators.states().size() > 1) AwaitResolved(1);
  EXPECT_EQ(coordinators.states().front().address, two_.server->address());
}

// It answers once the coordinator is left, and not before.
TEST_F(CoordinatorsTest, LeavesWhileTheResolverIsBusy) {
  Coordinators::Options options = Options("dns:name:50051");
  absl::Notification busy;
  int calls = 0;
  options.resolve =
      [&](const std::string&,
          const std::string&) -> absl::StatusOr<std::vector<std::string>> {
    if (++calls == 1) {
      return std::vector<std::string>{one_.server->address()};
    }
    if (calls == 2) busy.Notify();
    one_.registry.AwaitEnded(1);
    return std::vector<std::string>{two_.server->address()};
  };
  {
    const Coordinators coordinators(std::move(options));
    EXPECT_TRUE(one_.registry.NextEvent().has_hello());
    busy.WaitForNotification();
  }
  EXPECT_EQ(one_.registry.num_attached(), 1);
  EXPECT_EQ(two_.registry.num_attached(), 0);
}

TEST_F(CoordinatorsTest, AResolverThatFailsChangesNothing) {
  SetResolved({one_.server->address()});
  Coordinators::Options options = Options("dns:name:50051");
  const auto resolve = options.resolve;
  int calls = 0;
  options.resolve =
      [&, resolve](
          const std::string& host,
          const std::string& port) -> absl::StatusOr<std::vector<std::string>> {
    const auto found = resolve(host, port);
    if (++calls == 1) return found;
    return absl::UnavailableError("no resolver");
  };
  const Coordinators coordinators(std::move(options));
  AwaitResolved(2);
  EXPECT_EQ(coordinators.states().size(), 1u);
}

TEST_F(CoordinatorsTest, TellsWhatEachOfThemHolds) {
  const Coordinators alone(Options(one_.server->address()));
  ASSERT_EQ(alone.states().size(), 1u);
  EXPECT_EQ(alone.states()[0].address, one_.server->address());
  EXPECT_FALSE(alone.states()[0].registered);
  EXPECT_EQ(alone.states()[0].kv_held_tokens, 0);
  one_.Accept();
  EXPECT_TRUE(alone.states()[0].registered);
  EXPECT_EQ(alone.states()[0].kv_held_tokens, kCapacity);
}

TEST_F(CoordinatorsTest, TellsWhatIsGrantedToEachOfSeveral) {
  const Coordinators coordinators(Options(Both()));
  const auto of = [&](const FakeCoordinator& coordinator) {
    for (const Coordinators::State& state : coordinators.states()) {
      if (state.address == coordinator.server->address()) return state;
    }
    ADD_FAILURE() << "it is not there";
    return Coordinators::State();
  };
  one_.Accept();
  EXPECT_TRUE(of(one_).registered);
  EXPECT_EQ(of(one_).kv_held_tokens, kCapacity);
  EXPECT_FALSE(of(two_).registered);
  EXPECT_EQ(of(two_).kv_held_tokens, 0);
  two_.Accept();
  EXPECT_TRUE(of(two_).registered);
  EXPECT_EQ(of(two_).kv_held_tokens, 0);  // the first one holds it
}

TEST_F(CoordinatorsTest, ADeviceOfUnknownCapacityGrantsNothing) {
  Coordinators::Options options = Options(Both());
  options.registration.hello.set_kv_capacity_tokens(0);
  const Coordinators coordinators(std::move(options));
  const v1::WorkerEvent hello = one_.registry.NextEvent();
  EXPECT_FALSE(hello.hello().grants_kv());
  one_.registry.Ask(1);
  one_.registry.NextEvent();
  one_.registry.Accept();
  EXPECT_FALSE(one_.Heartbeat().has_kv_grant());
}

TEST_F(CoordinatorsTest, SeveralAreToldThatTheKvIsShared) {
  const Coordinators coordinators(Options(Both()));
  EXPECT_TRUE(one_.registry.NextEvent().hello().grants_kv());
  EXPECT_TRUE(two_.registry.NextEvent().hello().grants_kv());
}

}  // namespace
}  // namespace nacre::worker
