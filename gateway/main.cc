// The gateway: OpenAI's HTTP API for one or several coordinators. Keeps no
// state between requests.
//
//   nacre-gateway --tokenizer MODEL_DIR --coordinator 127.0.0.1:50050

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/files.h"
#include "common/heap_trimmer.h"
#include "common/listen_address.h"
#include "common/mutex_checks.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/bearer_tokens.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/own_token.h"
#include "common/rpc/signals.h"
#include "common/status_macros.h"
#include "gateway/chat_prompt.h"
#include "gateway/cors.h"
#include "gateway/event_loop.h"
#include "gateway/fleet_client.h"
#include "gateway/gateway_flags.h"
#include "gateway/gateway_metrics.h"
#include "gateway/gateway_service.h"
#include "gateway/http_server.h"
#include "gateway/inference_client.h"
#include "telemetry/metrics_server.h"
#include "telemetry/program.h"
#include "tokenizer/tokenizer.h"

namespace nacre::gateway {
namespace {

constexpr int64_t kMaxDefaultsBytes = 1 << 20;
// How long the start waits for coordinators: without them it goes on.
constexpr absl::Duration kFirstAnswers = absl::Seconds(5);

absl::StatusOr<SamplingDefaults> LoadDefaults(const std::string& model_dir) {
  const std::string path = model_dir + "/generation_config.json";
  if (!std::filesystem::exists(path)) return SamplingDefaults();
  NACRE_ASSIGN_OR_RETURN(const std::string text,
                         ReadRegularFile(path, kMaxDefaultsBytes));
  return ReadSamplingDefaults(text);
}

absl::StatusOr<InferenceClient::Options> ClientOptions(
    const GatewayFlags& flags) {
  InferenceClient::Options options;
  options.addresses = flags.Addresses();
  options.request_timeout = flags.waits.request_timeout;
  options.resume_timeout = flags.waits.resume_timeout;
  NACRE_ASSIGN_OR_RETURN(options.security,
                         rpc::LoadClientTls(flags.client_tls));
  if (!flags.token_file.empty()) {
    NACRE_ASSIGN_OR_RETURN(std::shared_ptr<const rpc::OwnToken> own,
                           rpc::OwnToken::Load(flags.token_file));
    options.token = [own = std::move(own)] { return own->token(); };
  }
  return options;
}

// What is gone through once a scrape.
class ConnectionGauges : public prometheus::Collectable {
 public:
  ConnectionGauges(GatewayMetrics* metrics, const HttpServer* server)
      : metrics_(metrics), server_(server) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    metrics_->SetConnections(server_->connections(), server_->running());
    return metrics_->collectable()->Collect();
  }

