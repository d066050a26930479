// Requests byte by byte, and what comes back.

#ifndef TESTS_GATEWAY_HTTP_PROBE_H_
#define TESTS_GATEWAY_HTTP_PROBE_H_

#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/loopback.h"

namespace nacre::gateway {

// The status of an answer; 0: there is none.
inline int StatusOf(const std::string& answer) {
  return absl::StartsWith(answer, "HTTP/1.1 ")
             ? std::atoi(answer.c_str() + sizeof("HTTP/1.1 ") - 1)
             : 0;
}

// What follows the head.
inline std::string BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

// All that comes for these bytes until the server hangs up.
inline std::string Exchange(const std::string& address,
                            const std::string& bytes) {
  nacre::testing::LoopbackConnection connection(address);
  if (!connection.Send(bytes)) return "";
  return connection.ReadAll();
}

inline std::string PostBytes(const std::string& path, const std::string& body,
                             const std::string& headers = "") {
  return absl::StrCat("POST ", path,
                      " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                      "Content-Length: ",
                      body.size(), "\r\n", headers, "\r\n", body);
}

inline std::string Post(const std::string& address, const std::string& path,
                        const std::string& body,
                        const std::string& headers = "") {
  return Exchange(address, PostBytes(path, body, headers));
}

inline std::string Get(const std::string& address, const std::string& path,
                       const std::string& headers = "") {
  return Exchange(address, absl::StrCat("GET ", path,
                                        " HTTP/1.1\r\nHost: h\r\n"
                                        "Connection: close\r\n",
                                        headers, "\r\n"));
}

// The data of a chunked body.
inline std::string Unchunk(const std::string& body) {
  std::string data;
  size_t at = 0;
  while (at < body.size()) {
    const size_t line_end = body.find("\r\n", at);
    if (line_end == std::string::npos) break;
    const size_t size =
        std::strtoul(body.substr(at, line_end - at).c_str(), nullptr, 16);
    if (size == 0) break;
    data += body.substr(line_end + 2, size);
    at = line_end + 2 + size + 2;
  }
  return data;
}

}  // namespace nacre::gateway

#endif  // TESTS_GATEWAY_HTTP_PROBE_H_
