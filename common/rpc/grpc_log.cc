#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

#include <cstring>

namespace nacre::rpc {
namespace {

// What gRPC calls an error is mostly a peer's.
spdlog::level::level_enum LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return spdlog::level::debug;
    case GPR_LOG_SEVERITY_INFO:
      return spdlog::level::info;
    case GPR_LOG_SEVERITY_ERROR:
      break;
  }
  return spdlog::level::warn;
}

void Forward(gpr_log_func_args* args) {
  const char* slash = std::strrchr(args->file, '/');
  spdlog::log(LevelOf(args->severity), "gRPC: {} ({}:{})", args->message,
              slash == nullptr ? args->file : slash + 1, args->line);
}

}  // namespace

GrpcLog::GrpcLog() { gpr_set_log_function(Forward); }

GrpcLog::~GrpcLog() { gpr_set_log_function(nullptr); }

}  // namespace nacre::rpc
