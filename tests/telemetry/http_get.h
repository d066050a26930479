// GET of a path, as Prometheus would do it.

#ifndef TESTS_TELEMETRY_HTTP_GET_H_
#define TESTS_TELEMETRY_HTTP_GET_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/telemetry/samples.h"

namespace nacre::telemetry {

// The whole answer, headers included; empty when there is none. `address` is
// 127.0.0.1:port.
inline std::string HttpGet(const std::string& address,
                           const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  peer.sin_port = htons(static_cast<uint16_t>(
      std::atoi(address.substr(address.rfind(':') + 1).c_str())));
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
      char buffer[4096];
      ssize_t count = 0;
      while ((count = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
        answer.append(buffer, static_cast<size_t>(count));
      }
    }
  }
  close(fd);
  return answer;
}

inline Samples Scrape(const std::string& address) {
  return ParseSamples(HttpGet(address, "/metrics"));
}

}  // namespace nacre::telemetry

#endif  // TESTS_TELEMETRY_HTTP_GET_H_
