// gRPC's own messages in our log: what it would print on stderr by itself is no
// line of ours, nor JSON.

#ifndef COMMON_RPC_GRPC_LOG_H_
#define COMMON_RPC_GRPC_LOG_H_

namespace nacre::rpc {

// As long as it lives, gRPC logs through spdlog. One at a time; must not
// outlive Logging.
class GrpcLog {
 public:
  GrpcLog();
  ~GrpcLog();
  GrpcLog(const GrpcLog&) = delete;
  GrpcLog& operator=(const GrpcLog&) = delete;
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_GRPC_LOG_H_
