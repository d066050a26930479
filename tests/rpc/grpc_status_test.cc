#include "common/rpc/grpc_status.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace nacre::rpc {
namespace {

TEST(GrpcStatusTest, EveryErrorCodeSurvivesTheRoundTrip) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code),
                              absl::StrCat("message ", code));
    const grpc::Status converted = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(converted.error_code()), code);
    EXPECT_EQ(converted.error_message(), absl::StrCat("message ", code));
    EXPECT_EQ(FromGrpcStatus(converted), status);
  }
}

TEST(GrpcStatusTest, NamesMeanTheSameOnBothSides) {
  EXPECT_EQ(ToGrpcStatus(absl::UnavailableError("")).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ToGrpcStatus(absl::InvalidArgumentError("")).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ToGrpcStatus(absl::UnauthenticatedError("")).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST(GrpcStatusTest, OkStaysOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(GrpcStatusTest, CodesThatDoNotExistBecomeUnknown) {
  const grpc::Status out =
      ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(99), "odd"));
  EXPECT_EQ(out.error_code(), grpc::StatusCode::UNKNOWN);
  EXPECT_EQ(out.error_message(), "odd");
  const absl::Status in =
      FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(-1), "odd"));
  EXPECT_EQ(in.code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace nacre::rpc
