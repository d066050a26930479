#include "tests/testing/fault_proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace nacre::testing {
namespace {

// A server that the test plays by hand, and a client of the proxy before it.
class FaultProxyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    ASSERT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listener_, 8), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    upstream_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  void TearDown() override {
    for (int fd : {listener_, client_, server_}) close(fd);
  }

  // A call that hangs fails instead.
  static void SetTimeout(int fd) {
    const timeval patience = {30, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  void Dial(const FaultProxy& proxy) {
    int port = 0;
    ASSERT_TRUE(absl::SimpleAtoi(
        proxy.address().substr(proxy.address().rfind(':') + 1), &port));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    SetTimeout(client_);
    ASSERT_EQ(connect(client_, reinterpret_cast<sockaddr*>(&address),
                      sizeof(address)),
              0);
  }
  void Connect(const FaultProxy& proxy) {
    Dial(proxy);
    server_ = accept(listener_, nullptr, nullptr);
    ASSERT_GE(server_, 0);
    SetTimeout(server_);
  }
  static void Say(int fd, const std::string& text) {
    ASSERT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // "" at the end of the stream, "reset" after a reset.
  static std::string Hear(int fd) {
    char buffer[256];
    const ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
    if (count < 0) return errno == ECONNRESET ? "reset" : "timeout";
    return std::string(buffer, static_cast<size_t>(count));
  }

  std::string upstream_;
  int listener_ = -1;
  int client_ = -1;
  int server_ = -1;
};

TEST_F(FaultProxyTest, ForwardsBothWaysUntilBothHaveEnded) {
  FaultProxy proxy([this] { return upstream_; });
  Connect(proxy);
  Say(client_, "ping");
  EXPECT_EQ(Hear(server_), "ping");
  Say(server_, "pong");
  EXPECT_EQ(Hear(client_), "pong");
  shutdown(client_, SHUT_WR);
  EXPECT_EQ(Hear(server_), "");
  Say(server_, "late");
  EXPECT_EQ(Hear(client_), "late");
  close(server_);
  EXPECT_EQ(Hear(client_), "");
}

TEST_F(FaultProxyTest, SilenceHoldsEveryByteAndHealingDeliversThem) {
  FaultProxy proxy([this] { return upstream_; });
  Connect(proxy);
  proxy.SetMode(FaultProxy::Mode::kSilent);
  Say(client_, "lost?");
  char byte;
  const timeval moment = {0, 50000};
  setsockopt(server_, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment));
  EXPECT_LT(recv(server_, &byte, 1, 0), 0);
  SetTimeout(server_);
  proxy.SetMode(FaultProxy::Mode::kForward);
  EXPECT_EQ(Hear(server_), "lost?");
}

TEST_F(FaultProxyTest, ACutResetsBothEndsAndNewConnectionsWork) {
  FaultProxy proxy([this] { return upstream_; });
  Connect(proxy);
  Say(client_, "ping");
  EXPECT_EQ(Hear(server_), "ping");
  proxy.Cut();
  EXPECT_EQ(Hear(client_), "reset");
  EXPECT_EQ(Hear(server_), "reset");
  close(client_);
  close(server_);
  Connect(proxy);
  Say(client_, "again");
  EXPECT_EQ(Hear(server_), "again");
}

TEST_F(FaultProxyTest, ResetsNewConnectionsInResetModeAndWithoutAnUpstream) {
  FaultProxy proxy([this] { return upstream_; });
  proxy.SetMode(FaultProxy::Mode::kReset);
  Dial(proxy);
  EXPECT_EQ(Hear(client_), "reset");
  FaultProxy nowhere([] { return std::string(); });
  close(client_);
  Dial(nowhere);
  EXPECT_EQ(Hear(client_), "reset");
}

TEST_F(FaultProxyTest, ADelayedByteIsNotEarly) {
  FaultProxy proxy([this] { return upstream_; });
  Connect(proxy);
  proxy.SetDelay(absl::Milliseconds(30));
  const absl::Time start = absl::Now();
  Say(client_, "ping");
  EXPECT_EQ(Hear(server_), "ping");
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(30));
}

TEST_F(FaultProxyTest, TheOldestConnectionsStayUnderALimit) {
  FaultProxy proxy([this] { return upstream_; });
  Connect(proxy);
  const int old_client = client_, old_server = server_;
  Connect(proxy);
  proxy.SetLimit(1);
  EXPECT_EQ(Hear(client_), "reset");
  EXPECT_EQ(Hear(server_), "reset");
  close(client_);
  close(server_);
  Dial(proxy);
  EXPECT_EQ(Hear(client_), "reset");
  Say(old_client, "hello");
  EXPECT_EQ(Hear(old_server), "hello");
  proxy.SetLimit(2);
  close(client_);
  Connect(proxy);
  Say(client_, "again");
  EXPECT_EQ(Hear(server_), "again");
  close(old_client);
  close(old_server);
}

}  // namespace
}  // namespace nacre::testing
