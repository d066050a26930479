#include "telemetry/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/telemetry/http_get.h"

namespace nacre::telemetry {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpServer::Options options = {}) {
    options.listen = "127.0.0.1:0";
    HttpServer::Pages pages;
    pages["/quick"] = {[] { return HttpServer::Answer{200, "here\n"}; }};
    pages["/slow"] = {[this] {
                        ++num_renderings_;
                        if (!asked_.HasBeenNotified()) asked_.Notify();
                        released_.WaitForNotification();
                        return HttpServer::Answer{200, "at last\n"};
                      },
                      /*may_block=*/true};
    pages["/other"] = {[] {
                         return HttpServer::Answer{200, "another\n"};
                       },
                       /*may_block=*/true};
    auto server = HttpServer::Start(options, std::move(pages));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    if (!released_.HasBeenNotified()) released_.Notify();
  }
  std::string Get(const std::string& path) {
    return HttpGet(server_->address(), path);
  }
  std::unique_ptr<HttpConnection> Connect() {
    return std::make_unique<HttpConnection>(server_->address());
  }

  std::atomic<int> num_renderings_{0};
  absl::Notification asked_;
  absl::Notification released_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersOneGetOfAPage) {
  Start();
  const std::string answer = Get("/quick");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nhere\n"));
  EXPECT_THAT(Get("/quick?from=a+test"), EndsWith("\r\n\r\nhere\n"));
}

