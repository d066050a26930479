// What travels on a connection on which nothing happens: HTTP/2 frames, read
// and written by hand.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "proto/admin.grpc.pb.h"

namespace nacre::rpc {
namespace {

constexpr uint8_t kSettings = 4;
constexpr uint8_t kPing = 6;
constexpr uint8_t kGoAway = 7;
constexpr uint8_t kAck = 1;

struct Frame {
  uint8_t type = 0;
  uint8_t flags = 0;
  std::string payload;
};

// One end of a connection. Owns the socket.
class Http2Peer {
 public:
  explicit Http2Peer(int fd) : fd_(fd) {
    const timeval patience = {.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~Http2Peer() { close(fd_); }

  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void Send(uint8_t type, uint8_t flags, const std::string& payload) {
    std::string bytes(9, '\0');  // of stream 0
    bytes[2] = static_cast<char>(payload.size());
    bytes[3] = static_cast<char>(type);
    bytes[4] = static_cast<char>(flags);
    Send(bytes + payload);
  }
  // Nothing where the connection ends.
  std::optional<Frame> Receive() {
    const std::string head = ReceiveBytes(9);
    if (head.size() < 9) return std::nullopt;
    const auto byte = [&](int i) { return static_cast<uint8_t>(head[i]); };
    Frame frame{byte(3), byte(4), ""};
    frame.payload = ReceiveBytes(byte(0) << 16 | byte(1) << 8 | byte(2));
    return frame;
  }
  std::string ReceiveBytes(size_t size) {
    std::string bytes(size, '\0');
    const ssize_t got = recv(fd_, bytes.data(), size, MSG_WAITALL);
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }

 private:
  const int fd_;
};

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// A client's end, greeted.
std::unique_ptr<Http2Peer> Connect(const RpcServer& server) {
  int port = 0;
  const std::string& address = server.address();
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  const sockaddr_in peer = Loopback(port);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)),
            0);
  auto client = std::make_unique<Http2Peer>(fd);
  client->Send(kPreface);
  client->Send(kSettings, 0, "");
  return client;
}

TEST(KeepaliveTest, AServerBearsThePingsOfASilentConnection) {
  RpcServer::Options options;
  options.keepalive.time = absl::Milliseconds(20);
  const auto server = *RpcServer::Start(options, {});
  const auto client = Connect(*server);
  for (int ping = 0; ping < 8; ++ping) {
    const std::string payload = absl::StrCat("silence", ping);
    client->Send(kPing, 0, payload);
    std::optional<Frame> frame;
    do {
      frame = client->Receive();
      ASSERT_TRUE(frame.has_value()) << "after ping " << ping;
      ASSERT_NE(frame->type, kGoAway) << "after ping " << ping;
    } while (frame->type != kPing || frame->payload != payload);
    EXPECT_EQ(frame->flags, kAck);
    // As our channels: no ping before its time has passed.
    absl::SleepFor(options.keepalive.time);
  }
}

TEST(KeepaliveTest, AServerSaysHowManyStreamsAConnectionMayHave) {
  RpcServer::Options options;
  options.max_streams_per_connection = 77;
  const auto server = *RpcServer::Start(options, {});
  const auto client = Connect(*server);
  const std::optional<Frame> frame = client->Receive();
  ASSERT_TRUE(frame.has_value());
  ASSERT_EQ(frame->type, kSettings);
  std::string limit("\0\x03\0\0\0\x4d", 6);  // MAX_CONCURRENT_STREAMS
  bool found = false;
  for (size_t i = 0; i + 6 <= frame->payload.size(); i += 6) {
    found = found || frame->payload.substr(i, 6) == limit;
  }
  EXPECT_TRUE(found);
}

TEST(KeepaliveTest, AServerMayBearAnIdleConnectionForEver) {
  RpcServer::Options options;
  options.max_idle = absl::InfiniteDuration();
  const auto server = *RpcServer::Start(options, {});
  const auto client = Connect(*server);
  client->Send(kPing, 0, "for ever");
  std::optional<Frame> frame;
  do {
    frame = client->Receive();
    ASSERT_TRUE(frame.has_value());
    ASSERT_NE(frame->type, kGoAway);
  } while (frame->type != kPing || frame->payload != "for ever");
}

TEST(KeepaliveTest, AServerSendsAConnectionWithoutCallsAway) {
  RpcServer::Options options;
  options.max_idle = absl::Milliseconds(50);
  // Another limit, of the time that an answer to a ping may take.
  options.keepalive.timeout = absl::Hours(1);
  const auto server = *RpcServer::Start(options, {});
  const auto client = Connect(*server);
  std::optional<Frame> frame;
  do {
    frame = client->Receive();
    ASSERT_TRUE(frame.has_value()) << "the connection ends without a word";
  } while (frame->type != kGoAway);
}

// Pings of the server until the client's own one has come back `rounds` times,
// each after some data.
int PingsAtData(const RpcServer& server, int rounds) {
  const auto client = Connect(server);
  int num_pings = 0;
  for (int round = 0; round < rounds; ++round) {
    client->Send(std::string("\0\0\4\0\0\0\0\0\1data", 13));
    const std::string payload = absl::StrCat("  data ", round);
    client->Send(kPing, 0, payload);
    std::optional<Frame> frame;
    do {
      frame = client->Receive();
      if (!frame.has_value()) {
        ADD_FAILURE() << "the connection ends";
        return -1;
      }
      if (frame->type != kPing || frame->flags == kAck) continue;
      ++num_pings;
      client->Send(kPing, kAck, frame->payload);
    } while (frame->flags != kAck || frame->payload != payload);
  }
  return num_pings;
}

// It would let a fast client send megabytes before anything is read.
TEST(KeepaliveTest, AServerWithAMemoryLimitDoesNotMeasureHowMuchMayCome) {
  RpcServer::Options options;
  EXPECT_GT(PingsAtData(**RpcServer::Start(options, {}), 4), 0);
  options.max_memory_bytes = int64_t{64} << 20;
  EXPECT_EQ(PingsAtData(**RpcServer::Start(options, {}), 4), 0);
}

// gRPC pings once a second at most.
TEST(KeepaliveTest, AChannelGoesOnPingingOnASilentStream) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const auto stub = v1::Admin::NewStub(
      CreateChannel(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), {},
                    {.time = absl::Seconds(1), .timeout = absl::Seconds(30)}));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Minutes(1)));
  std::thread call([&] {
    v1::ServerInfo response;
    stub->GetServerInfo(&context, {}, &response);
  });
  int pings = 0;
  {
    Http2Peer server(accept(listener, nullptr, nullptr));
    EXPECT_EQ(server.ReceiveBytes(sizeof(kPreface) - 1), kPreface);
    server.Send(kSettings, 0, "");
    while (pings < 5) {
      const std::optional<Frame> frame = server.Receive();
      if (!frame.has_value()) break;
      if (frame->flags & kAck) continue;
      if (frame->type == kSettings) server.Send(kSettings, kAck, "");
      if (frame->type != kPing) continue;
      ++pings;
      server.Send(kPing, kAck, frame->payload);
    }
  }
  EXPECT_EQ(pings, 5);
  context.TryCancel();
  close(listener);
  call.join();
}

}  // namespace
}  // namespace nacre::rpc
