// An address of this machine on which no program listens yet, for programs
// that must be told one.

#ifndef TESTS_TESTING_FREE_ADDRESS_H_
#define TESTS_TESTING_FREE_ADDRESS_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace nacre::testing {

// 127.0.0.1:PORT. For a while the system gives the port to no other program.
inline std::string FreeAddress() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(fd, generic, size), 0);
  EXPECT_EQ(getsockname(fd, generic, &size), 0);
  close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

}  // namespace nacre::testing

#endif  // TESTS_TESTING_FREE_ADDRESS_H_
