// What nacre-gateway is told on its command line or by its environment.

#ifndef GATEWAY_GATEWAY_FLAGS_H_
#define GATEWAY_GATEWAY_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/flag_set.h"
#include "common/logging.h"
#include "common/rpc/security.h"
#include "gateway/http_server.h"

namespace nacre::gateway {

struct ChatFlags {
  std::string file;  // --chat-template
  std::string tokenizer_config;
  bool escape_special_tokens = false;
  bool trust_request_template = false;
  int default_max_tokens = 0;  // 0: what context and KV leave

  void Register(FlagSet* flags);
};

struct GatewayFlags {
  std::string listen = "127.0.0.1:8000";
  std::string address_file;
  std::string metrics_listen;
  std::string metrics_address_file;
  std::string coordinators = "127.0.0.1:50050";  // host:port,host:port
  std::string tokenizer;                         // folder of the checkpoint
  ChatFlags chats;
  std::vector<std::string> served_names;
  std::string auth_tokens_file;
  std::string token_file;
  std::string admins;  // host:port,host:port of coordinators, for operators
  std::string admin_tokens_file;
  std::string cors_origins;  // ORIGIN,ORIGIN
  bool no_ui = false;
  rpc::TlsFiles public_tls;
  rpc::ClientTlsFlags client_tls;
  HttpLimits http;
  absl::Duration ping_period = absl::Seconds(15);
  absl::Duration request_timeout = absl::ZeroDuration();
  absl::Duration resume_timeout = absl::Seconds(30);
  absl::Duration drain_timeout = absl::Seconds(30);
  LogFlags log;

  void Register(FlagSet* flags);
  // INVALID_ARGUMENT names the flag, the value and the limit.
  absl::Status Validate() const;
  std::vector<std::string> Addresses() const;
  std::vector<std::string> AdminAddresses() const;
  std::vector<std::string> Origins() const;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_GATEWAY_FLAGS_H_
