#include "common/rpc/grpc_status.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/refusal.h"

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

// What google.rpc.Status with an ErrorInfo and a RetryInfo is on the wire, byte
// by byte.
constexpr absl::string_view kFullQueue =
    "\x08\x08\x12\x04"
    "full"
    "\x1a\x3f\n\x28type.googleapis.com/google.rpc.ErrorInfo"
    "\x12\x13\n\nQUEUE_FULL\x12\x05nacre"
    "\x1a\x30\n\x28type.googleapis.com/google.rpc.RetryInfo"
    "\x12\x04\n\x02\x08\x07";

TEST(GrpcStatusTest, ARefusalIsAmongTheDetails) {
  const absl::Status full = WithRefusal(absl::ResourceExhaustedError("full"),
                                        {kQueueFull, /*retry_after_s=*/7});
  EXPECT_EQ(absl::CHexEscape(ToGrpcStatus(full).error_details()),
            absl::CHexEscape(kFullQueue));
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(full)), full);
  EXPECT_TRUE(IsRefusedFor(FromGrpcStatus(ToGrpcStatus(full)), kQueueFull));
  EXPECT_FALSE(IsRefusedFor(full, kQueueTimeout));
  const absl::Status late =
      WithRefusal(absl::ResourceExhaustedError("late"), {kQueueTimeout});
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(late)), late);
  EXPECT_EQ(RefusalOf(late)->retry_after_s, 0);
  // No delay is said where none is known: it would mean at once.
  EXPECT_EQ(ToGrpcStatus(late).error_details().find("RetryInfo"),
            std::string::npos);
  EXPECT_EQ(ToGrpcStatus(absl::ResourceExhaustedError("x")).error_details(),
            "");
}

// Likewise with a BadRequest.
constexpr absl::string_view kBadTopP =
    "\x08\x03\x12\x0atop_p is 2"
    "\x1a\x4b\n\x29type.googleapis.com/google.rpc.BadRequest"
    "\x12\x1e\n\x1c\n\x0esampling.top_p\x12\x0atop_p is 2";

TEST(GrpcStatusTest, TheFieldAtFaultIsAmongTheDetails) {
  const absl::Status bad =
      WithField(absl::InvalidArgumentError("top_p is 2"), "sampling.top_p");
  EXPECT_EQ(absl::CHexEscape(ToGrpcStatus(bad).error_details()),
            absl::CHexEscape(kBadTopP));
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(bad)), bad);
  const absl::Status both =
      WithField(WithRefusal(absl::ResourceExhaustedError("full"),
                            {kQueueFull, /*retry_after_s=*/7}),
                "n");
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(both)), both);
  // Names that are longer than any of ours are not taken.
  for (const size_t size : {256, 257}) {
    const absl::Status named =
        WithField(absl::InvalidArgumentError("x"), std::string(size, 'f'));
    EXPECT_EQ(FieldOf(FromGrpcStatus(ToGrpcStatus(named))).size(),
              size == 256 ? size : 0);
  }
  // Bytes that are none.
  for (size_t size = 0; size < kBadTopP.size(); ++size) {
    EXPECT_EQ(FieldOf(FromGrpcStatus(
                  grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "x",
                               std::string(kBadTopP.substr(0, size))))),
              "");
  }
}

// The message travels with the status and in its details already.
TEST(GrpcStatusTest, AViolationRepeatsNoLongMessage) {
  const auto size = [](size_t message) {
    const absl::Status bad = WithField(
        absl::InvalidArgumentError(std::string(message, 'x')), "sampling.seed");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(bad)), bad);
    return ToGrpcStatus(bad).error_details().size();
  };
  EXPECT_GT(size(256), 2 * 256u);
  EXPECT_LT(size(257), 2 * 256u);
}

// Details of others, and bytes that are none.
TEST(GrpcStatusTest, OtherDetailsAreNoRefusal) {
  const auto refusal_in = [](absl::string_view details) {
    return RefusalOf(FromGrpcStatus(grpc::Status(
        grpc::StatusCode::RESOURCE_EXHAUSTED, "full", std::string(details))));
  };
  EXPECT_TRUE(refusal_in(kFullQueue).has_value());
  std::string other(kFullQueue);
  other.replace(other.find("nacre"), 5, "other");
  EXPECT_FALSE(refusal_in(other).has_value());
  for (size_t size = 0; size < kFullQueue.size(); ++size) {
    const auto refusal = refusal_in(kFullQueue.substr(0, size));
    // Cut between its parts it is whole without the delay.
    EXPECT_EQ(refusal.value_or(Refusal()).retry_after_s, 0);
  }
  for (int byte = 0; byte < 256; ++byte) {
    for (size_t i = 0; i < kFullQueue.size(); ++i) {
      std::string changed(kFullQueue);
      changed[i] = static_cast<char>(byte);
      const auto refusal = refusal_in(changed);
      EXPECT_LE(refusal.value_or(Refusal()).retry_after_s, 31622400);
    }
  }
}

// A server of another making may say anything.
TEST(GrpcStatusTest, ADelayOfMoreThanAYearIsNone) {
  constexpr int64_t kYear = 366 * 24 * 3600;
  const auto delay = [](int64_t seconds) {
    const absl::Status full = WithRefusal(absl::ResourceExhaustedError("full"),
                                          {kQueueFull, seconds});
    const auto refusal = RefusalOf(FromGrpcStatus(ToGrpcStatus(full)));
    return refusal.value_or(Refusal{"none", -1}).retry_after_s;
  };
  EXPECT_EQ(delay(kYear), kYear);
  EXPECT_EQ(delay(kYear + 1), 0);
  EXPECT_EQ(delay(std::numeric_limits<int64_t>::max()), 0);
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
