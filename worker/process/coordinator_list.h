// Where a worker finds its coordinators: what --coordinator says.
//
// Pure but for ResolveHost.

#ifndef WORKER_PROCESS_COORDINATOR_LIST_H_
#define WORKER_PROCESS_COORDINATOR_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

struct addrinfo;  // of the system's resolver

namespace nacre::worker {

struct CoordinatorName {
  bool is_dns = false;  // all addresses of the host, asked again and again
  std::string host;
  std::string port;

  std::string address() const { return host + ":" + port; }
};

// "HOST:PORT,..." where "dns:" may come before each. INVALID_ARGUMENT names
// what is no address, has port 0 or comes twice.
absl::StatusOr<std::vector<CoordinatorName>> ParseCoordinators(
    const std::string& text);

// Whether a worker may have several coordinators by that list: more than one
// entry, or a "dns:" one.
bool MayBeSeveral(const std::vector<CoordinatorName>& names);

// The IPv4 addresses of the list, each with the port, sorted:
// "10.0.0.7:50051". Without any the IPv6 ones: "[fd00::7]:50051". Never both,
// which would name each coordinator twice.
std::vector<std::string> NumericAddresses(const addrinfo* found,
                                          const std::string& port);

// NumericAddresses of a host. Waits for the system's resolver. UNAVAILABLE with
// its reason.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host,
                                                     const std::string& port);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_COORDINATOR_LIST_H_
