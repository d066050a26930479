#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/listen_address.h"
#include "common/rpc/callback_threads.h"
#include "common/rpc/channel.h"
#include "common/status_macros.h"

namespace nacre::rpc {
namespace {

// unix:path, or host:port with a port that exists. gRPC itself would only say
// that it could not bind.
bool IsListenAddress(const std::string& listen) {
  if (absl::StartsWith(listen, "unix:")) return listen.size() > 5;
  return IsHostPort(listen);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const Options& options, const std::vector<grpc::Service*>& services) {
  if (!IsListenAddress(options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address \"", options.listen,
                     "\" is not host:port with a port in [0, 65535]"));
  }
  const size_t colon = options.listen.rfind(':');
  const bool is_unix = absl::StartsWith(options.listen, "unix:");
  KeepCallbackThreads();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen,
                           options.credentials == nullptr
                               ? grpc::InsecureServerCredentials()
                               : options.credentials,
                           &port);
  builder.SetMaxReceiveMessageSize(options.max_request_bytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(
      GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
      static_cast<int>(absl::ToInt64Milliseconds(options.handshake_timeout)));
  // Clients of ours may ping as often as they do (channel.cc), or they would be
  // sent away for too many pings.
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      kKeepaliveTimeMs / 2);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || (port == 0 && !is_unix)) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options.listen,
                     ": bad host, or the port is taken"));
  }
  std::string address =
      is_unix ? options.listen
              : absl::StrCat(options.listen.substr(0, colon), ":", port);
  auto result =
      absl::WrapUnique(new RpcServer(std::move(server), std::move(address)));
  for (const char* service : {"", "startup", "liveness", "readiness"}) {
    result->SetServing(service, false);
  }
  if (!options.address_file.empty()) {
    NACRE_RETURN_IF_ERROR(
        WriteAddressFile(options.address_file, result->address()));
  }
  return result;
}

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(const std::string& service, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(service, serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
}

}  // namespace nacre::rpc
