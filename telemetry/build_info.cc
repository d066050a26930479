#include "telemetry/build_info.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"

namespace nacre::telemetry {

BuildInfo GetBuildInfo() {
  return {NACRE_VERSION, NACRE_COMMIT, grpc::Version(), NACRE_CUDA_VERSION,
          NACRE_NCCL_VERSION};
}

std::string VersionText(const std::string& program) {
  const BuildInfo info = GetBuildInfo();
  return absl::StrCat(program, " ", info.version, " (commit ", info.commit,
                      ", CUDA ", info.cuda, ")");
}

prometheus::MetricFamily BuildInfoFamily() {
  const BuildInfo info = GetBuildInfo();
  prometheus::ClientMetric metric;
  metric.label = {{"version", info.version},
                  {"commit", info.commit},
                  {"cuda", info.cuda},
                  {"nccl", info.nccl},
                  {"grpc", info.grpc}};
  metric.gauge.value = 1;
  return {"nacre_build_info",
          "Which build this is; always 1.",
          prometheus::MetricType::Gauge,
          {metric}};
}

}  // namespace nacre::telemetry
