#include "telemetry/build_info.h"

#include <grpcpp/grpcpp.h>

namespace nacre::telemetry {

BuildInfo GetBuildInfo() {
  return {NACRE_VERSION, NACRE_COMMIT, grpc::Version(), NACRE_CUDA_VERSION,
          "none"};
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
