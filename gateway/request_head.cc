#include "gateway/request_head.h"

#include <arpa/inet.h>

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/quoted.h"

namespace nacre::gateway {
namespace {

constexpr size_t kMaxIdBytes = 128;

size_t CountHeader(const HttpHeaders& headers, absl::string_view name) {
  return static_cast<size_t>(
      std::count_if(headers.begin(), headers.end(),
                    [&](const auto& header) { return header.first == name; }));
}

absl::string_view HeaderValue(const HttpHeaders& headers,
                              absl::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

bool IsVisible(char c) { return c > 0x20 && c < 0x7f; }

std::optional<ApiError> CheckLine(absl::string_view line) {
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && byte != '\t') || byte == 0x7f) {
      return BadRequest(
          absl::StrFormat("the head has the control character 0x%02x", byte));
    }
  }
  return std::nullopt;
}

// A name as RFC 3986 writes it, but for commas, which some servers take for
// two.
bool IsHostName(absl::string_view name) {
  constexpr absl::string_view kOthers = "-._~!$&'()*+;=%";
  std::string decoded;
  return PercentDecode(name, &decoded) &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  absl::StrContains(kOthers, c);
         });
}

// An IPv6 address, perhaps with a zone after "%25" (RFC 6874).
bool IsHostAddress(absl::string_view text) {
  constexpr absl::string_view kZone = "%25";
  const size_t zone = text.find(kZone);
  if (zone != absl::string_view::npos) {
    const absl::string_view name = text.substr(zone + kZone.size());
    if (name.empty() || !IsHostName(name)) return false;
  }
  in6_addr address;
  return inet_pton(AF_INET6, std::string(text.substr(0, zone)).c_str(),
                   &address) == 1;
}

// HOST or HOST:PORT. A client that has no name for the server leaves it empty.
bool IsHost(absl::string_view value) {
  size_t end = value.find(':');
  if (absl::StartsWith(value, "[")) {
    end = value.find(']');
    if (end == absl::string_view::npos ||
        !IsHostAddress(value.substr(1, end - 1))) {
      return false;
    }
    ++end;
  } else if (!IsHostName(value.substr(0, end))) {
    return false;
  }
  absl::string_view port = value.substr(std::min(end, value.size()));
  if (port.empty()) return true;
  int number = 0;
  return absl::ConsumePrefix(&port, ":") &&
         std::all_of(port.begin(), port.end(), absl::ascii_isdigit) &&
         (port.empty() || (absl::SimpleAtoi(port, &number) && number <= 65535));
}

std::optional<ApiError> CheckFraming(const HttpHeaders& headers,
                                     bool is_http_1_1) {
  const size_t lengths = CountHeader(headers, "content-length");
  const size_t encodings = CountHeader(headers, "transfer-encoding");
  if (lengths > 1) {
    return BadRequest(absl::StrCat(lengths, " Content-Length headers, not 1"));
  }
  if (lengths == 1) {
    const absl::string_view value = HeaderValue(headers, "content-length");
    if (value.empty() ||
        !std::all_of(value.begin(), value.end(), absl::ascii_isdigit)) {
      return BadRequest(
          absl::StrCat("Content-Length is ", Quoted(value), ", not a number"));
    }
  }
  if (encodings == 0) return std::nullopt;
  if (lengths > 0) {
    return BadRequest("both Content-Length and Transfer-Encoding");
  }
  const absl::string_view encoding = HeaderValue(headers, "transfer-encoding");
  if (encodings > 1 || !absl::EqualsIgnoreCase(encoding, "chunked")) {
    return BadRequest(absl::StrCat("Transfer-Encoding is ", Quoted(encoding),
                                   ", only \"chunked\" is understood"));
  }
  if (!is_http_1_1) return BadRequest("Transfer-Encoding with HTTP/1.0");
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> CheckHeadBytes(absl::string_view head) {
  bool is_first = true;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    const absl::string_view line = head.substr(0, end);
    if (auto error = CheckLine(line)) return error;
    if (is_first) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
      if (words.size() != 3 || words[0].empty() || words[1].empty() ||
          !(words[2] == "HTTP/1.1" || words[2] == "HTTP/1.0")) {
        return BadRequest(
            absl::StrCat(Quoted(line), " is no HTTP/1 request line"));
      }
    } else if (!line.empty() && (line[0] == ' ' || line[0] == '\t')) {
      return BadRequest("a header is folded over several lines");
    }
    is_first = false;
    if (end == absl::string_view::npos) break;
    head.remove_prefix(end + 2);
  }
  return std::nullopt;
}

