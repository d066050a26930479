#include "gateway/gateway_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nacre::gateway {
namespace {

std::string Problem(const std::vector<std::string>& args) {
  GatewayFlags flags;
  FlagSet set("nacre-gateway", "");
  flags.Register(&set);
  absl::Status status = set.Parse(args, nullptr);
  if (status.ok()) status = flags.Validate();
  return std::string(status.message());
}

TEST(GatewayFlagsTest, GoodOnesPass) {
  EXPECT_EQ(Problem({"--tokenizer", "d"}), "");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--coordinator", "a:1,b:2"}), "");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--admin", "a:1,b:2", "--no-ui"}), "");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--admin", "a:1", "--auth-tokens-file",
                     "f", "--admin-tokens-file", "g"}),
            "");
  EXPECT_EQ(
      Problem({"--tokenizer", "d", "--cors-origin", "https://a:1,http://b"}),
      "");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--public-tls-cert", "f",
                     "--public-tls-key", "g", "--public-tls-ca", "h"}),
            "");
}

TEST(GatewayFlagsTest, BadOnesAreNamedWithTheirValue) {
  EXPECT_EQ(Problem({}), "--tokenizer MODEL_DIR is required");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--coordinator", ","}),
            "--coordinator has no address");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--coordinator", "a:1,b"}),
            "--coordinator \"b\" is not host:port");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--admin", "a:1,b"}),
            "--admin \"b\" is not host:port");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--admin", "a:1", "--auth-tokens-file",
                     "f"}),
            "--admin with --auth-tokens-file needs --admin-tokens-file, too");
  EXPECT_EQ(
      Problem({"--tokenizer", "d", "--admin", "a:1", "--token-file", "f"}),
      "--admin with --token-file needs --admin-tokens-file, too");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--cors-origin", "https://a,b"}),
            "--cors-origin \"b\" is neither * nor SCHEME://HOST[:PORT] as "
            "browsers send it: in lower case, without a default port");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--public-tls-ca", "f"}),
            "--public-tls-cert is missing: --public-tls-ca needs it");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--public-tls-cert", "f"}),
            "--public-tls-key is missing: --public-tls-cert needs it");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--public-tls-key", "f"}),
            "--public-tls-cert is missing: --public-tls-key needs it");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--ping-period", "1ms"}),
            "--ping-period is 1ms, must be at least 10ms");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--drain-timeout", "-1s"}),
            "--drain-timeout is -1s, below 0");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--drain-idle", "-1s"}),
            "--drain-idle is -1s, below 0");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--default-max-tokens", "-1"}),
            "--default-max-tokens is -1, below 0");
  EXPECT_EQ(Problem({"--tokenizer", "d", "--max-connections", "0"}),
            "--max-connections is 0, must be in [1, 1048576]");
}

}  // namespace
}  // namespace nacre::gateway
