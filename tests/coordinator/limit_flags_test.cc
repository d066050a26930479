#include "coordinator/limit_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/time/time.h"

ABSL_DECLARE_FLAG(int, max_running);
ABSL_DECLARE_FLAG(int, max_queue);
ABSL_DECLARE_FLAG(absl::Duration, queue_timeout);
ABSL_DECLARE_FLAG(std::string, hold_without_target);
ABSL_DECLARE_FLAG(absl::Duration, failover_timeout);
ABSL_DECLARE_FLAG(absl::Duration, worker_timeout);
ABSL_DECLARE_FLAG(absl::Duration, max_request_duration);
ABSL_DECLARE_FLAG(absl::Duration, client_timeout);
ABSL_DECLARE_FLAG(int, max_streams_per_client);
ABSL_DECLARE_FLAG(int, max_request_bytes);
ABSL_DECLARE_FLAG(int, max_connections);
ABSL_DECLARE_FLAG(int, max_streams_per_connection);
ABSL_DECLARE_FLAG(int64_t, max_client_memory_bytes);
ABSL_DECLARE_FLAG(int, tokenizer_threads);
ABSL_DECLARE_FLAG(std::string, default_policy);

namespace nacre::coordinator {
namespace {

using ::testing::HasSubstr;

class LimitFlagsTest : public ::testing::Test {
 protected:
  static std::string Error() {
    const absl::StatusOr<Limits> limits = LimitsFromFlags();
    EXPECT_EQ(limits.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(limits.status().message());
  }

  const absl::FlagSaver saver_;
};

TEST_F(LimitFlagsTest, TheDefaultsAreAsDocumented) {
  const absl::StatusOr<Limits> limits = LimitsFromFlags();
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->max_request_bytes, 16 << 20);
  EXPECT_EQ(limits->inference.max_streams_per_client, 0);
  EXPECT_EQ(limits->inference.max_request_ns, kNever);
  EXPECT_EQ(limits->inference.client_timeout_ns, 60'000'000'000);
  rpc::RpcServer::Options clients;
  limits->ApplyTo(&clients);
  EXPECT_EQ(clients.max_request_bytes, 16 << 20);
  EXPECT_EQ(clients.max_connections, 8192);
  EXPECT_EQ(clients.max_streams_per_connection, 4096);
  EXPECT_EQ(clients.max_memory_bytes, int64_t{1} << 30);
  Dispatcher::Options options;
  limits->ApplyTo(&options);
  EXPECT_EQ(options.max_running, 64);
  EXPECT_EQ(options.max_queue, 1024);
  EXPECT_EQ(options.queue_timeout_ns, 60'000'000'000);
  EXPECT_EQ(options.failover_timeout_ns, 30'000'000'000);
  EXPECT_TRUE(options.hold_without_target);
  EXPECT_EQ(limits->worker_timeout_ns, 5'000'000'000);
  EXPECT_EQ(options.max_request_ns, kNever);
  EXPECT_EQ(options.client_timeout_ns, 60'000'000'000);
}

TEST_F(LimitFlagsTest, TheDefaultPolicyIsChecked) {
  EXPECT_EQ(LimitsFromFlags()->inference.default_policy.text(), "constant");
  absl::SetFlag(&FLAGS_default_policy, "svip:h=0.4");
  EXPECT_EQ(LimitsFromFlags()->inference.default_policy.text(), "svip:h=0.4");
  absl::SetFlag(&FLAGS_default_policy, "svip:h=nan");
  EXPECT_THAT(Error(), HasSubstr("--default-policy: policy svip: h is"));
  absl::SetFlag(&FLAGS_default_policy, "oracle");
  EXPECT_THAT(Error(), HasSubstr("--default-policy: oracle needs a recording"));
}

TEST_F(LimitFlagsTest, FlagsReachTheDispatcher) {
  absl::SetFlag(&FLAGS_max_running, 3);
  absl::SetFlag(&FLAGS_max_queue, 0);
  absl::SetFlag(&FLAGS_queue_timeout, absl::Seconds(2));
  absl::SetFlag(&FLAGS_max_request_duration, absl::Milliseconds(1500));
  absl::SetFlag(&FLAGS_client_timeout, absl::ZeroDuration());
  absl::SetFlag(&FLAGS_hold_without_target, "off");
  absl::SetFlag(&FLAGS_failover_timeout, absl::ZeroDuration());
  Dispatcher::Options options;
  LimitsFromFlags()->ApplyTo(&options);
  EXPECT_EQ(options.max_running, 3);
  EXPECT_EQ(options.max_queue, 0);
  EXPECT_EQ(options.queue_timeout_ns, 2'000'000'000);
  EXPECT_EQ(options.max_request_ns, 1'500'000'000);
  EXPECT_EQ(LimitsFromFlags()->inference.max_request_ns, 1'500'000'000);
  EXPECT_EQ(LimitsFromFlags()->inference.client_timeout_ns, kNever);
  EXPECT_EQ(options.client_timeout_ns, kNever);
  EXPECT_FALSE(options.hold_without_target);
  EXPECT_EQ(options.failover_timeout_ns, 0);
}

TEST_F(LimitFlagsTest, InfIsNever) {
  for (absl::Flag<absl::Duration>* flag :
       {&FLAGS_queue_timeout, &FLAGS_failover_timeout, &FLAGS_client_timeout,
        &FLAGS_max_request_duration}) {
    absl::SetFlag(flag, absl::InfiniteDuration());
  }
  const absl::StatusOr<Limits> limits = LimitsFromFlags();
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
    absl::SetFlag(&FLAGS_worker_timeout, bad);
    EXPECT_THAT(Error(),
                HasSubstr("--worker-timeout is " + absl::FormatDuration(bad)));
  }
  absl::SetFlag(&FLAGS_worker_timeout, absl::Milliseconds(1001));
  EXPECT_TRUE(LimitsFromFlags().ok());
}

TEST_F(LimitFlagsTest, AValueOutOfRangeIsNamed) {
  absl::SetFlag(&FLAGS_max_running, 0);
  EXPECT_THAT(Error(), HasSubstr("--max-running is 0"));
  absl::SetFlag(&FLAGS_max_running, 1);
  absl::SetFlag(&FLAGS_max_queue, -1);
  EXPECT_THAT(Error(), HasSubstr("--max-queue is -1"));
  absl::SetFlag(&FLAGS_max_queue, 1);
  absl::SetFlag(&FLAGS_max_streams_per_client, -5);
  EXPECT_THAT(Error(), HasSubstr("--max-streams-per-client"));
  absl::SetFlag(&FLAGS_max_streams_per_client, 1);
  absl::SetFlag(&FLAGS_max_request_bytes, 1 << 30);
  EXPECT_THAT(Error(), HasSubstr("--max-request-bytes"));
  absl::SetFlag(&FLAGS_max_request_bytes, 1 << 20);
  absl::SetFlag(&FLAGS_max_connections, 0);
  EXPECT_THAT(Error(), HasSubstr("--max-connections is 0"));
  absl::SetFlag(&FLAGS_max_connections, 1);
  absl::SetFlag(&FLAGS_max_streams_per_connection, 0);
  EXPECT_THAT(Error(), HasSubstr("--max-streams-per-connection is 0"));
  absl::SetFlag(&FLAGS_max_streams_per_connection, 1);
  absl::SetFlag(&FLAGS_max_client_memory_bytes, -1);
  EXPECT_THAT(Error(), HasSubstr("--max-client-memory-bytes is -1"));
  absl::SetFlag(&FLAGS_max_client_memory_bytes, 0);
  absl::SetFlag(&FLAGS_tokenizer_threads, 0);
  EXPECT_THAT(Error(), HasSubstr("--tokenizer-threads"));
  absl::SetFlag(&FLAGS_tokenizer_threads, 1);
  absl::SetFlag(&FLAGS_queue_timeout, absl::Seconds(-1));
  EXPECT_THAT(Error(), HasSubstr("--queue-timeout is -1s"));
  absl::SetFlag(&FLAGS_queue_timeout, absl::Seconds(1));
  absl::SetFlag(&FLAGS_failover_timeout, absl::Seconds(-2));
  EXPECT_THAT(Error(), HasSubstr("--failover-timeout is -2s"));
  absl::SetFlag(&FLAGS_failover_timeout, absl::ZeroDuration());
  absl::SetFlag(&FLAGS_hold_without_target, "maybe");
  EXPECT_THAT(Error(), HasSubstr("--hold-without-target is \"maybe\""));
  absl::SetFlag(&FLAGS_hold_without_target, "on");
  EXPECT_TRUE(LimitsFromFlags().ok());
}

}  // namespace
}  // namespace nacre::coordinator
