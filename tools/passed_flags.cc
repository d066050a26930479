#include "tools/passed_flags.h"

#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace nacre::tools {
namespace {

struct PassedFlag {
  bool to_coordinator;
  bool to_workers;
  const char* name;
  const char* value_name;
  const char* help;
};

constexpr PassedFlag kPassedFlags[] = {
    {true, false, "max-running", "N", "requests that run at once"},
    {true, false, "max-queue", "N", "requests that wait for room; 0: none"},
    {true, false, "queue-timeout", "DURATION", "how long a request waits"},
    {true, false, "hold-without-target", "on|off",
     "do requests wait like this while no target is there? (on)"},
    {true, false, "max-request-duration", "DURATION",
     "from a request's arrival to its end; 0: its own deadline only"},
    {true, false, "max-request-bytes", "BYTES", "size of a request"},
    {true, false, "max-streams-per-client", "N",
     "calls of one client at once; 0: no limit"},
    {true, false, "max-connections", "N", "connections of clients at once"},
    {true, false, "max-streams-per-connection", "N",
     "calls of one client connection at once"},
    {true, false, "max-client-memory-bytes", "BYTES",
     "what all connections of clients may take; 0: no limit"},
    {true, false, "client-timeout", "DURATION",
     "after it a client that takes nothing is cut off; 0: never"},
    {true, false, "tokenizer-threads", "N", "threads that tokenize prompts"},
    {true, false, "default-policy", "P",
     "draft-length policy of requests that name none"},
    {true, false, "failover-timeout", "DURATION",
     "how long the requests of a lost target wait for an equal one"},
    {true, false, "worker-timeout", "DURATION",
     "how long a worker may be silent before it counts as lost"},
    {false, true, "hang-timeout", "DURATION",
     "work without progress for so long is a hang"},
    {false, true, "prefill-chunk", "ROWS",
     "most prompt tokens in a step while sessions decode"},
    {false, true, "spin", "DURATION",
     "how long a wait for the other worker keeps a core awake"},
    {true, false, "otlp-endpoint", "H:P",
     "OTLP collector (gRPC) to send traces to, or https://H:P"},
    {true, false, "otlp-tls-ca", "FILE", "who signs its certificate"},
    {true, false, "otlp-tls-cert", "FILE", "certificate to show to it"},
    {true, false, "otlp-tls-key", "FILE", "private key of --otlp-tls-cert"},
    {true, false, "otlp-headers-file", "FILE",
     "one key=value a line: metadata for it, as a token"},
    {true, false, "otlp-compression", "gzip|none", "of what is sent to it"},
    {true, false, "otlp-timeout", "DURATION", "of a call to it (10s)"},
    {true, false, "otlp-sample-ratio", "R",
     "share of the requests to trace where the client does not say"},
    {true, true, "log-format", "text|json", "of all processes"},
    {true, true, "log-level", "LEVEL",
     "of all processes: trace, debug, info, warn, error or off"},
    {true, true, "tls-client-auth", "require|none",
     "must workers and operators that call show a certificate?"},
};

std::vector<std::string> Args(
    const std::vector<std::optional<std::string>>& values,
    bool PassedFlag::*is_for) {
  std::vector<std::string> args;
  for (size_t i = 0; i < values.size(); ++i) {
    const PassedFlag& flag = kPassedFlags[i];
    if (values[i].has_value() && flag.*is_for) {
      args.push_back(absl::StrCat("--", flag.name, "=", *values[i]));
    }
  }
  return args;
}

}  // namespace

PassedFlags::PassedFlags() : values_(std::size(kPassedFlags)) {}

void PassedFlags::Register(FlagSet* flags) {
  for (size_t i = 0; i < values_.size(); ++i) {
    const PassedFlag& flag = kPassedFlags[i];
    flags->Add(flag.name, flag.value_name, &values_[i], flag.help);
  }
}

std::vector<std::string> PassedFlags::CoordinatorArgs() const {
  return Args(values_, &PassedFlag::to_coordinator);
}

std::vector<std::string> PassedFlags::WorkerArgs() const {
  return Args(values_, &PassedFlag::to_workers);
}

}  // namespace nacre::tools
