#include "common/rpc/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/callers.h"
#include "common/rpc/server.h"
#include "tests/testing/health_check.h"

namespace nacre::rpc {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A connection of HTTP/2, without gRPC.
class RawClient {
 public:
  RawClient() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience = {.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Connect(const std::string& address) {
    int port = 0;
    ASSERT_TRUE(
        absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(static_cast<uint16_t>(port));
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(
        connect(fd_, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)),
        0);
  }
  // Whether the server says anything: its settings come first. The other case
  // is the connection's end.
  bool IsWelcome() {
    char byte = 0;
    return recv(fd_, &byte, 1, 0) == 1;
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// By their names in /proc: ThreadSanitizer calls it a race to ask a descriptor
// that another thread has just opened.
std::set<int> OpenSockets() {
  std::set<int> sockets;
  for (int fd = 0; fd < 1024; ++fd) {
    char name[32] = {};
    const std::string link = absl::StrCat("/proc/self/fd/", fd);
    if (readlink(link.c_str(), name, sizeof(name) - 1) > 0 &&
        absl::StartsWith(name, "socket:")) {
      sockets.insert(fd);
    }
  }
  return sockets;
}

RpcServer::Options Limited(int max_connections) {
  RpcServer::Options options;
  options.max_connections = max_connections;
  return options;
}

TEST(AcceptorTest, ServesAsGrpcsOwnListener) {
  for (const char* listen : {"127.0.0.1:0", "localhost:0", "0.0.0.0:0"}) {
    RpcServer::Options options = Limited(4);
    options.listen = listen;
    const auto server = RpcServer::Start(options, {});
    ASSERT_TRUE(server.ok()) << server.status();
    const std::string& address = (*server)->address();
    const std::string port = address.substr(address.rfind(':'));
    EXPECT_NE(port, ":0");
    EXPECT_TRUE(nacre::testing::CheckHealth("127.0.0.1" + port, "").ok())
        << listen;
  }
}

TEST(AcceptorTest, AddressesThatCannotBeBoundAreUnavailable) {
  RpcServer::Options options = Limited(4);
  const auto first = RpcServer::Start(options, {});
  ASSERT_TRUE(first.ok());
  for (const std::string& listen :
       {(*first)->address(), std::string("192.0.2.1:0")}) {
    options.listen = listen;
    const absl::Status status = RpcServer::Start(options, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << listen;
    EXPECT_THAT(std::string(status.message()), HasSubstr(listen));
  }
  // Free after a shutdown.
  (*first)->Shutdown(absl::ZeroDuration());
  options.listen = (*first)->address();
  EXPECT_TRUE(RpcServer::Start(options, {}).ok());
}

TEST(AcceptorTest, NoMoreConnectionsAreOpenThanTheLimit) {
  const auto connections = std::make_shared<Connections>();
  RpcServer::Options options = Limited(3);
  options.connections = connections;
  const auto server = *RpcServer::Start(options, {});
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<RawClient>());
    clients.back()->Connect(server->address());
    EXPECT_TRUE(clients.back()->IsWelcome());
    EXPECT_LE(connections->size(), 3u);
  }
}

// Another file may have the number of a connection that is closed.
TEST(AcceptorTest, ANumberThatIsInUseAgainIsNoConnection) {
  const auto server = *RpcServer::Start(Limited(1), {});
  auto client = std::make_unique<RawClient>();
  const std::set<int> before = OpenSockets();
  client->Connect(server->address());
  ASSERT_TRUE(client->IsWelcome());
  std::set<int> accepted = OpenSockets();
  for (const int fd : before) accepted.erase(fd);
  ASSERT_EQ(accepted.size(), 1u);
  const int number = *accepted.begin();
  client = nullptr;
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (fcntl(number, F_GETFD) != -1 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  const int other = open("/dev/null", O_RDONLY);
  ASSERT_EQ(fcntl(other, F_DUPFD, number), number);
  bool welcome = false;
  while (!welcome && absl::Now() < deadline) {
    RawClient next;
    next.Connect(server->address());
    welcome = next.IsWelcome();
  }
  EXPECT_TRUE(welcome);
  // Past ThreadSanitizer, which knows the number from another thread.
  syscall(SYS_close, number);
  if (other != number) close(other);
}

// Else a server would remember each connection that there ever was.
TEST(AcceptorTest, CallersOfClosedConnectionsAreForgotten) {
  const auto callers = std::make_shared<Callers>();
  const auto acceptor = *Acceptor::Bind({.listen = "127.0.0.1:0",
                                         .max_connections = 100,
                                         .sweep_period = absl::Milliseconds(1),
                                         .callers = callers});
  absl::Notification accepted;
  acceptor->Start([&](int, int fd) {
    EXPECT_EQ(callers->size(), 1u);
    close(fd);
    accepted.Notify();
  });
  RawClient client;
  client.Connect(absl::StrCat("127.0.0.1:", acceptor->port()));
  ASSERT_TRUE(accepted.WaitForNotificationWithTimeout(absl::Minutes(1)));
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (callers->size() > 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(callers->size(), 0u);
}

std::set<std::string> Threads() {
  std::set<std::string> threads;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(entry.path());
  }
  return threads;
}

// How often a thread has gone to sleep, by its status in /proc.
int64_t NumSleeps(int status) {
  char text[8192] = {};
  EXPECT_GT(pread(status, text, sizeof(text) - 1, 0), 0);
  const absl::string_view name = "\nvoluntary_ctxt_switches:";
  const absl::string_view found = text;
  int64_t number = -1;
  const size_t begin = found.find(name);
  EXPECT_NE(begin, absl::string_view::npos);
  const absl::string_view rest = found.substr(begin + name.size());
  EXPECT_TRUE(absl::SimpleAtoi(rest.substr(0, rest.find('\n')), &number));
  return number;
}

// What a thread has computed for, by the clock that Linux has for it (man 3
// clock_getcpuclockid).
absl::Duration CpuTime(const std::string& thread) {
  int number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(thread.substr(thread.rfind('/') + 1), &number));
  constexpr clockid_t kThreadsScheduledTime = 6;
  timespec time = {};
  EXPECT_EQ(clock_gettime(
                (~static_cast<clockid_t>(number) << 3) | kThreadsScheduledTime,
                &time),
            0);
  return absl::DurationFromTimespec(time);
}

// gRPC's own listener never accepts again after that.
TEST(AcceptorTest, WithoutFilesConnectionsWait) {
  const auto acceptor =
      *Acceptor::Bind({.listen = "127.0.0.1:0", .max_connections = 100});
  const std::string address = absl::StrCat("127.0.0.1:", acceptor->port());
  const std::set<std::string> before = Threads();
  absl::Notification accepted[2];
  int num_accepted = 0;
  acceptor->Start([&](int, int fd) {
    close(fd);
    if (num_accepted < 2) accepted[num_accepted++].Notify();
  });
  std::set<std::string> started = Threads();
  for (const std::string& thread : before) started.erase(thread);
  ASSERT_EQ(started.size(), 1u);
  const int status = open((*started.begin() + "/status").c_str(), O_RDONLY);
  RawClient first;  // the lowest number that was free
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = static_cast<rlim_t>(first.fd()) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  first.Connect(address);
  // It has tried and slept, tried and slept again: with a descriptor it would
  // sleep once, until something comes.
  const int64_t num_sleeps = NumSleeps(status);
  const absl::Time begin = absl::Now();
  const absl::Duration computed = CpuTime(*started.begin());
  const absl::Time deadline = begin + absl::Minutes(1);
  while (NumSleeps(status) < num_sleeps + 10 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_GE(NumSleeps(status), num_sleeps + 10);
  // Asleep for most of that time: but for a few, each sleep is one of 50 ms.
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(200));
  EXPECT_LT(CpuTime(*started.begin()) - computed, absl::Milliseconds(50));
  EXPECT_FALSE(accepted[0].HasBeenNotified());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(accepted[0].WaitForNotificationWithTimeout(absl::Minutes(1)));
  RawClient second;
  second.Connect(address);
  EXPECT_TRUE(accepted[1].WaitForNotificationWithTimeout(absl::Minutes(1)));
  acceptor->Stop();
  close(status);
}

}  // namespace
}  // namespace nacre::rpc
