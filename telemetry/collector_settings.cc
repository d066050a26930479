#include "telemetry/collector_settings.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/listen_address.h"
#include "common/rpc/pem_files.h"
#include "common/status_macros.h"

namespace nacre::telemetry {
namespace {

constexpr absl::Duration kLeastTimeout = absl::Milliseconds(1);
// The end of the process waits for a call under way.
constexpr absl::Duration kMostTimeout = absl::Seconds(60);

struct Endpoint {
  std::string address;  // host:port; empty: no collector
  bool by_flag = false;
  absl::optional<bool> tls;  // as its scheme says
};

// Collectors are named by URL, of which gRPC wants host and port.
absl::StatusOr<Endpoint> ParseEndpoint(const Setting& setting, bool by_flag) {
  absl::string_view rest = setting.value;
  if (absl::StrContains(rest, '@')) {
    return absl::InvalidArgumentError(absl::StrCat(
        setting.name, " holds a user name: collectors are called without"));
  }
  Endpoint endpoint;
  endpoint.by_flag = by_flag;
  for (const auto& [scheme, tls] :
       {std::pair{"http://", false}, std::pair{"https://", true}}) {
    if (!absl::StartsWithIgnoreCase(rest, scheme)) continue;
    rest.remove_prefix(absl::string_view(scheme).size());
    endpoint.tls = tls;
    break;
  }
  endpoint.address = std::string(rest.substr(0, rest.find('/')));
  if (!IsHostPort(endpoint.address)) {
    return setting.Invalid(by_flag ? "is not host:port, or that as a URL"
                                   : "is not http://host:port or https://");
  }
  return endpoint;
}

absl::StatusOr<Endpoint> EndpointOf(const CollectorFlags& flags,
                                    const OtelVariables& variables) {
  if (!flags.endpoint.empty()) {
    return ParseEndpoint({"--otlp-endpoint", flags.endpoint}, /*by_flag=*/true);
  }
  if (absl::EqualsIgnoreCase(variables.Get("OTEL_SDK_DISABLED").value,
                             "true")) {
    return Endpoint();
  }
  const Setting url = variables.Get("OTEL_EXPORTER_OTLP_ENDPOINT");
  const Setting exporter = variables.Get("OTEL_TRACES_EXPORTER");
  if (url.value.empty() || exporter.value == "none") return Endpoint();
  if (!exporter.value.empty() && exporter.value != "otlp") {
    return exporter.Invalid("is not otlp or none");
  }
  const Setting protocol = variables.Get("OTEL_EXPORTER_OTLP_PROTOCOL");
  if (!protocol.value.empty() && protocol.value != "grpc") {
    return absl::UnimplementedError(
        absl::StrCat(protocol.name, " \"", protocol.value,
                     "\": only grpc is in this version"));
  }
  return ParseEndpoint(url, /*by_flag=*/false);
}

absl::Status Prefixed(absl::string_view flag, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(flag, ": ", status.message()));
}

absl::StatusOr<rpc::ChannelSecurity> SecurityOf(const Endpoint& endpoint,
                                                const rpc::TlsFiles& files) {
  const bool by_default = !endpoint.by_flag || !files.empty();
  if (!endpoint.tls.value_or(by_default)) {
    if (!files.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--otlp-tls-*: the collector ", endpoint.address,
                       " is called in plaintext, without https://"));
    }
    return rpc::ChannelSecurity();
  }
  if (files.cert_file.empty() != files.key_file.empty()) {
    const bool has_cert = files.key_file.empty();
    return absl::InvalidArgumentError(absl::StrCat(
        has_cert ? "--otlp-tls-key" : "--otlp-tls-cert", " is missing: ",
        has_cert ? "--otlp-tls-cert" : "--otlp-tls-key", " needs it"));
  }
  // Checked here, where it is known which flag names the files.
  if (!files.ca_file.empty()) {
    NACRE_RETURN_IF_ERROR(
        Prefixed("--otlp-tls-ca", rpc::CheckAuthorities(files.ca_file)));
  }
  if (!files.cert_file.empty()) {
    NACRE_RETURN_IF_ERROR(
        Prefixed("--otlp-tls-cert",
                 rpc::CheckCertificateAndKey(files.cert_file, files.key_file)));
  }
  return rpc::LoadClientTls({/*tls=*/true, files, /*server_name=*/""});
}

