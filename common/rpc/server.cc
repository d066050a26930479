#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/listen_address.h"
#include "common/rpc/callback_threads.h"
#include "common/rpc/callers.h"
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

int Milliseconds(absl::Duration duration) {
  // gRPC's word for never is the largest one.
  return static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(duration),
                                            std::numeric_limits<int>::max()));
}

// A call, for as long as gRPC has it.
class CountedCall final : public grpc::experimental::Interceptor {
 public:
  CountedCall(std::shared_ptr<Callers> callers, std::string peer)
      : callers_(std::move(callers)), peer_(std::move(peer)) {
    callers_->OnCall(peer_);
  }
  ~CountedCall() override { callers_->OnCallEnd(peer_); }
  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    batch->Proceed();
  }

 private:
  const std::shared_ptr<Callers> callers_;
  const std::string peer_;
};

class CallCounter final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounter(std::shared_ptr<Callers> callers)
      : callers_(std::move(callers)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    // Health and reflection: anyone may watch, for ever.
    if (absl::StartsWith(call->method(), "/grpc.")) return nullptr;
    return new CountedCall(callers_, call->server_context()->peer());
  }

 private:
  const std::shared_ptr<Callers> callers_;
};

void CountCalls(std::shared_ptr<Callers> callers,
                grpc::ServerBuilder* builder) {
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      creators;
  creators.push_back(std::make_unique<CallCounter>(std::move(callers)));
  builder->experimental().SetInterceptorCreators(std::move(creators));
}

void LimitTimes(const RpcServer::Options& options,
                grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              Milliseconds(options.handshake_timeout));
  // Clients of ours may ping as often as they do (channel.cc), or they would be
  // sent away for too many pings.
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(options.keepalive.time / 2));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              Milliseconds(options.keepalive.time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Milliseconds(options.keepalive.timeout));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              Milliseconds(options.max_idle));
  // The grace stays gRPC's own, for ever: no call is cut.
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                              Milliseconds(options.max_age));
}

void LimitResources(const RpcServer::Options& options,
                    grpc::ServerBuilder* builder) {
  // Decompressing knows no limit: a request of 16 MiB could become gigabytes.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  using SyncOption = grpc::ServerBuilder::SyncServerOption;
  builder->SetSyncServerOption(SyncOption::NUM_CQS, 1);
  builder->SetSyncServerOption(SyncOption::MIN_POLLERS, 1);
  builder->SetSyncServerOption(SyncOption::MAX_POLLERS, 2);
  grpc::ResourceQuota quota;
  quota.SetMaxThreads(options.max_threads);
  if (options.max_memory_bytes > 0) {
    quota.Resize(static_cast<size_t>(options.max_memory_bytes));
    // What is not read yet stays at 64 KiB a call: else gRPC gives the calls of
    // a fast connection megabytes each.
    builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  builder->SetResourceQuota(quota);
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
  const std::shared_ptr<grpc::ServerCredentials> credentials =
      options.credentials == nullptr ? grpc::InsecureServerCredentials()
                                     : options.credentials;
  int port = 0;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<External> external;
  if (options.max_connections > 0 && !is_unix) {
    const auto callers = std::make_shared<Callers>();
    CountCalls(callers, &builder);
    NACRE_ASSIGN_OR_RETURN(
        acceptor, Acceptor::Bind({.listen = options.listen,
                                  .max_connections = options.max_connections,
                                  .user_timeout = options.keepalive.timeout,
                                  .connections = options.connections,
                                  .callers = callers}));
    port = acceptor->port();
    external = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        credentials);
  } else {
    builder.AddListeningPort(options.listen, credentials, &port);
  }
  builder.SetMaxReceiveMessageSize(options.max_request_bytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  LimitTimes(options, &builder);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.max_streams_per_connection);
  LimitResources(options, &builder);
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
      absl::WrapUnique(new RpcServer(std::move(acceptor), std::move(external),
                                     std::move(server), std::move(address)));
  for (const char* service : {"", "startup", "liveness", "readiness"}) {
    result->SetServing(service, false);
  }
  if (!options.address_file.empty()) {
    NACRE_RETURN_IF_ERROR(
        WriteAddressFile(options.address_file, result->address()));
  }
  return result;
}

RpcServer::RpcServer(std::unique_ptr<Acceptor> acceptor,
                     std::unique_ptr<External> external,
                     std::unique_ptr<grpc::Server> server, std::string address)
    : acceptor_(std::move(acceptor)),
      external_(std::move(external)),
      server_(std::move(server)),
      address_(std::move(address)) {
  if (acceptor_ == nullptr) return;
  acceptor_->Start([this](int listener_fd, int fd) {
    External::NewConnectionParameters connection;
    connection.listener_fd = listener_fd;
    connection.fd = fd;
    external_->HandleNewConnection(&connection);
  });
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(const std::string& service, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(service, serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  if (acceptor_ != nullptr) acceptor_->Stop();
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
}

}  // namespace nacre::rpc
