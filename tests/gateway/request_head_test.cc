#include "gateway/request_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nacre::gateway {
namespace {

using ::testing::MatchesRegex;

// What reaches the checks over a connection is in http_server_test.cc.
TEST(RequestHeadTest, GoodHeadsPass) {
  EXPECT_FALSE(CheckHeadBytes("GET /a?b HTTP/1.0\r\n\r\n"));
  EXPECT_FALSE(
      CheckHeadBytes("POST / HTTP/1.1\r\nA: \xc3\xa4\tb\r\nC:\r\n\r\n"));
  EXPECT_FALSE(CheckHeaders({}, /*is_http_1_1=*/false));
  EXPECT_FALSE(CheckHeaders({{"host", "h"},
                             {"transfer-encoding", "Chunked"},
                             {"content-encoding", "identity"},
                             {"expect", "100-Continue"}},
                            /*is_http_1_1=*/true));
}

TEST(RequestHeadTest, ErrorsNameWhatWasFound) {
  EXPECT_EQ(CheckHeadBytes("GET / HTTP/1.1\r\nA: \x7f\r\n\r\n")->message,
            "the head has the control character 0x7f");
  EXPECT_EQ(
      CheckHeaders({{"host", "h"}, {"content-length", "1 1"}}, true)->message,
      "Content-Length is \"1 1\", not a number");
  EXPECT_EQ(CheckHeaders({}, true)->message, "0 Host headers, not 1");
  EXPECT_EQ(
      CheckHeaders({{"host", "h"}, {"content-encoding", "br"}}, true)->status,
      415);
}

TEST(RequestHeadTest, HostIsAHostWithAPortAtMost) {
  const auto refused = [](const std::string& host) {
    return CheckHeaders({{"host", host}}, true).has_value();
  };
  for (const char* good :
       {"", "h", "h:", "h:0", "h:65535", "a-b_c.example.org:80", "1.2.3.4:8000",
        "[::1]", "[::1]:8000", "[fe80::1%25eth0]:1", "[::ffff:1.2.3.4]",
        "%41"}) {
    EXPECT_FALSE(refused(good)) << good;
  }
  for (const char* bad :
       {"h i",      "h,i",       "user@h",   "h/x",       "h:x",
        "h:-1",     "h:65536",   "h:1:2",    "::1",       "[::1",
        "[]",       "[::1]x",    "[::1]:x",  "h?x",       "h#x",
        "\xc3\xa4", "\"h\"",     "h\\i",     "%zz",       "%4",
        "[zzz]",    "[1.2.3.4]", "[::1%25]", "[%25eth0]", "[::1%25%zz]"}) {
    EXPECT_TRUE(refused(bad)) << bad;
  }
  EXPECT_EQ(CheckHeaders({{"host", "h i"}}, true)->message,
            "Host is \"h i\", expected a name, perhaps with a port");
}

TEST(RequestHeadTest, ATargetIsAPathAWholeAddressOrAStar) {
  const auto path_of = [](const std::string& target,
                          const std::string& method) {
    HttpRequest request;
    request.method = method;
    const auto error = ReadTarget(target, &request);
    return error.has_value() ? std::to_string(error->status) : request.path;
  };
  const struct {
    const char* target;
    const char* path;
  } reads[] = {
      {"/a?b", "/a"},
      {"/", "/"},
      {"//h/a", "//h/a"},
      {"http://h/a/b?c", "/a/b"},
      {"HTTPS://h:1/a", "/a"},
      {"http://[::1]:8000/a", "/a"},
      {"http://h", "/"},
      {"http://h?a/b", "/"},
      {"*", "400"},
      {"a", "400"},
      {"h:80", "400"},
      {"?a", "400"},
      {"ftp://h/a", "400"},
      {"http:/a", "400"},
      {"http://", "400"},
      {"http:///a", "400"},
      {"http://:80/a", "400"},
      {"http://user@h/a", "400"},
      {"http://h:x/a", "400"},
      {"http://[zzz]/a", "400"},
      {"http://h#a", "400"},
  };
  for (const auto& read : reads) {
    EXPECT_EQ(path_of(read.target, "GET"), read.path) << read.target;
  }
  EXPECT_EQ(path_of("*", "OPTIONS"), "*");
  EXPECT_EQ(path_of("http://h", "OPTIONS"), "*");
  EXPECT_EQ(path_of("http://h/", "OPTIONS"), "/");
  EXPECT_EQ(path_of("http://h?a", "OPTIONS"), "/");
  HttpRequest request;
  EXPECT_EQ(ReadTarget("http://a@h/", &request)->message,
            "the request's target \"http://a@h/\" names no HOST or HOST:PORT");
}

TEST(RequestHeadTest, AnyConnectionHeaderMayAskToClose) {
  EXPECT_FALSE(AsksToClose({}));
  EXPECT_FALSE(AsksToClose({{"connection", "keep-alive, closed"}}));
  EXPECT_TRUE(AsksToClose({{"connection", "TE ,Close"}}));
  EXPECT_TRUE(
      AsksToClose({{"connection", "keep-alive"}, {"connection", "close"}}));
}

TEST(RequestHeadTest, AHeaderGivenTwiceHasNoValue) {
  HttpRequest request;
  request.headers = {{"a", "1"}, {"b", "2"}, {"a", "1"}};
  EXPECT_EQ(request.Find("a"), nullptr);
  EXPECT_EQ(*request.Find("b"), "2");
}

TEST(RequestHeadTest, GoodRequestIdsAreKept) {
  const auto id_of = [](const std::string& id) {
    HttpRequest request;
    request.headers = {{"x-request-id", id}};
    return RequestIdOf(request);
  };
  EXPECT_EQ(id_of("a-1~"), "a-1~");
  EXPECT_EQ(id_of(std::string(128, 'x')), std::string(128, 'x'));
  for (const std::string& bad : {std::string(), std::string(129, 'x'),
                                 std::string("a b"), std::string("\xc3\xa4")}) {
    EXPECT_THAT(id_of(bad), MatchesRegex("req-[0-9a-f]{16}")) << bad;
  }
  EXPECT_NE(id_of(""), id_of(""));
}

}  // namespace
}  // namespace nacre::gateway
