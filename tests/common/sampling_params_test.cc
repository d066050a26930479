#include "common/sampling_params.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(const SamplingParams& params, const std::string& field) {
  const absl::Status status = ValidateSamplingParams(params);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  EXPECT_THAT(std::string(status.message()), HasSubstr(field + " is "));
}

TEST(SamplingParamsTest, DefaultsAndLimitsAreValid) {
  SamplingParams params;
  EXPECT_TRUE(ValidateSamplingParams(params).ok());
  params.temperature = 100.0f;
  params.top_k = 1;
  params.top_p = 1e-6f;
  params.min_p = 1.0f;
  params.repetition_penalty = 1e-3f;
  params.frequency_penalty = -2.0f;
  params.presence_penalty = 2.0f;
  EXPECT_TRUE(ValidateSamplingParams(params).ok());
}

TEST(SamplingParamsTest, RefusesEveryFieldOutsideItsLimits) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {-0.1f, infinity, NAN}) {
    SamplingParams params;
    params.temperature = bad;
    ExpectRefused(params, "temperature");
  }
  for (const float bad : {0.0f, 1.1f, NAN}) {
    SamplingParams params;
    params.top_p = bad;
    ExpectRefused(params, "top_p");
  }
  for (const float bad : {-0.1f, 1.1f, NAN}) {
    SamplingParams params;
    params.min_p = bad;
    ExpectRefused(params, "min_p");
  }
  for (const float bad : {0.0f, -1.0f, infinity, NAN}) {
    SamplingParams params;
    params.repetition_penalty = bad;
    ExpectRefused(params, "repetition_penalty");
  }
  for (const float bad : {-2.1f, 2.1f, NAN}) {
    SamplingParams params;
    params.frequency_penalty = bad;
    ExpectRefused(params, "frequency_penalty");
    params = SamplingParams();
    params.presence_penalty = bad;
    ExpectRefused(params, "presence_penalty");
  }
  SamplingParams params;
  params.top_k = -1;
  ExpectRefused(params, "top_k");
}

TEST(SamplingParamsTest, AValueJustOutsideIsNotShownAsTheLimit) {
  SamplingParams params;
  params.min_p = std::nextafter(1.0f, 2.0f);
  EXPECT_EQ(ValidateSamplingParams(params).message(),
            "min_p is 1.0000001, expected a number from 0 to 1");
  params.min_p = 1.0f;
  params.logit_bias = {{7, std::nextafter(100.0f, 200.0f)}};
  EXPECT_EQ(ValidateSamplingParams(params).message(),
            "logit_bias of token 7 is 100.00001, expected a number from -100 "
            "to 100");
}

}  // namespace
}  // namespace nacre
