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
    auto server =
        HttpServer::Start({"127.0.0.1:0", {}, {}}, &loop_,
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
