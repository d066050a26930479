#include "gateway/chunk_check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nacre::gateway {
namespace {

constexpr size_t kMostBytes = 32;

// The error's message; empty: the body passes. The bytes come `step` at a time,
// and are parsed a step after they came.
std::string ErrorOf(const std::string& body, size_t step = 1) {
  ChunkCheck check(kMostBytes);
  std::string unparsed;
  for (size_t at = 0; at < body.size(); at += step) {
    const size_t before = unparsed.size();
    unparsed += body.substr(at, step);
    if (const auto error = check.Check(unparsed)) {
      EXPECT_EQ(error->status, 400);
      return error->message;
    }
    unparsed.erase(0, before);
    check.Parsed(before);
  }
  return "";
}

TEST(ChunkCheckTest, GoodBodiesPassHoweverTheyCome) {
  const std::vector<std::string> bodies = {
      "0\r\n\r\n", "3\r\na\nb\r\n1\r\n\r\r\n0\r\n\r\n",
      "00000000000000A\r\n0123456789\r\n000\r\n\r\n",
      "1;a=b\r\nx\r\n1 ;c=\"d e\"\r\ny\r\n0;e\r\n\r\n",
      "0\r\nA: b\r\nC-d:\r\n\r\n",
      // What comes after it is another request's.
      "0\r\n\r\nGET / HTTP/1.1\n\x01"};
  for (const std::string& body : bodies) {
    for (const size_t step : {1, 2, 3, 100}) {
      EXPECT_EQ(ErrorOf(body, step), "") << body;
    }
  }
}

TEST(ChunkCheckTest, ErrorsSayWhatIsWrong) {
  const std::string size_end = ", expected 1 to 16 hexadecimal digits";
  const std::string long_line(kMostBytes + 1, 'a');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\r\n", "the size of a chunk is \"\"" + size_end},
      {"x\r\n", "the size of a chunk is \"x\"" + size_end},
      {"+1\r\n", "the size of a chunk is \"+1\"" + size_end},
      {"0x1\r\n", "the size of a chunk is \"0x1\"" + size_end},
      {" 1\r\n", "the size of a chunk is \" 1\"" + size_end},
      {"1 \r\n", "the size of a chunk is \"1 \"" + size_end},
      {";a\r\n", "the size of a chunk is \";a\"" + size_end},
      {"00000000000000001\r\n",
       "the size of a chunk is \"00000000000000001\"" + size_end},
      {"1\n", "a line of the chunked body ends with LF and not CR LF"},
      {"1;a=\"\n\"\r\n",
       "a line of the chunked body ends with LF and not CR LF"},
      {"1\r\nx\n", "a line of the chunked body ends with LF and not CR LF"},
      {"0\r\n\n", "a line of the chunked body ends with LF and not CR LF"},
      {"0\r\nA: b\n", "a line of the chunked body ends with LF and not CR LF"},
      {"1\rx", "a line of the chunked body has the control character 0x0d"},
      {"1;\x01", "a line of the chunked body has the control character 0x01"},
      {std::string("0\r\nA: \0", 7),
       "a line of the chunked body has the control character 0x00"},
      {"0\r\nA: \x7f",
       "a line of the chunked body has the control character 0x7f"},
      {"1\r\nxy\r\n", "a chunk of the body is longer than its size says"},
      {"1;" + long_line, "a line of the chunked body is longer than 32 bytes"},
      {"0\r\nA: b\r\n c\r\n", "a trailer is folded over several lines"},
      {"0\r\n\tc\r\n", "a trailer is folded over several lines"},
      {"0\r\nA\r\n", "\"A\" is no trailer"},
      {"0\r\nA : b\r\n", "\"A : b\" is no trailer"},
      {"0\r\n: b\r\n", "\": b\" is no trailer"},
      {"0\r\nContent-length: 1\r\n",
       "\"Content-length\" is among the trailers"},
      {"0\r\ntransfer-encoding: chunked\r\n",
       "\"transfer-encoding\" is among the trailers"},
      {"0\r\nHOST: h\r\n", "\"HOST\" is among the trailers"},
      {"0\r\nA: 456789012345678\r\nB: 4567890\r\nC: 4\r\n",
       "the trailers are longer than 32 bytes"},
  };
  for (const auto& [body, message] : cases) {
    for (const size_t step : {1, 100}) {
      EXPECT_EQ(ErrorOf(body, step), message) << body;
    }
  }
}

TEST(ChunkCheckTest, ALineMayHaveAsManyBytesAsTheLimit) {
  EXPECT_EQ(ErrorOf("0;" + std::string(kMostBytes - 3, 'a') + "\r\n\r\n"), "");
  EXPECT_EQ(ErrorOf("0;" + std::string(kMostBytes - 2, 'a') + "\r\n\r\n"),
            "a line of the chunked body is longer than 32 bytes");
}

}  // namespace
}  // namespace nacre::gateway