TEST_F(HttpServerTest, SaysWhatItDoesNotServe) {
  Start();
  const auto say = [this](const std::string& request) {
    HttpConnection connection(server_->address());
    EXPECT_TRUE(connection.Send(request));
    return connection.ReadAll();
  };
  EXPECT_THAT(Get("/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get("/quick/else"), StartsWith("HTTP/1.1 404 "));
  for (const char* size : {"3", "999999999"}) {
    EXPECT_THAT(say(std::string("POST /quick HTTP/1.1\r\nContent-Length: ") +
                    size + "\r\n\r\nabc"),
                AllOf(StartsWith("HTTP/1.1 405 "),
                      HasSubstr("\r\nAllow: GET, HEAD\r\n")));
  }
  EXPECT_THAT(say("GET /quick\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(say("\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(say("GET /" + std::string(9000, 'x')),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Get("/quick"), StartsWith("HTTP/1.1 200 "));
}

// aiperf asks so whether there is a page.
TEST_F(HttpServerTest, AnswersHeadWithoutABody) {
  Start();
  released_.Notify();
  const auto head = [this](const std::string& path) {
    HttpConnection connection(server_->address());
    EXPECT_TRUE(connection.Send("HEAD " + path + " HTTP/1.1\r\n\r\n"));
    return connection.ReadAll();
  };
  for (const auto& [path, status, length] :
       {std::tuple("/quick", "200", "5"), std::tuple("/slow", "200", "8"),
        std::tuple("/none", "404", "22")}) {
    EXPECT_THAT(
        head(path),
        AllOf(StartsWith(std::string("HTTP/1.1 ") + status),
              HasSubstr(std::string("\r\nContent-Length: ") + length + "\r\n"),
              EndsWith("\r\n\r\n")))
        << path;
  }
}

TEST_F(HttpServerTest, ARequestMayComeInPieces) {
  Start();
  HttpConnection connection(server_->address());
  for (const char* piece : {"GET /qu", "ick HTTP/1.1\r\n", "Host: a\r\n\r"}) {
    ASSERT_TRUE(connection.Send(piece));
    // One whole exchange later the server has seen it.
    EXPECT_THAT(Get("/quick"), EndsWith("here\n"));
  }
  ASSERT_TRUE(connection.Send("\n"));
  EXPECT_THAT(connection.ReadAll(), EndsWith("\r\n\r\nhere\n"));
}

TEST_F(HttpServerTest, NoNumberOfIdleConnectionsDelaysAnAnswer) {
  Start({.max_connections = 8, .client_timeout = absl::Hours(1)});
  std::vector<std::unique_ptr<HttpConnection>> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(Connect());
    if (i % 2 == 0) idle.back()->Send("GET /quick HT");
  }
  EXPECT_THAT(Get("/quick"), EndsWith("\r\n\r\nhere\n"));
  // The oldest have made room.
  EXPECT_EQ(idle.front()->ReadAll(), "");
  // The newest is still welcome.
  ASSERT_TRUE(idle.back()->Send("GET /quick HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(idle.back()->ReadAll(), EndsWith("\r\n\r\nhere\n"));
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosedAfterAWhile) {
  Start({.client_timeout = absl::Milliseconds(1)});
  EXPECT_EQ(Connect()->ReadAll(), "");
}

TEST_F(HttpServerTest, RequestsThatWaitShareARendering) {
  Start({.max_connections = 4});
  std::vector<std::unique_ptr<HttpConnection>> waiting;
  const auto ask = [this, &waiting] {
    waiting.push_back(Connect());
    ASSERT_TRUE(waiting.back()->Send("GET /slow HTTP/1.1\r\n\r\n"));
    // One whole exchange later the server has read it.
    EXPECT_THAT(Get("/quick"), EndsWith("here\n"));
  };
  ask();
  asked_.WaitForNotification();
  ask();
  ask();
  // Those that wait for a page keep their places: idle ones go first.
  std::vector<std::unique_ptr<HttpConnection>> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(Connect());
    EXPECT_THAT(Get("/quick"), EndsWith("here\n"));
  }
  released_.Notify();
  for (const auto& connection : waiting) {
    EXPECT_THAT(connection->ReadAll(), EndsWith("\r\n\r\nat last\n"));
  }
  EXPECT_EQ(num_renderings_, 2);
}

TEST_F(HttpServerTest, WhoWaitsGetsThePageThatItAskedFor) {
  Start();
  std::vector<std::unique_ptr<HttpConnection>> waiting;
  for (const char* page : {"/slow", "/slow", "/other", "/slow"}) {
    waiting.push_back(Connect());
    ASSERT_TRUE(
        waiting.back()->Send(std::string("GET ") + page + " HTTP/1.1\r\n\r\n"));
    // One whole exchange later the server has read it.
    EXPECT_THAT(Get("/quick"), EndsWith("here\n"));
    // The others wait while the first one's is rendered.
    asked_.WaitForNotification();
  }
  released_.Notify();
  EXPECT_THAT(waiting[2]->ReadAll(), EndsWith("\r\n\r\nanother\n"));
  for (const int i : {0, 1, 3}) {
    EXPECT_THAT(waiting[i]->ReadAll(), EndsWith("\r\n\r\nat last\n"));
  }
}

TEST_F(HttpServerTest, APageThatTakesTooLongIsUnavailable) {
  Start({.render_timeout = absl::Milliseconds(1)});
  const std::string answer = Get("/slow");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, EndsWith("the page takes too long\n"));
  EXPECT_THAT(Get("/quick"), EndsWith("here\n"));
}

TEST_F(HttpServerTest, AClientThatHangsUpIsForgotten) {
  Start();
  {
    HttpConnection gone(server_->address());
    ASSERT_TRUE(gone.Send("GET /slow HTTP/1.1\r\n\r\n"));
    asked_.WaitForNotification();
  }
  EXPECT_THAT(Get("/quick"), EndsWith("here\n"));
  released_.Notify();
  EXPECT_THAT(Get("/slow"), EndsWith("at last\n"));
}

TEST_F(HttpServerTest, TheOldestMakesRoomWhereDescriptorsRunOut) {
  Start({.client_timeout = absl::Hours(1)});
  const auto idle = Connect();
  // One whole exchange later the server has accepted it. Both stay open.
  const auto other = Connect();
  ASSERT_TRUE(other->Send("GET /quick HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(other->ReadAll(), EndsWith("here\n"));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{std::min<rlim_t>(limit.rlim_cur, 256), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  EXPECT_FALSE(taken.empty());
  if (!taken.empty()) {
    // For the client alone; the server finds none.
    close(taken.back());
    taken.pop_back();
  }
  EXPECT_THAT(Get("/quick"), EndsWith("here\n"));
  EXPECT_EQ(idle->ReadAll(), "");
  for (const int fd : taken) close(fd);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_F(HttpServerTest, ListensOnNamesAndOnIpv6) {
  const auto named = HttpServer::Start({.listen = "localhost:0"}, {});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_THAT((*named)->address(), StartsWith("localhost:"));
  EXPECT_THAT(HttpGet((*named)->address(), "/"), StartsWith("HTTP/1.1 404 "));
  const auto six = HttpServer::Start({.listen = "[::1]:0"}, {});
  if (six.ok()) {
    EXPECT_THAT((*six)->address(), StartsWith("[::1]:"));
  }
  const auto taken = HttpServer::Start({.listen = (*named)->address()}, {});
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.status().message()),
              HasSubstr((*named)->address()));
  const auto bad = HttpServer::Start({.listen = "9464"}, {});
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("\"9464\""));
}

}  // namespace
}  // namespace nacre::telemetry
