// Which build this is.

#ifndef TELEMETRY_BUILD_INFO_H_
#define TELEMETRY_BUILD_INFO_H_

#include <prometheus/metric_family.h>

#include <string>

namespace nacre::telemetry {

struct BuildInfo {
  std::string version;
  std::string commit;  // at configuration; "unknown" outside a git checkout
  std::string grpc;
  std::string cuda;  // compiler's version; "none": this build has no CUDA
  std::string nccl;  // version of its header; "none": this build has no NCCL
};

BuildInfo GetBuildInfo();

// A line for --version: "nacre 0.2.0 (commit 0123456789ab, CUDA 13.0)".
std::string VersionText(const std::string& program);

// nacre_build_info, the gauge that is always 1.
prometheus::MetricFamily BuildInfoFamily();

}  // namespace nacre::telemetry

#endif  // TELEMETRY_BUILD_INFO_H_
