#include "tools/cluster/security_flags.h"

#include <gmock/gmock.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

namespace nacre::tools {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kHungUp[] =
    "failed to connect to all addresses; last error: Socket closed";

std::string Explained(const ClientSecurity& security) {
  const absl::Status status = security.Explain(absl::UnavailableError(kHungUp));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), EndsWith(kHungUp));
  return std::string(status.message());
}

TEST(ClientSecurityTest, ExplainsAServerThatHangsUp) {
  ClientSecurity security;
  EXPECT_THAT(Explained(security), HasSubstr("it may want TLS (--tls-ca)"));
  security.channel.credentials = grpc::InsecureChannelCredentials();
  EXPECT_THAT(Explained(security),
              HasSubstr("a certificate (--tls-cert, --tls-key)"));
  security.shows_certificate = true;
  EXPECT_THAT(Explained(security), HasSubstr("another --tls-cert"));
}

TEST(ClientSecurityTest, LeavesOtherErrorsAlone) {
  const ClientSecurity security;
  for (const absl::Status& status :
       {absl::OkStatus(), absl::InternalError(kHungUp),
        absl::UnavailableError("Socket closed"),
        absl::UnavailableError("failed to connect: Connection refused")}) {
    EXPECT_EQ(security.Explain(status), status);
  }
}

}  // namespace
}  // namespace nacre::tools
