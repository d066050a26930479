#include "worker/process/coordinator_list.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace nacre::worker {

absl::StatusOr<std::vector<CoordinatorName>> ParseCoordinators(
    const std::string& text) {
  std::vector<CoordinatorName> names;
  std::set<std::string> seen;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    absl::string_view rest = part;
    CoordinatorName name;
    name.is_dns = absl::ConsumePrefix(&rest, "dns:");
    const size_t colon = rest.rfind(':');
    int port = 0;
    if (colon == absl::string_view::npos || colon == 0 ||
        !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 1 ||
        port > 65535) {
      return absl::InvalidArgumentError(
          absl::StrCat("--coordinator \"", part, "\" is not HOST:PORT"));
    }
    name.host = std::string(rest.substr(0, colon));
    name.port = std::string(rest.substr(colon + 1));
    if (!seen.insert(name.address()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--coordinator has \"", rest, "\" twice"));
    }
    names.push_back(std::move(name));
  }
  return names;
}

bool MayBeSeveral(const std::vector<CoordinatorName>& names) {
  return names.size() != 1 || names.front().is_dns;
}

std::vector<std::string> NumericAddresses(const addrinfo* found,
                                          const std::string& port) {
  std::set<std::string> four;
  std::set<std::string> six;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof(text),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    if (each->ai_family == AF_INET6) {
      six.insert(absl::StrCat("[", text, "]:", port));
    } else {
      four.insert(absl::StrCat(text, ":", port));
    }
  }
  const std::set<std::string>& addresses = four.empty() ? six : four;
  return {addresses.begin(), addresses.end()};
}

absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host,
                                                     const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve ", host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found,
                                                                 &freeaddrinfo);
  return NumericAddresses(found, port);
}

}  // namespace nacre::worker
