#include "common/rpc/lost_server.h"

#include <gtest/gtest.h>

namespace nacre::rpc {
namespace {

TEST(LostServerTest, WordsOfGrpcForALostServerAreUnavailable) {
  EXPECT_EQ(NameLostServer(absl::CancelledError("CANCELLED")),
            absl::UnavailableError("the server has stopped"));
  EXPECT_EQ(NameLostServer(
                absl::InternalError("Received RST_STREAM with error code 2")),
            absl::UnavailableError("the call was cut off: Received RST_STREAM "
                                   "with error code 2"));
  EXPECT_EQ(NameLostServer(absl::InternalError(
                "Stream removed (RST_STREAM (Received RST_STREAM with error "
                "code 2))")),
            absl::UnavailableError(
                "the call was cut off: Stream removed (RST_STREAM (Received "
                "RST_STREAM with error code 2))"));
}

TEST(LostServerTest, OtherStatusesStayAsTheyAre) {
  for (const absl::Status& status :
       {absl::OkStatus(), absl::CancelledError("the client has gone"),
        absl::InternalError("the target's device failed"),
        absl::UnavailableError("gone")}) {
    EXPECT_EQ(NameLostServer(status), status);
  }
}

}  // namespace
}  // namespace nacre::rpc
