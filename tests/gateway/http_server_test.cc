#include "gateway/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gateway/cors.h"
#include "gateway/event_loop.h"
#include "tests/gateway/http_probe.h"

namespace nacre::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HttpServerTest : public ::testing::Test {
 protected:
  // Answers with the method, the path and the body unless told otherwise.
  void StartServer(HttpLimits limits = {}, HttpHandler handler = nullptr) {
    if (handler == nullptr) {
      handler = [](HttpRequest request,
                   const std::shared_ptr<HttpReply>& reply) {
        reply->Send(
            200, {},
            absl::StrCat(request.method, " ", request.path, " ", request.body));
      };
    }
    HttpServer::Options options{"127.0.0.1:0", limits, {}};
    options.refusal_headers = [](const std::string& origin) {
      return CorsHeaders({}, origin);
    };
    auto server =
        HttpServer::Start(std::move(options), &loop_, std::move(handler));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  const std::string& address() const { return server_->address(); }

  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersARequestAndTellsItsId) {
  StartServer();
  const std::string answer =
      Post(address(), "/a?b=c", "body", "X-Request-Id: mine-1\r\n");
  EXPECT_EQ(StatusOf(answer), 200);
  EXPECT_EQ(BodyOf(answer), "POST /a body");
  EXPECT_THAT(answer, HasSubstr("X-Request-Id: mine-1\r\n"));
  // As clients of a proxy write the path.
  EXPECT_EQ(BodyOf(Post(address(), "http://h:1/a?b", "body")), "POST /a body");
  // One that would not do is replaced.
  EXPECT_THAT(Get(address(), "/", "X-Request-Id: a b\r\n"),
              HasSubstr("X-Request-Id: req-"));
}

TEST_F(HttpServerTest, AConnectionTakesRequestAfterRequest) {
  StartServer();
  nacre::testing::LoopbackConnection connection(address());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(connection.Send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n"));
    std::string answer;
    while (!absl::StrContains(answer, "GET /x")) answer += connection.Read();
    EXPECT_THAT(answer, HasSubstr("Connection: keep-alive\r\n"));
  }
  // Several at once, the last with a body in chunks.
  ASSERT_TRUE(connection.Send(
      "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"
      "POST /3 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
      "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n"
      "Trailer: t\r\n\r\n"));
  const std::string answers = connection.ReadAll();
  const size_t first = answers.find("GET /1 ");
  const size_t second = answers.find("GET /2 ");
  const size_t third = answers.find("POST /3 abcde");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(third, std::string::npos) << answers;
}

TEST_F(HttpServerTest, ASecondConnectionHeaderMayAskForTheEnd) {
  StartServer();
  EXPECT_THAT(Exchange(address(),
                       "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n"
                       "Connection: close\r\n\r\n"),
              HasSubstr("\r\nConnection: close\r\n"));
}

TEST_F(HttpServerTest, ABodyMayComeByteByByteAndAfterAnInvitation) {
  StartServer();
  nacre::testing::LoopbackConnection connection(address());
  const std::string body(1000, 'x');
  ASSERT_TRUE(
      connection.Send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                      "Content-Length: 1000\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(connection.Read(), "HTTP/1.1 100 Continue\r\n\r\n");
  for (const char c : body) ASSERT_TRUE(connection.Send(std::string(1, c)));
  EXPECT_EQ(BodyOf(connection.ReadAll()), "POST / " + body);
  nacre::testing::LoopbackConnection twice(address());
  ASSERT_TRUE(
      twice.Send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                 "Expect: 100-continue\r\nContent-Length: 1\r\nConnection: "
                 "close\r\n\r\n"));
  EXPECT_EQ(twice.Read(), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(twice.Send("x"));
  EXPECT_EQ(BodyOf(twice.ReadAll()), "POST / x");
}

struct Malformed {
  const char* name;
  std::string bytes;
  int status;
};

// Where a body ends, said in ways that proxies read differently.
std::vector<Malformed> BadFramings(const std::string& post) {
  return {
      {"two equal lengths",
       post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400},
      {"two lengths", post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
       400},
      {"lengths in one", post + "Content-Length: 1, 1\r\n\r\nx", 400},
      {"a negative length", post + "Content-Length: -1\r\n\r\n", 400},
      {"a length with a sign", post + "Content-Length: +1\r\n\r\nx", 400},
      {"a hexadecimal length", post + "Content-Length: 0x1\r\n\r\nx", 400},
      {"an empty length", post + "Content-Length:\r\n\r\n", 400},
      {"a length without bounds",
       post + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {"a long body", post + "Content-Length: 1025\r\n\r\n", 413},
      {"length and chunks",
       post +
           "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"chunks and length",
       post +
           "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
       400},
      {"chunked twice",
       post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
              "0\r\n\r\n",
       400},
      {"chunked, chunked",
       post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400},
      {"gzip and chunks",
       post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"another coding", post + "Transfer-Encoding: xchunked\r\n\r\n", 400},
      {"identity", post + "Transfer-Encoding: identity\r\n\r\n", 400},
      {"a tab before chunked",
       post + "Transfer-Encoding: \x0b"
              "chunked\r\n\r\n0\r\n\r\n",
       400},
      {"chunks in HTTP/1.0",
       "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
  };
}

std::vector<Malformed> MalformedRequests() {
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  std::vector<Malformed> cases = BadFramings(post);
  const std::vector<Malformed> heads = {
      {"no HTTP", "hello\r\n\r\n", 400},
      {"TLS", std::string("\x16\x03\x01\x02\x00", 5), 400},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"HTTP/0.9", "GET /\r\n\r\n", 400},
      {"HTTP/1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", 400},
      {"lower-case version", "GET / http/1.1\r\nHost: h\r\n\r\n", 400},
      {"two blanks", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"a tab", "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"no target", "GET HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"a word too many", "GET / x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"a full address without a host",
       "GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"a full address and no Host", "GET http://h/ HTTP/1.1\r\n\r\n", 400},
      {"a star", "GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two Hosts", "GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400},
      {"a blank in Host", "GET / HTTP/1.1\r\nHost: h i\r\n\r\n", 400},
      {"two Hosts in one", "GET / HTTP/1.1\r\nHost: h,i\r\n\r\n", 400},
      {"a folded header", post + "A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
       400},
      {"a blank before the colon", post + "Content-Length : 1\r\n\r\nx", 400},
      {"no colon", post + "Content-Length\r\n\r\n", 400},
      {"an empty name", post + ": x\r\n\r\n", 400},
      {"NUL in a value", post + std::string("A: b\0c\r\n\r\n", 10), 400},
      {"CR in a value", post + "A: b\rc\r\n\r\n", 400},
      {"LF in a value", post + "A: b\nContent-Length: 1\r\n\r\nx", 400},
      {"ends of lines without CR", "GET / HTTP/1.1\nHost: h\n\r\n\r\n", 400},
      {"a whole head without CR", "GET / HTTP/1.1\nHost: h\n\n", 400},
      {"a last line without CR", "GET / HTTP/1.1\r\nHost: h\n\n", 400},
      {"a compressed body",
       post + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 415},
      {"a compressed body, said last",
       post + "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n"
              "Content-Length: 1\r\n\r\nx",
       415},
      {"another expectation, said last",
       post + "Expect: 100-continue\r\nExpect: teapot\r\n"
              "Content-Length: 1\r\n\r\nx",
       417},
      {"another expectation",
       post + "Expect: teapot\r\nContent-Length: 1\r\n\r\nx", 417},
      {"a long line", "GET /" + std::string(2000, 'a') + " HTTP/1.1\r\n\r\n",
       431},
      {"a long header", post + "A: " + std::string(2000, 'a') + "\r\n\r\n",
       431},
      {"a head without an end", "GET / HTTP/1.1\r\n" + std::string(2000, 'a'),
       431},
  };
  cases.insert(cases.end(), heads.begin(), heads.end());
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  for (const char* body :
       {"x\r\n\r\n", "-1\r\nx\r\n", "0x1\r\nx\r\n0\r\n\r\n", " 1\r\nx\r\n",
        "1\nx\n0\n\n", "1\r\nxy\r\n0\r\n\r\n", "fffffffffffffffff\r\nx\r\n",
        "\r\n\r\n", "1\r\nx\n0\r\n\r\n", "1\r\nx\r\n0\n\n", "0\r\n\n",
        "0\r\nA: b\n\n", "0\r\nA: b\r\n c\r\n\r\n", "0\r\nA\r\n\r\n",
        "0\r\nHost: i\r\n\r\n", "0\r\nContent-Length: 1\r\n\r\nx",
        "1;\x01\r\nx\r\n0\r\n\r\n", "1 \r\nx\r\n0\r\n\r\n"}) {
    cases.push_back({"a bad chunk", chunked + body, 400});
  }
  cases.push_back(
      {"chunks too long",
       chunked + "401\r\n" + std::string(1025, 'x') + "\r\n0\r\n\r\n", 413});
  cases.push_back({"a chunk's line too long",
                   chunked + "1;" + std::string(2000, 'a'), 400});
  for (const char* name : {"\x80", "a b", "a(b", "a/b", "a\"b", "a{b"}) {
    cases.push_back({"a bad name", post + name + ": x\r\n\r\n", 400});
  }
  for (int byte = 1; byte < 0x20; ++byte) {
    if (byte == '\t') continue;
    cases.push_back(
        {"a control character",
         absl::StrCat(post, "A: b", std::string(1, char(byte)), "c\r\n\r\n"),
         400});
  }
  return cases;
}

TEST_F(HttpServerTest, EachMalformedRequestGetsItsStatusAndIsTheLast) {
  HttpLimits limits;
  limits.max_body_bytes = 1024;
  limits.max_head_bytes = 1024;
  StartServer(limits);
  for (const Malformed& test : MalformedRequests()) {
    // What follows must not be taken for another request.
    const std::string answer =
        Exchange(address(), test.bytes + "GET /smuggled HTTP/1.1\r\n\r\n");
    EXPECT_EQ(StatusOf(answer), test.status) << test.name << "\n" << answer;
    EXPECT_THAT(answer, HasSubstr("{\"error\":{\"message\":\"")) << test.name;
    EXPECT_THAT(answer, HasSubstr("Connection: close")) << test.name;
    EXPECT_THAT(answer, Not(HasSubstr("smuggled"))) << test.name;
  }
}

TEST_F(HttpServerTest, ARequestThatEndsEarlyIsToldSo) {
  StartServer();
  for (const char* bytes :
       {"GET / HT",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nx"}) {
    nacre::testing::LoopbackConnection connection(address());
    ASSERT_TRUE(connection.Send(bytes));
    connection.HalfClose();
    EXPECT_EQ(StatusOf(connection.ReadAll()), 400) << bytes;
  }
}

TEST_F(HttpServerTest, ASlowHeadEndsWith408) {
  HttpLimits limits;
  limits.head_timeout = absl::Milliseconds(50);
  std::string answer;
  // On a busy machine the time may end before a byte of the head is read.
  while (answer.empty() && limits.head_timeout < absl::Minutes(1)) {
    StartServer(limits);
    // Nothing at all: closed without a word.
    EXPECT_EQ(Exchange(address(), ""), "");
    answer = Exchange(address(), "GET / HTTP/1.1\r\n");
    limits.head_timeout *= 2;
  }
  EXPECT_EQ(StatusOf(answer), 408);
}

TEST_F(HttpServerTest, ASlowBodyEndsWith408) {
  HttpLimits limits;
  limits.head_timeout = absl::Hours(1);
  limits.body_timeout = absl::Milliseconds(50);
  StartServer(limits);
  EXPECT_EQ(StatusOf(Exchange(
                address(),
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nx")),
            408);
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosedWithoutAWord) {
  HttpLimits limits;
  limits.head_timeout = absl::Hours(1);
  limits.idle_timeout = absl::Milliseconds(50);
  StartServer(limits);
  const std::string answer =
      Exchange(address(), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("keep-alive"));
  EXPECT_EQ(BodyOf(answer), "GET / ");
}

TEST_F(HttpServerTest, BodiesOfAllConnectionsHaveALimit) {
  HttpLimits limits;
  limits.max_body_bytes = limits.max_held_bytes = 2000;
  StartServer(limits);
  const std::string half =
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1500\r\n\r\n" +
      std::string(1200, 'x');
  nacre::testing::LoopbackConnection first(address());
  nacre::testing::LoopbackConnection second(address());
  ASSERT_TRUE(first.Send(half));
  // The server has read it when it answers what came later.
  EXPECT_EQ(StatusOf(Get(address(), "/")), 200);
  ASSERT_TRUE(second.Send(half));
  EXPECT_EQ(StatusOf(second.Read()), 503);
  ASSERT_TRUE(first.Send(std::string(300, 'x')));
  EXPECT_EQ(StatusOf(first.Read()), 200);
}

// A body stays counted while something still holds it, whatever its client
// does.
TEST_F(HttpServerTest, ABodyCountsUntilItIsLetGo) {
  HttpLimits limits;
  limits.max_body_bytes = limits.max_held_bytes = 2000;
  HttpRequest kept;
  absl::Notification gone;
  StartServer(limits, [&](HttpRequest request,
                          const std::shared_ptr<HttpReply>& reply) {
    if (request.path != "/kept") return reply->Send(200, {}, "");
    reply->OnGone([&gone] { gone.Notify(); });
    kept = std::move(request);
  });
  {
    nacre::testing::LoopbackConnection connection(address());
    ASSERT_TRUE(connection.Send(PostBytes("/kept", std::string(1500, 'x'))));
    // Nothing more comes: the server notices the end of its client.
  }
  gone.WaitForNotification();
  EXPECT_EQ(StatusOf(Post(address(), "/", std::string(1000, 'x'))), 503);
  EXPECT_EQ(StatusOf(Post(address(), "/", std::string(400, 'x'))), 200);
  kept = {};  // on any thread
  EXPECT_EQ(StatusOf(Post(address(), "/", std::string(1000, 'x'))), 200);
}

TEST_F(HttpServerTest, AStreamComesInChunksOrUntilTheEnd) {
  StartServer({}, [](HttpRequest, const std::shared_ptr<HttpReply>& reply) {
    reply->Begin(200, {{"Content-Type", "text/event-stream"}});
    reply->Write("data: 1\n\n");
    reply->Write("");
    reply->Write("data: 2\n\n");
    reply->End();
    reply->Write("late");
  });
  const std::string chunked = Get(address(), "/");
  EXPECT_THAT(chunked, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_EQ(BodyOf(chunked),
            "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  const std::string old = Exchange(address(), "GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old, Not(HasSubstr("chunked")));
  EXPECT_EQ(BodyOf(old), "data: 1\n\ndata: 2\n\n");
}

TEST_F(HttpServerTest, AHeadRequestHasNoBody) {
  StartServer();
  const std::string answer = Exchange(
      address(), "HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 8\r\n"));
  EXPECT_EQ(BodyOf(answer), "");
}

// Neither HEAD nor HTTP/1.0 of one request holds for what comes after it.
TEST_F(HttpServerTest, AnErrorAfterAHeadRequestHasItsBody) {
  StartServer();
  const std::string answers =
      Exchange(address(), "HEAD /x HTTP/1.1\r\nHost: h\r\n\r\nhello\r\n\r\n");
  EXPECT_THAT(BodyOf(answers), HasSubstr("HTTP/1.1 400 "));
  EXPECT_THAT(BodyOf(BodyOf(answers)), HasSubstr("{\"error\":"));
}

TEST_F(HttpServerTest, AnEmptyLineBeforeARequestMayComeInHalves) {
  StartServer();
  nacre::testing::LoopbackConnection connection(address());
  // The first half has come with the request before.
  ASSERT_TRUE(connection.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n\r"));
  EXPECT_EQ(StatusOf(connection.Read()), 200);
  ASSERT_TRUE(connection.Send(
      "\nGET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  const std::string answer = connection.ReadAll();
  EXPECT_EQ(StatusOf(answer), 200);
  EXPECT_EQ(BodyOf(answer), "GET /2 ");
}

TEST_F(HttpServerTest, AClientThatGoesIsNoticedWhileItWaits) {
  absl::Notification asked;
  absl::Notification gone;
  StartServer({}, [&](HttpRequest, const std::shared_ptr<HttpReply>& reply) {
    reply->OnGone([&gone, reply] { gone.Notify(); });
    asked.Notify();
  });
  {
    nacre::testing::LoopbackConnection connection(address());
    ASSERT_TRUE(connection.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    asked.WaitForNotification();
    EXPECT_EQ(server_->running(), 1);
  }
  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(absl::Minutes(1)));
}

// The handler writes as long as there is room; a client that reads nothing
// stops it, and going on reading lets it go on.
TEST_F(HttpServerTest, AClientThatDoesNotReadHoldsTheStream) {
  constexpr int64_t kTotal = int64_t{64} << 20;
  std::atomic<int64_t> written{0};
  absl::Notification full;
  StartServer({}, [&](HttpRequest, const std::shared_ptr<HttpReply>& reply) {
    reply->Begin(200, {});
    const auto fill = [&, reply = reply.get()] {
      while (reply->HasRoom() && written < kTotal) {
        reply->Write(std::string(8192, 'x'));
        written += 8192;
      }
      if (written >= kTotal) return reply->End();
      if (!full.HasBeenNotified()) full.Notify();
    };
    reply->OnRoom(fill);
    fill();
  });
  nacre::testing::LoopbackConnection connection(address());
  ASSERT_TRUE(connection.Send("GET / HTTP/1.0\r\n\r\n"));
  full.WaitForNotification();
  EXPECT_LT(written, kTotal);
  EXPECT_EQ(BodyOf(connection.ReadAll()).size(), size_t{kTotal});
}

TEST_F(HttpServerTest, AClientThatNeverReadsIsGoneInTheEnd) {
  HttpLimits limits;
  limits.write_timeout = absl::Milliseconds(100);
  absl::Notification gone;
  StartServer(limits,
              [&](HttpRequest, const std::shared_ptr<HttpReply>& reply) {
                reply->OnGone([&gone] { gone.Notify(); });
                reply->Begin(200, {});
                reply->Write(std::string(64 << 20, 'x'));
              });
  nacre::testing::LoopbackConnection connection(address());
  ASSERT_TRUE(connection.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(absl::Minutes(1)));
}

TEST_F(HttpServerTest, OneConnectionTooManyTakesThePlaceOfAnIdleOne) {
  HttpLimits limits;
  limits.max_connections = 2;
  StartServer(limits);
  nacre::testing::LoopbackConnection idle(address());
  ASSERT_TRUE(idle.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(StatusOf(idle.Read()), 200);
  nacre::testing::LoopbackConnection other(address());
  ASSERT_TRUE(other.Send("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(StatusOf(other.Read()), 200);
  EXPECT_EQ(StatusOf(Get(address(), "/3")), 200);
  EXPECT_EQ(idle.ReadAll(), "");
  ASSERT_TRUE(other.Send("GET /4 HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(StatusOf(other.Read()), 200);
}

TEST_F(HttpServerTest, RequestsThatDoNotEndKeepNoOtherOut) {
  HttpLimits limits;
  limits.max_connections = 2;
  StartServer(limits);
  // In the middle of a head: the server has read as much when it answers.
  nacre::testing::LoopbackConnection in_head(address());
  ASSERT_TRUE(in_head.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nG"));
  EXPECT_EQ(StatusOf(in_head.Read()), 200);
  nacre::testing::LoopbackConnection in_body(address());
  ASSERT_TRUE(
      in_body.Send("POST /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                   "Expect: 100-continue\r\nContent-Length: 1\r\n\r\n"));
  EXPECT_EQ(StatusOf(in_body.Read()), 100);
  // The older one goes.
  nacre::testing::LoopbackConnection third(address());
  ASSERT_TRUE(
      third.Send("POST /3 HTTP/1.1\r\nHost: h\r\n"
                 "Expect: 100-continue\r\nContent-Length: 1\r\n"
                 "Connection: close\r\n\r\n"));
  EXPECT_EQ(StatusOf(third.Read()), 100);
  EXPECT_EQ(in_head.ReadAll(), "");
  EXPECT_EQ(StatusOf(Get(address(), "/4")), 200);
  EXPECT_EQ(in_body.ReadAll(), "");
  ASSERT_TRUE(third.Send("x"));
  EXPECT_EQ(BodyOf(third.ReadAll()), "POST /3 x");
}

TEST_F(HttpServerTest, AnIdleConnectionGoesBeforeOneWhoseRequestComes) {
  HttpLimits limits;
  limits.max_connections = 2;
  StartServer(limits);
  nacre::testing::LoopbackConnection in_head(address());
  ASSERT_TRUE(in_head.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nG"));
  EXPECT_EQ(StatusOf(in_head.Read()), 200);
  nacre::testing::LoopbackConnection idle(address());
  ASSERT_TRUE(idle.Send("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(StatusOf(idle.Read()), 200);
  EXPECT_EQ(StatusOf(Get(address(), "/3")), 200);
  EXPECT_EQ(idle.ReadAll(), "");
  ASSERT_TRUE(
      in_head.Send("ET /4 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(StatusOf(in_head.ReadAll()), 200);
}

TEST_F(HttpServerTest, DrainWaitsForAnswersAndTakesNothingNew) {
  std::shared_ptr<HttpReply> held;
  absl::Notification asked;
  StartServer({}, [&](HttpRequest, const std::shared_ptr<HttpReply>& reply) {
    held = reply;
    asked.Notify();
  });
  nacre::testing::LoopbackConnection connection(address());
  ASSERT_TRUE(connection.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  asked.WaitForNotification();
  EXPECT_FALSE(server_->Drain(absl::ZeroDuration()));
  EXPECT_EQ(Get(address(), "/"), "");
  loop_.Post([&] { std::exchange(held, nullptr)->Send(200, {}, "late"); });
  EXPECT_EQ(BodyOf(connection.ReadAll()), "late");
  EXPECT_TRUE(server_->Drain(absl::Minutes(1)));
}

// As of a proxy that keeps connections, and does not know of the drain.
TEST_F(HttpServerTest, AKeptConnectionHasOneMoreAnswerInADrain) {
  HttpLimits limits;
  limits.drain_idle = absl::Hours(1);
  StartServer(limits);
  nacre::testing::LoopbackConnection kept(address());
  ASSERT_TRUE(kept.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_THAT(kept.Read(), HasSubstr("Connection: keep-alive\r\n"));
  std::thread drain([&] { EXPECT_TRUE(server_->Drain(absl::Hours(1))); });
  while (!Get(address(), "/").empty()) std::this_thread::yield();
  EXPECT_TRUE(
      kept.Send("POST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"
                "\r\nx"));
  const std::string last = kept.ReadAll();
  EXPECT_EQ(BodyOf(last), "POST /2 x");
  EXPECT_THAT(last, HasSubstr("Connection: close\r\n"));
  drain.join();
}

TEST_F(HttpServerTest, AKeptConnectionWithoutARequestEndsInADrain) {
  HttpLimits limits;
  limits.drain_idle = absl::Milliseconds(1);
  StartServer(limits);
  nacre::testing::LoopbackConnection kept(address());
  ASSERT_TRUE(kept.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(StatusOf(kept.Read()), 200);
  EXPECT_TRUE(server_->Drain(absl::Hours(1)));
  EXPECT_EQ(kept.ReadAll(), "");
}

TEST_F(HttpServerTest, ARequestThatComesToItsEndDuringADrainIsTheLast) {
  StartServer();
  // In the middle of a head: the server has read as much when it answers.
  nacre::testing::LoopbackConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nG"));
  const std::string first = connection.Read();
  EXPECT_EQ(StatusOf(first), 200);
  EXPECT_THAT(first, HasSubstr("Connection: keep-alive"));
  EXPECT_FALSE(server_->Drain(absl::ZeroDuration()));
  ASSERT_TRUE(connection.Send("ET /2 HTTP/1.1\r\nHost: h\r\n\r\n"));
  const std::string last = connection.ReadAll();
  EXPECT_EQ(StatusOf(last), 200);
  EXPECT_THAT(last, HasSubstr("Connection: close"));
}

// An answer whose head promised that the connection goes on ends in a drain,
// and a part of the next request has come.
TEST_F(HttpServerTest, ARequestBehindAnAnswerIsAnsweredInADrain) {
  std::shared_ptr<HttpReply> held;
  absl::Notification asked;
  StartServer(
      {}, [&](HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
        if (request.path == "/2") return reply->Send(200, {}, "second");
        reply->Begin(200, {});
        held = reply;
        asked.Notify();
      });
  nacre::testing::LoopbackConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nG"));
  asked.WaitForNotification();
  EXPECT_FALSE(server_->Drain(absl::ZeroDuration()));
  loop_.Post([&] { std::exchange(held, nullptr)->End(); });
  std::string answers;
  // Its last chunk; a head may end with a 0, too.
  while (!absl::StrContains(answers, "\r\n0\r\n\r\n")) {
    const std::string more = connection.Read();
    ASSERT_NE(more, "") << answers;
    answers += more;
  }
  EXPECT_THAT(answers, HasSubstr("Connection: keep-alive"));
  ASSERT_TRUE(connection.Send("ET /2 HTTP/1.1\r\nHost: h\r\n\r\n"));
  const std::string last = connection.ReadAll();
  EXPECT_EQ(BodyOf(last), "second");
  EXPECT_THAT(last, HasSubstr("Connection: close"));
  EXPECT_TRUE(server_->Drain(absl::Minutes(1)));
}

TEST_F(HttpServerTest, AnAnswerThatBeginsInADrainIsTheLast) {
  std::shared_ptr<HttpReply> held;
  absl::Notification asked;
  StartServer({}, [&](HttpRequest, const std::shared_ptr<HttpReply>& reply) {
    held = reply;
    asked.Notify();
  });
  nacre::testing::LoopbackConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nG"));
  asked.WaitForNotification();
  EXPECT_FALSE(server_->Drain(absl::ZeroDuration()));
  loop_.Post([&] { std::exchange(held, nullptr)->Send(200, {}, "late"); });
  EXPECT_THAT(connection.ReadAll(), HasSubstr("Connection: close"));
}

TEST_F(HttpServerTest, AnAnswerOfAnOldConnectionIsItsLast) {
  HttpLimits limits;
  limits.max_age = absl::Nanoseconds(1);
  std::atomic<int> asked{0};
  StartServer(limits,
              [&](HttpRequest, const std::shared_ptr<HttpReply>& reply) {
                ++asked;
                reply->Begin(200, {});
                reply->Write("all ");
                reply->Write("of it");
                reply->End();
              });
  nacre::testing::LoopbackConnection connection(address());
  ASSERT_TRUE(connection.Send(
      "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"));
  const std::string answer = connection.ReadAll();
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(answer, HasSubstr("4\r\nall \r\n5\r\nof it\r\n0\r\n\r\n"));
  // So its client may send the other one again.
  EXPECT_EQ(asked, 1);
  limits.max_age = absl::Hours(1);
  StartServer(limits);
  nacre::testing::LoopbackConnection young(address());
  ASSERT_TRUE(young.Send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_THAT(young.Read(), HasSubstr("Connection: keep-alive\r\n"));
}

TEST_F(HttpServerTest, AnAddressThatCannotBeBoundIsAnError) {
  StartServer();
  const auto second = HttpServer::Start({address(), {}, {}}, &loop_, nullptr);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  const auto none = HttpServer::Start({"nowhere", {}, {}}, &loop_, nullptr);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  HttpLimits limits;
  limits.max_head_bytes = 10;
  const auto small =
      HttpServer::Start({"127.0.0.1:0", limits, {}}, &loop_, nullptr);
  EXPECT_EQ(small.status().message(),
            "--max-header-bytes is 10, must be in [1024, 1048576]");
  limits = {};
  limits.idle_timeout = absl::ZeroDuration();
  EXPECT_EQ(limits.Validate().message(),
            "--idle-timeout is 0, must be over 0 and at most 24h");
  limits = {};
  EXPECT_TRUE(limits.Validate().ok());
  limits.max_age = absl::Seconds(-1);
  EXPECT_EQ(limits.Validate().message(),
            "--max-connection-age is -1s, must be over 0 and at most 24h");
}

}  // namespace
}  // namespace nacre::gateway