 private:
  GatewayMetrics* const metrics_;
  const HttpServer* const server_;
};

telemetry::HealthState HealthOf(const InferenceClient& client) {
  const absl::Status health = client.health();
  return {.live = true,
          .ready = health.ok(),
          .note = std::string(health.message())};
}

// What is read at the start and does not change.
struct Model {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  ChatPrompts chats;
  SamplingDefaults defaults;
  std::unique_ptr<rpc::BearerTokens> tokens;  // null: all clients are served
  std::unique_ptr<rpc::BearerTokens> admin_tokens;  // null: none is asked for
};

// Null where there is no file.
absl::StatusOr<std::unique_ptr<rpc::BearerTokens>> LoadTokens(
    const std::string& file) {
  if (file.empty()) return nullptr;
  return rpc::BearerTokens::Load(file);
}

absl::StatusOr<Model> LoadModel(const GatewayFlags& flags) {
  NACRE_ASSIGN_OR_RETURN(auto tokenizer,
                         tokenizer::LoadTokenizer(flags.tokenizer));
  NACRE_ASSIGN_OR_RETURN(
      ChatPrompts chats,
      ChatPrompts::Load({.model_dir = flags.tokenizer,
                         .file = flags.served.chat_template,
                         .tokenizer_config = flags.served.tokenizer_config},
                        *tokenizer));
  NACRE_ASSIGN_OR_RETURN(const SamplingDefaults defaults,
                         LoadDefaults(flags.tokenizer));
  NACRE_ASSIGN_OR_RETURN(auto tokens, LoadTokens(flags.auth_tokens_file));
  NACRE_ASSIGN_OR_RETURN(auto admin_tokens,
                         LoadTokens(flags.admin_tokens_file));
  return Model{std::move(tokenizer), std::move(chats), defaults,
               std::move(tokens), std::move(admin_tokens)};
}

// Null where no /metrics is wanted.
absl::StatusOr<std::unique_ptr<telemetry::MetricsServer>> ServeMetrics(
    const GatewayFlags& flags, GatewayMetrics* metrics,
    const HttpServer* server, const InferenceClient* client) {
  if (flags.metrics_listen.empty()) return nullptr;
  return telemetry::MetricsServer::Start(
      {flags.metrics_listen, flags.metrics_address_file},
      {std::make_shared<ConnectionGauges>(metrics, server)},
      [client] { return HealthOf(*client); });
}

absl::StatusOr<std::unique_ptr<HttpServer>> ServeHttp(const GatewayFlags& flags,
                                                      EventLoop* loop,
                                                      GatewayService* service,
                                                      GatewayMetrics* metrics) {
  HttpServer::Options http{flags.listen, flags.http, flags.public_tls};
  http.limits.max_connections =
      std::clamp(rpc::RaiseFileLimit() / 2, 1, http.limits.max_connections);
  http.on_answer = [metrics](const std::string& path, int status) {
    metrics->CountAnswer(path, status);
  };
  http.refusal_headers = [origins =
                              flags.Origins()](const std::string& origin) {
    return CorsHeaders(origins, origin);
  };
  const auto handle = [service](HttpRequest request,
                                const std::shared_ptr<HttpReply>& reply) {
    service->Handle(std::move(request), reply);
  };
  return HttpServer::Start(std::move(http), loop,
                           AllowOrigins(flags.Origins(), handle));
}

absl::Status Run(const GatewayFlags& flags) {
  NACRE_ASSIGN_OR_RETURN(const LogOptions log_options, flags.log.Parse());
  const Logging logging("gateway", log_options);
  const rpc::GrpcLog grpc_log;
  NACRE_RETURN_IF_ERROR(flags.Validate());
  NACRE_ASSIGN_OR_RETURN(const Model model, LoadModel(flags));
  NACRE_ASSIGN_OR_RETURN(InferenceClient::Options client_options,
                         ClientOptions(flags));
  GatewayMetrics metrics;
  client_options.on_further_call =
      [&metrics](InferenceClient::FurtherCall kind) {
        metrics.CountFurtherCall(
            kind == InferenceClient::FurtherCall::kRetry ? "retry" : "resume");
      };
  EventLoop loop;
  FleetClient fleet({flags.AdminAddresses(), client_options.security}, &loop);
  InferenceClient client(std::move(client_options), &loop);
  GatewayService service(
      {.loop = &loop,
       .client = &client,
       .tokenizer = model.tokenizer.get(),
       .chats = &model.chats,
       .tokens = model.tokens.get(),
       .fleet = flags.admins.empty() ? nullptr : &fleet,
       .admin_tokens = model.admin_tokens.get(),
       .serves_page = !flags.served.no_ui,
       .escapes_special_tokens = flags.served.escape_special_tokens,
       .trusts_request_templates = flags.served.trust_request_chat_template,
       .metrics = &metrics,
       .defaults = model.defaults,
       .default_max_tokens =
           static_cast<uint32_t>(flags.served.default_max_tokens),
       .served_names = flags.served.names,
       .ping_period = flags.waits.ping_period});

  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> server,
                         ServeHttp(flags, &loop, &service, &metrics));
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<telemetry::MetricsServer> metrics_server,
      ServeMetrics(flags, &metrics, server.get(), &client));
  // What waits for the address finds a gateway that knows its model.
  client.AwaitFirstAnswers(kFirstAnswers);
  if (!flags.address_file.empty()) {
    NACRE_RETURN_IF_ERROR(
        WriteAddressFile(flags.address_file, server->address()));
  }
  spdlog::info(
      "HTTP: {} ({}), coordinators: {}, chat template: {}", server->address(),
      flags.public_tls.empty() ? "plaintext" : "TLS", flags.coordinators,
      model.chats.source().empty() ? "none" : "found");

  HeapTrimmer trimmer({});
  trimmer.Start();
  rpc::WaitForTerminationSignal();
  spdlog::info("draining {} answers", server->running());
  if (!server->Drain(flags.waits.drain_timeout)) {
    spdlog::warn("{} answers cut off", server->running());
  }
  metrics_server.reset();
  server.reset();
  // What is still being read refers to the service, what is answered to the
  // client. Calls that were cut off need the loop to end.
  loop.StopWork();
  client.Close();
  fleet.Close();
  loop.Stop();
  return absl::OkStatus();
}

}  // namespace
}  // namespace nacre::gateway

int main(int argc, char** argv) {
  nacre::StartWithSmallHeap(argv);
  nacre::DisableMutexChecks();
  nacre::rpc::BlockTerminationSignals();
  return nacre::telemetry::RunProgram(
      argc, argv, "nacre-gateway",
      "OpenAI's HTTP API for Nacre: completions, chats, "
      "models and tokens over one or several coordinators.",
      nacre::gateway::Run);
}
