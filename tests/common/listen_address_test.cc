#include "common/listen_address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace nacre {
namespace {

TEST(ListenAddressTest, HostAndPort) {
  for (const char* good :
       {"127.0.0.1:0", "localhost:9464", "[::1]:65535", "0.0.0.0:1"}) {
    EXPECT_TRUE(IsHostPort(good)) << good;
  }
  for (const char* bad : {"", ":", ":80", "host", "host:", "host:-1",
                          "host:65536", "host:9x", "host:99999999999"}) {
    EXPECT_FALSE(IsHostPort(bad)) << bad;
  }
}

TEST(ListenAddressTest, WritesTheAddressOrSaysWhyNot) {
  const std::string path =
      ::testing::TempDir() + "/nacre_address_" + std::to_string(getpid());
  ASSERT_TRUE(WriteAddressFile(path, "127.0.0.1:1234").ok());
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "127.0.0.1:1234");
  std::remove(path.c_str());

  const absl::Status status = WriteAddressFile("/nonexistent/file", "a:1");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(status.message().find("/nonexistent/file"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace nacre
