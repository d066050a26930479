#include "coordinator/limit_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace nacre::coordinator {
namespace {

using ::testing::HasSubstr;

class LimitFlagsTest : public ::testing::Test {
 protected:
  std::string Error() const {
    const absl::StatusOr<Limits> limits = flags_.Resolve();
    EXPECT_EQ(limits.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(limits.status().message());
  }

  LimitFlags flags_;
};

TEST_F(LimitFlagsTest, TheDefaultsAreAsDocumented) {
  const absl::StatusOr<Limits> limits = flags_.Resolve();
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->max_request_bytes, 16 << 20);
  EXPECT_EQ(limits->inference.max_streams_per_client, 0);
  EXPECT_EQ(limits->inference.max_request_ns, kNever);
  EXPECT_EQ(limits->inference.max_answer_bytes, int64_t{256} << 20);
  EXPECT_EQ(limits->inference.client_timeout_ns, 60'000'000'000);
  rpc::RpcServer::Options clients;
  limits->ApplyTo(&clients);
  EXPECT_EQ(clients.max_request_bytes, 16 << 20);
  EXPECT_EQ(clients.max_connections, 8192);
  EXPECT_EQ(clients.max_streams_per_connection, 4096);
  EXPECT_EQ(clients.max_memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(clients.max_idle, absl::Minutes(5));
  Dispatcher::Options options;
  limits->ApplyTo(&options);
  EXPECT_EQ(options.max_running, 0);
  EXPECT_EQ(options.max_queue, 1024);
  EXPECT_EQ(options.queue_timeout_ns, 60'000'000'000);
  EXPECT_EQ(options.failover_timeout_ns, 30'000'000'000);
  EXPECT_TRUE(options.hold_without_target);
  EXPECT_EQ(limits->worker_timeout_ns, 5'000'000'000);
  EXPECT_EQ(options.max_request_ns, kNever);
  EXPECT_EQ(options.client_timeout_ns, 60'000'000'000);
  EXPECT_EQ(options.draft_rows, 8);
  EXPECT_EQ(options.tree_rows, 16);
}

// A quarter of the clients' memory is for requests that are on their way: if
// that is little, one of the largest that may come, and as much again.
TEST_F(LimitFlagsTest, ARequestOfTheLargestSizeAlwaysFits) {
  const auto received = [this] {
    return flags_.Resolve()->inference.receiving.max_bytes;
  };
  flags_.max_request_bytes = 16 << 20;
  flags_.max_client_memory_bytes = int64_t{1} << 30;
  EXPECT_EQ(received(), int64_t{256} << 20);
  flags_.max_client_memory_bytes = 32 << 20;
  EXPECT_EQ(received(), 32 << 20);
}

TEST_F(LimitFlagsTest, TheDefaultPolicyIsChecked) {
  EXPECT_EQ(flags_.Resolve()->inference.default_policy.text(), "constant");
  flags_.default_policy = "svip:h=0.4";
  EXPECT_EQ(flags_.Resolve()->inference.default_policy.text(), "svip:h=0.4");
  flags_.default_policy = "svip:h=nan";
  EXPECT_THAT(Error(), HasSubstr("--default-policy: policy svip: h is"));
  flags_.default_policy = "oracle";
  EXPECT_THAT(Error(), HasSubstr("--default-policy: oracle needs a recording"));
}

TEST_F(LimitFlagsTest, FlagsReachTheDispatcher) {
  flags_.max_running = 3;
  flags_.max_queue = 0;
  flags_.queue_timeout = absl::Seconds(2);
  flags_.max_request_duration = absl::Milliseconds(1500);
  flags_.client_timeout = absl::ZeroDuration();
  flags_.hold_without_target = false;
  flags_.failover_timeout = absl::ZeroDuration();
  Dispatcher::Options options;
  flags_.Resolve()->ApplyTo(&options);
  EXPECT_EQ(options.max_running, 3);
  EXPECT_EQ(options.max_queue, 0);
  EXPECT_EQ(options.queue_timeout_ns, 2'000'000'000);
  EXPECT_EQ(options.max_request_ns, 1'500'000'000);
  EXPECT_EQ(flags_.Resolve()->inference.max_request_ns, 1'500'000'000);
  EXPECT_EQ(flags_.Resolve()->inference.client_timeout_ns, kNever);
  EXPECT_EQ(options.client_timeout_ns, kNever);
  EXPECT_FALSE(options.hold_without_target);
  EXPECT_EQ(options.failover_timeout_ns, 0);
}

TEST_F(LimitFlagsTest, InfIsNever) {
  FlagSet flags("nacre-coordinator", "");
  flags_.Register(&flags);
  ASSERT_TRUE(flags
                  .Parse({"--queue-timeout=inf", "--failover-timeout=inf",
                          "--client-timeout=inf", "--max-request-duration=inf"},
                         nullptr)
                  .ok());
  const absl::StatusOr<Limits> limits = flags_.Resolve();
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->queue_timeout_ns, kNever);
  EXPECT_EQ(limits->failover_timeout_ns, kNever);
  EXPECT_EQ(limits->client_timeout_ns, kNever);
  EXPECT_EQ(limits->max_request_ns, kNever);
}

TEST_F(LimitFlagsTest, AWorkerMayBeSilentForLongerThanAHeartbeat) {
  for (const absl::Duration bad :
       {absl::ZeroDuration(), absl::Seconds(-1), absl::Seconds(1),
        absl::Minutes(61), absl::InfiniteDuration()}) {
    flags_.worker_timeout = bad;
    EXPECT_THAT(Error(),
                HasSubstr("--worker-timeout is " + absl::FormatDuration(bad)));
  }
  flags_.worker_timeout = absl::Milliseconds(1001);
  EXPECT_TRUE(flags_.Resolve().ok());
}

TEST_F(LimitFlagsTest, AConnectionMayServeForAWhileOrForEver) {
  const auto max_age = [this](absl::Duration value) {
    flags_.max_connection_age = value;
    rpc::RpcServer::Options clients;
    flags_.Resolve()->ApplyTo(&clients);
    return clients.max_age;
  };
  EXPECT_EQ(max_age(flags_.max_connection_age), absl::InfiniteDuration());
  EXPECT_EQ(max_age(absl::Minutes(10)), absl::Minutes(10));
  for (const absl::Duration bad :
       {absl::Seconds(-1), absl::Milliseconds(999)}) {
    flags_.max_connection_age = bad;
    EXPECT_THAT(Error(), HasSubstr("--max-connection-age is " +
                                   absl::FormatDuration(bad)));
  }
}

TEST_F(LimitFlagsTest, AnIdleConnectionMayStayForAWhileOrForEver) {
  const auto max_idle = [this](absl::Duration value) {
    flags_.idle_timeout = value;
    rpc::RpcServer::Options clients;
    flags_.Resolve()->ApplyTo(&clients);
    return clients.max_idle;
  };
  EXPECT_EQ(max_idle(absl::Seconds(1)), absl::Seconds(1));
  EXPECT_EQ(max_idle(absl::ZeroDuration()), absl::InfiniteDuration());
  EXPECT_EQ(max_idle(absl::InfiniteDuration()), absl::InfiniteDuration());
  for (const absl::Duration bad :
       {absl::Seconds(-1), absl::Milliseconds(999)}) {
    flags_.idle_timeout = bad;
    EXPECT_THAT(Error(),
                HasSubstr("--idle-timeout is " + absl::FormatDuration(bad)));
  }
}

TEST_F(LimitFlagsTest, AValueOutOfRangeIsNamed) {
  flags_.max_running = -1;
  EXPECT_THAT(Error(), HasSubstr("--max-running is -1, must be in [0, "));
  flags_.max_running = 1;
  flags_.max_queue = -1;
  EXPECT_THAT(Error(), HasSubstr("--max-queue is -1"));
  flags_.max_queue = 0;
  flags_.tree_rows = 65;
  EXPECT_THAT(Error(), HasSubstr("--tree-rows is 65"));
  flags_.tree_rows = 64;
  EXPECT_EQ(flags_.Resolve()->tree_rows, 64);
  flags_.max_queue = 1;
  flags_.max_streams_per_client = -5;
  EXPECT_THAT(Error(), HasSubstr("--max-streams-per-client"));
  flags_.max_streams_per_client = 1;
  flags_.max_request_bytes = 1 << 30;
  EXPECT_THAT(Error(), HasSubstr("--max-request-bytes"));
  flags_.max_request_bytes = 1 << 20;
  flags_.max_connections = 0;
  EXPECT_THAT(Error(), HasSubstr("--max-connections is 0"));
  flags_.max_connections = 1;
  flags_.max_streams_per_connection = 0;
  EXPECT_THAT(Error(), HasSubstr("--max-streams-per-connection is 0"));
  flags_.max_streams_per_connection = 1;
  flags_.max_client_memory_bytes = -1;
  EXPECT_THAT(Error(), HasSubstr("--max-client-memory-bytes is -1"));
  flags_.max_client_memory_bytes = 0;
  flags_.tokenizer_threads = 0;
  EXPECT_THAT(Error(), HasSubstr("--tokenizer-threads"));
  flags_.tokenizer_threads = 1;
  flags_.queue_timeout = absl::Seconds(-1);
  EXPECT_THAT(Error(), HasSubstr("--queue-timeout is -1s"));
  flags_.queue_timeout = absl::Seconds(1);
  flags_.failover_timeout = absl::Seconds(-2);
  EXPECT_THAT(Error(), HasSubstr("--failover-timeout is -2s"));
  flags_.failover_timeout = absl::ZeroDuration();
  FlagSet flags("nacre-coordinator", "");
  flags_.Register(&flags);
  EXPECT_THAT(
      std::string(
          flags.Parse({"--hold-without-target=maybe"}, nullptr).message()),
      HasSubstr("--hold-without-target: \"maybe\" is not on or off"));
  EXPECT_TRUE(flags_.Resolve().ok());
}

}  // namespace
}  // namespace nacre::coordinator
