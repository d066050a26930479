#include "worker/process/coordinator_list.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>

#include <string>

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

TEST(CoordinatorListTest, ReadsAddressesAndNames) {
  const auto names = ParseCoordinators("a:1,dns:b.svc:2,[::1]:3");
  ASSERT_TRUE(names.ok()) << names.status();
  ASSERT_EQ(names->size(), 3u);
  EXPECT_FALSE((*names)[0].is_dns);
  EXPECT_EQ((*names)[0].address(), "a:1");
  EXPECT_TRUE((*names)[1].is_dns);
  EXPECT_EQ((*names)[1].host, "b.svc");
  EXPECT_EQ((*names)[1].port, "2");
  EXPECT_EQ((*names)[2].address(), "[::1]:3");
}

TEST(CoordinatorListTest, OneAddressIsNotSeveral) {
  EXPECT_FALSE(MayBeSeveral(*ParseCoordinators("a:1")));
  EXPECT_TRUE(MayBeSeveral(*ParseCoordinators("dns:a:1")));
  EXPECT_TRUE(MayBeSeveral(*ParseCoordinators("a:1,b:1")));
}

TEST(CoordinatorListTest, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "a", "a:", ":1", "a:0", "a:65536", "a:1,",
                           "a:1,,b:1", "dns:a", "dns::1"}) {
    const absl::Status status = ParseCoordinators(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not HOST:PORT"));
  }
  for (const char* text : {"a:1,a:1", "a:1,b:1,dns:a:1"}) {
    EXPECT_THAT(std::string(ParseCoordinators(text).status().message()),
                HasSubstr("has \"a:1\" twice"));
  }
}

TEST(CoordinatorListTest, ResolvesNumbers) {
  const auto four = ResolveHost("127.0.0.1", "7");
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_THAT(*four, ::testing::ElementsAre("127.0.0.1:7"));
  const auto six = ResolveHost("::1", "7");
  ASSERT_TRUE(six.ok()) << six.status();
  EXPECT_THAT(*six, ::testing::ElementsAre("[::1]:7"));
}

// A host with both has one coordinator, not two.
TEST(CoordinatorListTest, AnIpv6AddressIsForHostsWithoutAnotherOne) {
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  ASSERT_EQ(inet_pton(AF_INET, "10.0.0.7", &four.sin_addr), 1);
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  ASSERT_EQ(inet_pton(AF_INET6, "fd00::7", &six.sin6_addr), 1);
  addrinfo second = {};
  second.ai_family = AF_INET;
  second.ai_addr = reinterpret_cast<sockaddr*>(&four);
  second.ai_addrlen = sizeof(four);
  addrinfo first = {};
  first.ai_family = AF_INET6;
  first.ai_addr = reinterpret_cast<sockaddr*>(&six);
  first.ai_addrlen = sizeof(six);
  EXPECT_THAT(NumericAddresses(&first, "7"),
              ::testing::ElementsAre("[fd00::7]:7"));
  first.ai_next = &second;
  EXPECT_THAT(NumericAddresses(&first, "7"),
              ::testing::ElementsAre("10.0.0.7:7"));
  EXPECT_TRUE(NumericAddresses(nullptr, "7").empty());
}

TEST(CoordinatorListTest, SaysWhatCannotBeResolved) {
  const absl::Status status = ResolveHost("256.1.1.1:", "7").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cannot resolve 256.1.1.1:"));
}

}  // namespace
}  // namespace nacre::worker
