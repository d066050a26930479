#include "coordinator/dispatch/policy_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "speculation/policies/policy_spec.h"

namespace nacre::coordinator {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::Not;

WorkerInfo DraftWith(
    std::vector<std::pair<std::string, std::string>> policy_files) {
  WorkerInfo info;
  info.role = WorkerRole::kDraft;
  info.policy_files = std::move(policy_files);
  return info;
}

RequestSpec With(const std::string& policy) {
  RequestSpec request;
  request.fingerprint = "big";
  request.policy = *speculation::ParsePolicySpec(policy);
  return request;
}

TEST(PolicyFiles, AFileIsOfOnePolicyAndOneTarget) {
  const WorkerInfo none = DraftWith({});
  const WorkerInfo able = DraftWith({{"specdec++", "big"}, {"disco", "big"}});
  const WorkerInfo other = DraftWith({{"disco", "bigger"}});
  EXPECT_TRUE(CanRunPolicy(able, With("disco:threshold=0.2")));
  EXPECT_FALSE(CanRunPolicy(other, With("disco")));
  EXPECT_FALSE(CanRunPolicy(none, With("disco")));
  for (const char* policy : {"", "svip", "cali-ts", "optimal-static:gamma=3"}) {
    EXPECT_TRUE(CanRunPolicy(none, With(policy))) << policy;
  }
  EXPECT_FALSE(CanRunPolicy(able, With("optimal-static")));
  RequestSpec anywhere = With("disco");
  anywhere.fingerprint.clear();
  EXPECT_TRUE(CanRunPolicy(other, anywhere));
}

TEST(PolicyFiles, NoDraftThatCanIsAFailedPrecondition) {
  const WorkerInfo none = DraftWith({});
  const WorkerInfo able = DraftWith({{"disco", "big"}});
  const WorkerInfo other = DraftWith({{"disco", "bigger"}});
  EXPECT_TRUE(CheckPolicy({&none, &other, &able}, With("disco")).ok());
  EXPECT_TRUE(CheckPolicy({}, With("disco")).ok());  // degraded, as always
  EXPECT_TRUE(CheckPolicy({&none}, With("svip")).ok());
  // The error names each target once, however many drafts have files for it.
  const absl::Status status = CheckPolicy({&other, &other}, With("disco"));
  EXPECT_FALSE(CheckPolicy({&none}, With("disco")).ok());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              EndsWith("policy disco needs a calibration file (--policy-file "
                       "disco=DIR), and none of 2 draft workers has one for "
                       "the target with fingerprint big; there are some for "
                       "bigger"));
  RequestSpec ar = With("disco");
  ar.method = speculation::Method::kAr;
  EXPECT_TRUE(CheckPolicy({&none}, ar).ok());
}

TEST(PolicyFiles, AnAnswerGoesOnWithoutADraftThatCan) {
  const WorkerInfo none = DraftWith({});
  RequestSpec resumed = With("disco");
  resumed.resume = std::make_shared<const std::vector<ResumedChoice>>(1);
  EXPECT_TRUE(CheckPolicy({&none}, resumed).ok());
  EXPECT_FALSE(CanRunPolicy(none, resumed));
}

TEST(PolicyFiles, NamesWhatCanRun) {
  const WorkerInfo able = DraftWith({{"disco", "big"}});
  const WorkerInfo other = DraftWith({{"specdec++", "bigger"}});
  EXPECT_EQ(RunnablePolicies({}, "big").size(), 9u);
  EXPECT_THAT(RunnablePolicies({}, "big"), Contains("optimal-static"));
  EXPECT_THAT(RunnablePolicies({&other}, "big"), Not(Contains("specdec++")));
  EXPECT_THAT(RunnablePolicies({&other, &able}, "big"), Contains("disco"));
}

}  // namespace
}  // namespace nacre::coordinator
