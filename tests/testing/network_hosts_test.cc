#include "tests/testing/network_hosts.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"

namespace nacre::testing {
namespace {

constexpr uint16_t kPort = 7;

// A datagram socket of one host.
class Post {
 public:
  Post(const NetworkHosts& network, int host) {
    const NetworkHosts::Visit visit(network, host);
    fd_ = socket(AF_INET, SOCK_DGRAM, 0);
    const sockaddr_in address = At(network.address(host));
    EXPECT_EQ(
        bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        0);
  }
  ~Post() { close(fd_); }

  void Send(const std::string& to, const std::string& text) {
    const sockaddr_in address = At(to);
    EXPECT_EQ(
        sendto(fd_, text.data(), text.size(), 0,
               reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        static_cast<ssize_t>(text.size()));
  }
  // What came first; "" when nothing has for `patience`.
  std::string Receive(absl::Duration patience = absl::Seconds(30)) {
    pollfd polled = {fd_, POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(patience / absl::Milliseconds(1))) !=
        1) {
      return "";
    }
    char buffer[64];
    const ssize_t count = recv(fd_, buffer, sizeof(buffer), 0);
    return std::string(buffer,
                       static_cast<size_t>(std::max<ssize_t>(0, count)));
  }

 private:
  static sockaddr_in At(const std::string& address) {
    sockaddr_in result = {};
    result.sin_family = AF_INET;
    result.sin_port = htons(kPort);
    inet_pton(AF_INET, address.c_str(), &result.sin_addr);
    return result;
  }

  int fd_ = -1;
};

class NetworkHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto network = NetworkHosts::Create(3);
    if (!network.ok()) GTEST_SKIP() << "no hosts: " << network.status();
    network_ = *std::move(network);
  }

  std::unique_ptr<NetworkHosts> network_;
};

TEST_F(NetworkHostsTest, HostsReachEachOtherOnThePortsOfTheirOwn) {
  Post a(*network_, 0), b(*network_, 1), c(*network_, 2);
  a.Send(network_->address(1), "to b");
  a.Send(network_->address(2), "to c");
  EXPECT_EQ(b.Receive(), "to b");
  EXPECT_EQ(c.Receive(), "to c");
  b.Send(network_->address(0), "to a");
  EXPECT_EQ(a.Receive(), "to a");
}

TEST_F(NetworkHostsTest, AThreadIsAtHomeAgainAfterItsVisit) {
  char path[2][64] = {};
  ASSERT_GT(readlink("/proc/thread-self/ns/net", path[0], sizeof(path[0])), 0);
  {
    const NetworkHosts::Visit visit(*network_, 0);
    ASSERT_GT(readlink("/proc/thread-self/ns/net", path[1], sizeof(path[1])),
              0);
    EXPECT_STRNE(path[0], path[1]);
  }
  ASSERT_GT(readlink("/proc/thread-self/ns/net", path[1], sizeof(path[1])), 0);
  EXPECT_STREQ(path[0], path[1]);
}

// Both know each other's hardware address by then: what is lost later is lost
// by the link. The second message is the proof that the first one is not slow.
TEST_F(NetworkHostsTest, ALinkCanBeCutOneWayOrBoth) {
  Post a(*network_, 0), b(*network_, 1);
  const auto exchange = [&](bool there, bool back) {
    a.Send(network_->address(1), "lost?");
    b.Send(network_->address(0), "lost?");
    network_->SetLink(1, {});
    a.Send(network_->address(1), "end");
    b.Send(network_->address(0), "end");
    if (there) {
      EXPECT_EQ(b.Receive(), "lost?");
    }
    if (back) {
      EXPECT_EQ(a.Receive(), "lost?");
    }
    EXPECT_EQ(b.Receive(), "end");
    EXPECT_EQ(a.Receive(), "end");
  };
  exchange(true, true);
  network_->SetLink(1, {.hears = false});
  exchange(false, true);
  network_->SetLink(1, {.speaks = false});
  exchange(true, false);
  network_->SetLink(1, NetworkHosts::Cut());
  exchange(false, false);
}

TEST_F(NetworkHostsTest, BothLinksDelayAFrame) {
  Post a(*network_, 0), b(*network_, 1);
  a.Send(network_->address(1), "first");  // and the search for the address
  ASSERT_EQ(b.Receive(), "first");
  network_->SetLink(0, {.delay = absl::Milliseconds(30)});
  network_->SetLink(
      1, {.delay = absl::Milliseconds(20), .jitter = absl::Milliseconds(5)});
  const absl::Time start = absl::Now();
  a.Send(network_->address(1), "late");
  EXPECT_EQ(b.Receive(), "late");
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(44));
}

TEST_F(NetworkHostsTest, ALossyLinkLosesItsShare) {
  Post a(*network_, 0), b(*network_, 1);
  a.Send(network_->address(1), "first");
  ASSERT_EQ(b.Receive(), "first");
  network_->SetLink(0, {.loss = 0.5});
  int lost = 0;
  for (int i = 0; i < 100; ++i) a.Send(network_->address(1), "perhaps");
  network_->SetLink(0, {});
  a.Send(network_->address(1), "end");
  lost = 100;
  while (b.Receive() != "end") --lost;
  EXPECT_GT(lost, 20);
  EXPECT_LT(lost, 80);
}

}  // namespace
}  // namespace nacre::testing
