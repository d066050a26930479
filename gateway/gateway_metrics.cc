#include "gateway/gateway_metrics.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gateway/field_reader.h"
#include "gateway/routes.h"

namespace nacre::gateway {
namespace {

constexpr size_t kMaxFieldNames = 32;

}  // namespace

void GatewayMetrics::CountAnswer(const std::string& path, int status) {
  const bool known =
      std::any_of(std::begin(kRoutes), std::end(kRoutes),
                  [&](const Route& r) { return path == r.path; });
  builder_
      .Counter(
          "nacre_http_requests_total", "Answers, by path and status",
          {{"path", known ? path : "other"}, {"status", absl::StrCat(status)}})
      .Increment();
}

void GatewayMetrics::CountIgnored(const std::string& field) {
  std::string name = "other";
  // A label is kept for ever: a client must not choose what it holds.
  if (IsPlainName(field)) {
    absl::MutexLock lock(&mu_);
    if (fields_.size() < kMaxFieldNames) fields_.insert(field);
    if (fields_.contains(field)) name = field;
  }
  builder_
      .Counter("nacre_http_ignored_fields_total",
               "Fields of requests that the gateway does not know",
               {{"field", name}})
      .Increment();
}

void GatewayMetrics::CountFurtherCall(const std::string& kind) {
  builder_
      .Counter("nacre_http_further_calls_total",
               "Calls to coordinators beyond a request's first, by kind",
               {{"kind", kind}})
      .Increment();
}

void GatewayMetrics::SetConnections(int connections, int running) {
  builder_.Gauge("nacre_http_connections", "Connections of clients")
      .Set(connections);
  builder_.Gauge("nacre_http_running", "Requests whose answer has not ended")
      .Set(running);
}

}  // namespace nacre::gateway
