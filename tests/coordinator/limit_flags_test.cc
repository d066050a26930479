#include "coordinator/limit_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/time/time.h"

ABSL_DECLARE_FLAG(int, max_running);
ABSL_DECLARE_FLAG(int, max_queue);
ABSL_DECLARE_FLAG(absl::Duration, queue_timeout);
ABSL_DECLARE_FLAG(absl::Duration, max_request_duration);
ABSL_DECLARE_FLAG(absl::Duration, client_timeout);
ABSL_DECLARE_FLAG(int, max_streams_per_client);
ABSL_DECLARE_FLAG(int, max_request_bytes);
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
  Dispatcher::Options options;
  limits->ApplyTo(&options);
  EXPECT_EQ(options.max_running, 64);
  EXPECT_EQ(options.max_queue, 1024);
  EXPECT_EQ(options.queue_timeout_ns, 60'000'000'000);
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
  Dispatcher::Options options;
  LimitsFromFlags()->ApplyTo(&options);
  EXPECT_EQ(options.max_running, 3);
  EXPECT_EQ(options.max_queue, 0);
  EXPECT_EQ(options.queue_timeout_ns, 2'000'000'000);
  EXPECT_EQ(options.max_request_ns, 1'500'000'000);
  EXPECT_EQ(options.client_timeout_ns, kNever);
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
  absl::SetFlag(&FLAGS_tokenizer_threads, 0);
  EXPECT_THAT(Error(), HasSubstr("--tokenizer-threads"));
  absl::SetFlag(&FLAGS_tokenizer_threads, 1);
  absl::SetFlag(&FLAGS_queue_timeout, absl::Seconds(-1));
  EXPECT_THAT(Error(), HasSubstr("--queue-timeout is -1s"));
  absl::SetFlag(&FLAGS_queue_timeout, absl::Seconds(1));
  EXPECT_TRUE(LimitsFromFlags().ok());
}

}  // namespace
}  // namespace nacre::coordinator