std::optional<ApiError> CheckHeaders(const HttpHeaders& headers,
                                     bool is_http_1_1) {
  const size_t hosts = CountHeader(headers, "host");
  if (hosts > 1 || (hosts == 0 && is_http_1_1)) {
    return BadRequest(absl::StrCat(hosts, " Host headers, not 1"));
  }
  if (!IsHost(HeaderValue(headers, "host"))) {
    return BadRequest(absl::StrCat("Host is ",
                                   Quoted(HeaderValue(headers, "host")),
                                   ", expected a name, perhaps with a port"));
  }
  if (auto error = CheckFraming(headers, is_http_1_1)) return error;
  // Each of them, however often they are given.
  for (const auto& [name, value] : headers) {
    if (value.empty()) continue;
    if (name == "content-encoding" &&
        !absl::EqualsIgnoreCase(value, "identity")) {
      return ApiError{
          .status = 415,
          .message = absl::StrCat("Content-Encoding is ", Quoted(value),
                                  "; bodies must be sent as they are")};
    }
    if (name == "expect" && !absl::EqualsIgnoreCase(value, "100-continue")) {
      return ApiError{
          .status = 417,
          .message = absl::StrCat("Expect is ", Quoted(value),
                                  ", only \"100-continue\" is understood")};
    }
  }
  return std::nullopt;
}

std::optional<ApiError> ReadTarget(absl::string_view target,
                                   HttpRequest* request) {
  absl::string_view rest = target;
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(target, scheme)) continue;
    rest.remove_prefix(scheme.size());
    const absl::string_view host = rest.substr(0, rest.find_first_of("/?"));
    if (host.empty() || host[0] == ':' || !IsHost(host)) {
      return BadRequest(absl::StrCat("the request's target ", Quoted(target),
                                     " names no HOST or HOST:PORT"));
    }
    rest.remove_prefix(host.size());
    if (rest.empty() && request->method == "OPTIONS") rest = "*";
    if (!absl::StartsWith(rest, "/") && rest != "*") rest = "/";
    break;
  }
  const bool is_server = rest == "*" && request->method == "OPTIONS";
  if (!is_server && !absl::StartsWith(rest, "/")) {
    return BadRequest(
        absl::StrCat("the request's target ", Quoted(target),
                     " is neither a path, which begins with /, nor an http "
                     "address"));
  }
  request->path = std::string(rest.substr(0, rest.find('?')));
  return std::nullopt;
}

std::string OriginIn(absl::string_view head) {
  constexpr absl::string_view kName = "origin:";
  // Without data StrSplit finds no piece at all.
  if (head.empty()) return "";
  std::string origin;
  // The last piece is no whole line.
  std::vector<absl::string_view> lines = absl::StrSplit(head, "\r\n");
  lines.pop_back();
  for (const absl::string_view line : lines) {
    if (line.empty()) break;  // a body follows
    if (!absl::StartsWithIgnoreCase(line, kName)) continue;
    if (!origin.empty()) return "";
    origin = std::string(absl::StripAsciiWhitespace(line.substr(kName.size())));
  }
  return origin;
}

bool AsksToClose(const HttpHeaders& headers) {
  for (const auto& [name, value] : headers) {
    if (name != "connection") continue;
    for (const absl::string_view option : absl::StrSplit(value, ',')) {
      if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(option), "close")) {
        return true;
      }
    }
  }
  return false;
}

bool CanBeginRequest(char byte) { return byte >= 'A' && byte <= 'Z'; }

bool PercentDecode(absl::string_view text, std::string* decoded) {
  decoded->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded->push_back(text[i]);
      continue;
    }
    const absl::string_view digits = text.substr(i + 1, 2);
    if (digits.size() < 2 ||
        !std::all_of(digits.begin(), digits.end(), [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
        })) {
      return false;
    }
    decoded->append(absl::HexStringToBytes(digits));
    i += 2;
  }
  return true;
}

std::string RequestIdOf(const HttpRequest& request) {
  const std::string* id = request.Find("x-request-id");
  if (id != nullptr && !id->empty() && id->size() <= kMaxIdBytes &&
      std::all_of(id->begin(), id->end(), IsVisible)) {
    return *id;
  }
  return absl::StrCat("req-", RandomHex());
}

std::string RandomHex() {
  thread_local std::mt19937_64 engine{std::random_device{}()};
  return absl::StrFormat("%016x", engine());
}

bool HttpRequest::Has(absl::string_view name) const {
  return CountHeader(headers, name) > 0;
}

const std::string* HttpRequest::Find(absl::string_view name) const {
  const std::string* found = nullptr;
  for (const auto& [key, value] : headers) {
    if (key != name) continue;
    if (found != nullptr) return nullptr;
    found = &value;
  }
  return found;
}

}  // namespace nacre::gateway