// Anything else aborts the call in gRPC, or means something to it.
bool IsHeader(absl::string_view key, absl::string_view value) {
  const bool legal_key =
      std::all_of(key.begin(), key.end(), [](unsigned char c) {
        return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' ||
               c == '_' || c == '.';
      });
  return legal_key && !absl::StartsWith(key, "grpc-") &&
         !absl::EndsWith(key, "-bin") && key != "content-type" &&
         key != "host" && key != "te" && key != "user-agent" &&
         std::all_of(value.begin(), value.end(),
                     [](unsigned char c) { return absl::ascii_isprint(c); });
}

absl::StatusOr<Setting> HeadersOf(const CollectorFlags& flags,
                                  const OtelVariables& variables) {
  const std::string& path = flags.headers_file;
  if (path.empty()) return variables.Get("OTEL_EXPORTER_OTLP_HEADERS");
  std::ifstream file(path);
  Setting setting{absl::StrCat("--otlp-headers-file ", path),
                  {std::istreambuf_iterator<char>(file), {}}};
  if (!file.good()) {
    return absl::NotFoundError(
        absl::StrCat("--otlp-headers-file: cannot read ", path));
  }
  if (const std::string problem = rpc::PermissionProblem(path);
      !problem.empty()) {
    spdlog::warn("the file of headers {}", problem);
  }
  return setting;
}

absl::Status ReadHeaders(const Setting& setting, Collector* collector) {
  int count = 0;
  for (const absl::string_view entry : absl::StrSplit(
           setting.value, absl::ByAnyChar(",\n"), absl::SkipWhitespace())) {
    ++count;
    auto header = ParseKeyValue(entry);
    if (header.has_value()) absl::AsciiStrToLower(&header->first);
    if (!header.has_value() || !IsHeader(header->first, header->second)) {
      // Not what it is: it may be a secret.
      return absl::InvalidArgumentError(
          absl::StrCat(setting.name, ": header ", count,
                       " is not key=value as gRPC can send it"));
    }
    collector->headers.push_back(*std::move(header));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> TimeoutOf(const CollectorFlags& flags) {
  if (!flags.timeout.has_value()) return Collector().timeout;
  if (*flags.timeout < kLeastTimeout || *flags.timeout > kMostTimeout) {
    return Setting{"--otlp-timeout", absl::FormatDuration(*flags.timeout)}
        .Invalid("is not in [1 ms, 60 s]");
  }
  return *flags.timeout;
}

absl::StatusOr<bool> UsesGzip(const CollectorFlags& flags) {
  if (flags.compression.empty() || flags.compression == "none") return false;
  if (flags.compression == "gzip") return true;
  return Setting{"--otlp-compression", flags.compression}.Invalid(
      "is not gzip or none");
}

}  // namespace

absl::StatusOr<Collector> ResolveCollector(const CollectorFlags& flags,
                                           const OtelVariables& variables) {
  Collector collector;
  NACRE_ASSIGN_OR_RETURN(const Endpoint endpoint, EndpointOf(flags, variables));
  if (endpoint.address.empty()) return collector;
  collector.endpoint = endpoint.address;
  NACRE_ASSIGN_OR_RETURN(collector.security, SecurityOf(endpoint, flags.tls));
  NACRE_ASSIGN_OR_RETURN(const Setting headers, HeadersOf(flags, variables));
  NACRE_RETURN_IF_ERROR(ReadHeaders(headers, &collector));
  NACRE_ASSIGN_OR_RETURN(collector.timeout, TimeoutOf(flags));
  NACRE_ASSIGN_OR_RETURN(collector.gzip, UsesGzip(flags));
  if (!collector.headers.empty() && collector.security.credentials == nullptr) {
    spdlog::warn("the headers for the collector {} travel in plaintext: no TLS",
                 collector.endpoint);
  }
  return collector;
}

}  // namespace nacre::telemetry
