#include "gateway/cors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gateway/event_loop.h"
#include "gateway/http_server.h"
#include "gateway/request_head.h"
#include "tests/gateway/http_probe.h"

namespace nacre::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAllow[] = "Access-Control-Allow-Origin: ";

class CorsTest : public ::testing::Test {
 protected:
  void Serve(std::vector<std::string> origins) {
    HttpHandler inner = [](HttpRequest request,
                           const std::shared_ptr<HttpReply>& reply) {
      if (request.path == "/whole") {
        return reply->Send(200, {{"X-Own", "1"}}, request.method);
      }
      reply->Begin(200, {{"X-Own", "1"}});
      reply->Write("streamed");
      reply->End();
    };
    HttpServer::Options options;
    options.listen = "127.0.0.1:0";
    options.limits = limits_;
    options.refusal_headers = [origins](const std::string& origin) {
      return CorsHeaders(origins, origin);
    };
    auto server =
        HttpServer::Start(std::move(options), &loop_,
                          AllowOrigins(std::move(origins), std::move(inner)));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string From(const std::string& origin, const std::string& path) {
    return Get(server_->address(), path,
               origin.empty() ? "" : absl::StrCat("Origin: ", origin, "\r\n"));
  }
  // What a browser asks before it sends a POST of another origin.
  std::string Ask(const std::string& origin, const std::string& more = "") {
    return Exchange(server_->address(),
                    absl::StrCat("OPTIONS /whole HTTP/1.1\r\nHost: h\r\n"
                                 "Connection: close\r\nOrigin: ",
                                 origin, "\r\n", more, "\r\n"));
  }

  HttpLimits limits_;
  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
};

constexpr char kPost[] = "Access-Control-Request-Method: POST\r\n";

TEST_F(CorsTest, AnswersNameTheOriginThatMayReadThem) {
  Serve({"https://a:1", "https://b"});
  for (const char* path : {"/whole", "/stream"}) {
    const std::string answer = From("https://b", path);
    EXPECT_EQ(StatusOf(answer), 200);
    EXPECT_THAT(answer, HasSubstr(absl::StrCat(kAllow, "https://b\r\n")));
    EXPECT_THAT(answer,
                HasSubstr("Access-Control-Expose-Headers: X-Request-Id"));
    EXPECT_THAT(answer, HasSubstr("Vary: Origin\r\n"));
    EXPECT_THAT(answer, HasSubstr("X-Own: 1\r\n"));
    for (const char* other : {"https://a", "https://b:2", "http://b", ""}) {
      const std::string same = From(other, path);
      EXPECT_EQ(StatusOf(same), 200);
      EXPECT_THAT(same, Not(HasSubstr("Access-Control-"))) << other;
      EXPECT_THAT(same, HasSubstr("Vary: Origin\r\n"));
    }
  }
}

TEST_F(CorsTest, TheFirstQuestionOfABrowserIsAnswered) {
  Serve({"https://a:1"});
  const std::string answer =
      Ask("https://a:1", absl::StrCat(kPost,
                                      "Access-Control-Request-Headers: "
                                      "authorization,x-stainless-os\r\n"));
  EXPECT_EQ(StatusOf(answer), 200);
  EXPECT_EQ(BodyOf(answer), "");
  EXPECT_THAT(answer, HasSubstr(absl::StrCat(kAllow, "https://a:1\r\n")));
  EXPECT_THAT(answer,
              HasSubstr("Access-Control-Allow-Methods: GET, HEAD, POST\r\n"));
  EXPECT_THAT(answer, HasSubstr("Access-Control-Allow-Headers: "
                                "authorization,x-stainless-os\r\n"));
  // Not one of another origin, nor another question.
  EXPECT_EQ(BodyOf(Ask("https://b", kPost)), "OPTIONS");
  EXPECT_EQ(BodyOf(Ask("https://a:1")), "OPTIONS");
  EXPECT_THAT(
      Ask("https://a:1", absl::StrCat(kPost, "Access-Control-Request-Headers: ",
                                      std::string(1025, 'x'), "\r\n")),
      Not(HasSubstr("Access-Control-Allow-Headers")));
}

TEST_F(CorsTest, AnyOriginMayBeAllowedAndNoneIsByDefault) {
  Serve({"*"});
  EXPECT_THAT(From("null", "/whole"), HasSubstr(absl::StrCat(kAllow, "*\r\n")));
  EXPECT_THAT(From("", "/whole"), Not(HasSubstr("Access-Control-")));
  Serve({});
  EXPECT_THAT(From("https://a", "/whole"), Not(HasSubstr("Access-Control-")));
  EXPECT_EQ(BodyOf(Ask("https://a", kPost)), "OPTIONS");
}

struct RefusedBytes {
  const char* what;
  int status;
  std::string bytes;  // with an Origin that may read the answer
};

std::vector<RefusedBytes> RefusedRequests() {
  const std::string head =
      "POST /whole HTTP/1.1\r\nHost: h\r\nOrigin: https://b\r\n";
  return {
      {"a head that is too long", 431,
       absl::StrCat(head, "X: ", std::string(20000, 'x'), "\r\n\r\n")},
      {"a head that is too long and has no end", 431,
       absl::StrCat(head, "X: ", std::string(20000, 'x'))},
      {"a line without CR", 400, absl::StrCat(head, "X: y\nZ: z\r\n\r\n")},
      {"a control character", 400, absl::StrCat(head, "X: \x01\r\n\r\n")},
      {"a header without a name", 400, absl::StrCat(head, ": x\r\n\r\n")},
      {"two lengths", 400,
       absl::StrCat(head, "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx")},
      {"two hosts", 400, absl::StrCat(head, "Host: i\r\n\r\n")},
      {"an expectation", 417, absl::StrCat(head, "Expect: more\r\n\r\n")},
      {"a body that is too long", 413,
       absl::StrCat(head, "Content-Length: 1025\r\n\r\n")},
      {"a chunk that is none", 400,
       absl::StrCat(head, "Transfer-Encoding: chunked\r\n\r\nz\r\n")},
      {"a body that is compressed", 415,
       absl::StrCat(head, "Content-Encoding: gzip\r\n\r\n")}};
}

// What never becomes a request is answered by the connection itself.
TEST_F(CorsTest, ARefusalNamesTheOriginToo) {
  limits_.max_body_bytes = 1024;
  for (const char* origin : {"https://b", "*"}) {
    Serve({"https://a:1", origin});
    for (const RefusedBytes& malformed : RefusedRequests()) {
      const std::string answer = Exchange(server_->address(), malformed.bytes);
      EXPECT_EQ(StatusOf(answer), malformed.status) << malformed.what;
      EXPECT_THAT(answer, HasSubstr(absl::StrCat(kAllow, origin, "\r\n")))
          << malformed.what;
      EXPECT_THAT(answer,
                  HasSubstr("Access-Control-Expose-Headers: X-Request-Id"));
    }
  }
  Serve({"https://a:1"});
  for (const RefusedBytes& malformed : RefusedRequests()) {
    const std::string answer = Exchange(server_->address(), malformed.bytes);
    EXPECT_THAT(answer, Not(HasSubstr("Access-Control-"))) << malformed.what;
    EXPECT_THAT(answer, HasSubstr("Vary: Origin\r\n")) << malformed.what;
  }
  Serve({});
  for (const RefusedBytes& malformed : RefusedRequests()) {
    EXPECT_THAT(Exchange(server_->address(), malformed.bytes),
                Not(HasSubstr("Access-Control-")));
  }
}

TEST_F(CorsTest, ABodyThatComesTooLateNamesItToo) {
  limits_.body_timeout = absl::Milliseconds(20);
  limits_.head_timeout = absl::Hours(1);
  Serve({"https://b"});
  const std::string answer =
      Exchange(server_->address(),
               "POST /whole HTTP/1.1\r\nHost: h\r\nOrigin: https://b\r\n"
               "Content-Length: 5\r\n\r\nx");
  EXPECT_EQ(StatusOf(answer), 408);
  EXPECT_THAT(answer, HasSubstr(absl::StrCat(kAllow, "https://b\r\n")));
}

TEST_F(CorsTest, AHeadThatComesTooLateNamesItToo) {
  limits_.body_timeout = absl::Hours(1);
  limits_.head_timeout = absl::Milliseconds(20);
  std::string answer;
  do {
    Serve({"https://b"});
    answer = Exchange(server_->address(),
                      "POST /whole HTTP/1.1\r\nHost: h\r\nOrigin: "
                      "https://b\r\n");
    // On a busy machine the time may end before a byte of the head is read:
    // then there is nothing to answer.
    limits_.head_timeout *= 2;
  } while (answer.empty() && limits_.head_timeout < absl::Minutes(1));
  EXPECT_EQ(StatusOf(answer), 408);
  EXPECT_THAT(answer, HasSubstr(absl::StrCat(kAllow, "https://b\r\n")));
}

TEST_F(CorsTest, AnOriginThatIsNotSureIsNone) {
  EXPECT_EQ(OriginIn("G\r\nOrigin: https://b\r\nX"), "https://b");
  EXPECT_EQ(OriginIn("G\r\noRIGIN:https://b \r\n"), "https://b");
  for (const char* head :
       {"", "Origin: https://b", "G\r\nX-Origin: https://b\r\n",
        "G\r\nOrigin: https://b\r\nOrigin: https://b\r\n",
        "G\r\n\r\nOrigin: https://b\r\n", "G\nOrigin: https://b\n"}) {
    EXPECT_EQ(OriginIn(head), "") << head;
  }
  EXPECT_EQ(OriginIn(absl::string_view()), "");
}

TEST_F(CorsTest, OriginsAreAsBrowsersSendThem) {
  EXPECT_TRUE(
      CheckOrigins({"*", "https://a", "http://[::1]:8080", "app://x"}).ok());
  EXPECT_TRUE(CheckOrigins({}).ok());
  for (const char* bad : {"a", "://a", "https://", "https://a/", "https://a/b",
                          "https://*.a", "https://a b", "https://u@a",
                          "https://A", "https://a:443", "http://a:80"}) {
    EXPECT_FALSE(CheckOrigins({"https://a", bad}).ok()) << bad;
  }
}

}  // namespace
}  // namespace nacre::gateway
