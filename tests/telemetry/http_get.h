// GET of a path, as Prometheus would do it.

#ifndef TESTS_TELEMETRY_HTTP_GET_H_
#define TESTS_TELEMETRY_HTTP_GET_H_

#include <string>

#include "tests/telemetry/samples.h"
#include "tests/testing/loopback.h"

namespace nacre::telemetry {

using HttpConnection = nacre::testing::LoopbackConnection;

// The whole answer, headers included; empty when there is none. `address` is
// 127.0.0.1:port.
inline std::string HttpGet(const std::string& address,
                           const std::string& path) {
  HttpConnection connection(address);
  if (!connection.Send("GET " + path + " HTTP/1.0\r\n\r\n")) return "";
  return connection.ReadAll();
}

inline Samples Scrape(const std::string& address) {
  return ParseSamples(HttpGet(address, "/metrics"));
}

}  // namespace nacre::telemetry

#endif  // TESTS_TELEMETRY_HTTP_GET_H_
