#include "telemetry/metrics_server.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/listen_address.h"
#include "common/status_macros.h"
#include "telemetry/build_info.h"

namespace nacre::telemetry {
namespace {

using Answer = HttpServer::Answer;

Answer RenderMetrics(const std::vector<MetricsServer::Source>& sources) {
  std::vector<prometheus::MetricFamily> families = {BuildInfoFamily()};
  for (const MetricsServer::Source& source : sources) {
    std::vector<prometheus::MetricFamily> more = source->Collect();
    std::move(more.begin(), more.end(), std::back_inserter(families));
  }
  const prometheus::TextSerializer serializer;
  return {200, serializer.Serialize(families)};
}

Answer RenderProbe(bool ok, const std::string& note) {
  return {ok ? 200 : 503, absl::StrCat(ok ? "ok" : "not ok",
                                       note.empty() ? "" : ": ", note, "\n")};
}

HttpServer::Pages MakePages(std::vector<MetricsServer::Source> sources,
                            const MetricsServer::Health& health) {
  HttpServer::Pages pages;
  // A source may wait for a lock that a hung process holds for ever.
  pages["/metrics"] = {
      [sources = std::move(sources)] { return RenderMetrics(sources); },
      /*may_block=*/true};
  if (!health) return pages;
  // A process that answers has started.
  pages["/startup"] = {[] { return RenderProbe(true, ""); }};
  pages["/liveness"] = {[health] {
    const HealthState state = health();
    return RenderProbe(state.live, state.live ? "" : state.note);
  }};
  pages["/readiness"] = {[health] {
    const HealthState state = health();
    return RenderProbe(state.ready, state.note);
  }};
  return pages;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const Options& options, std::vector<Source> sources, const Health& health) {
  auto server = absl::WrapUnique(new MetricsServer);
  HttpServer::Options http;
  http.listen = options.listen;
  absl::StatusOr<std::unique_ptr<HttpServer>> started =
      HttpServer::Start(http, MakePages(std::move(sources), health));
  if (!started.ok()) {
    return absl::Status(
        started.status().code(),
        absl::StrCat("cannot serve metrics: ", started.status().message()));
  }
  server->server_ = *std::move(started);
  if (!options.address_file.empty()) {
    NACRE_RETURN_IF_ERROR(
        WriteAddressFile(options.address_file, server->address()));
  }
  return server;
}

}  // namespace nacre::telemetry
