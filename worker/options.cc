#include "worker/options.h"

#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/logging.h"
#include "common/status_macros.h"
#include "speculation/policies/policy_spec.h"

namespace nacre::worker {
namespace {

struct Flag {
  const char* name;
  const char* value;  // what the help calls it
  const char* help;
  absl::Status (*set)(const std::string& text, WorkerOptions* options);
};

template <std::string WorkerOptions::*kField>
absl::Status SetText(const std::string& text, WorkerOptions* options) {
  options->*kField = text;
  return absl::OkStatus();
}

template <std::string rpc::TlsFiles::*kField>
absl::Status SetTlsFile(const std::string& text, WorkerOptions* options) {
  options->tls.files.*kField = text;
  return absl::OkStatus();
}

absl::Status SetCpus(const std::string& text, WorkerOptions* options) {
  NACRE_ASSIGN_OR_RETURN(options->backend.cpus, kernels::ParseCpuList(text));
  return absl::OkStatus();
}

absl::Status SetDevice(const std::string& text, WorkerOptions* options) {
  if (!absl::SimpleAtoi(text, &options->backend.device) ||
      options->backend.device < 0) {
    return absl::InvalidArgumentError("not a device number of 0 or more");
  }
  return absl::OkStatus();
}

// "1073741824", "1024M" or "1G".
absl::Status SetMaxMemory(const std::string& text, WorkerOptions* options) {
  int64_t unit = 1;
  std::string digits = text;
  if (!digits.empty()) {
    const char suffix = digits.back();
    if (suffix == 'K') unit = int64_t{1} << 10;
    if (suffix == 'M') unit = int64_t{1} << 20;
    if (suffix == 'G') unit = int64_t{1} << 30;
    if (unit > 1) digits.pop_back();
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(digits, &count) || count < 1 ||
      count > std::numeric_limits<int64_t>::max() / unit) {
    return absl::InvalidArgumentError(
        "not a number of bytes of 1 or more (K, M and G may follow)");
  }
  options->max_memory_bytes = count * unit;
  return absl::OkStatus();
}

absl::Status SetHangTimeout(const std::string& text, WorkerOptions* options) {
  if (!absl::ParseDuration(text, &options->hang_timeout) ||
      options->hang_timeout < absl::Seconds(1) ||
      options->hang_timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError("not a duration like 8s, 1s to 24h");
  }
  return absl::OkStatus();
}

absl::Status SetPrefillChunk(const std::string& text, WorkerOptions* options) {
  const int max_rows = StepBudget().max_rows;
  if (!absl::SimpleAtoi(text, &options->prefill_chunk) ||
      options->prefill_chunk < 1 || options->prefill_chunk > max_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a number of rows of 1 to ", max_rows));
  }
  return absl::OkStatus();
}

absl::Status SetSpin(const std::string& text, WorkerOptions* options) {
  if (!absl::ParseDuration(text, &options->spin) ||
      options->spin < absl::ZeroDuration() ||
      options->spin > absl::Seconds(10)) {
    return absl::InvalidArgumentError("not a duration like 5ms, 0 to 10s");
  }
  return absl::OkStatus();
}

template <bool WorkerOptions::*kField>
absl::Status SetSwitch(const std::string& text, WorkerOptions* options) {
  if (text != "on" && text != "off") {
    return absl::InvalidArgumentError("not on or off");
  }
  options->*kField = text == "on";
  return absl::OkStatus();
}

absl::Status SetPolicyFile(const std::string& text, WorkerOptions* options) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  const auto& [name, dir] = parts;
  std::string names;
  bool is_known = false;
  for (const speculation::PolicyInfo& info : speculation::AllPolicies()) {
    if (info.file == speculation::PolicyFile::kNone) continue;
    absl::StrAppend(&names, names.empty() ? "" : " ", info.name);
    is_known = is_known || name == info.name;
  }
  if (!is_known || dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("not NAME=DIR, NAME one of: ", names));
  }
  for (const auto& [other, unused] : options->policy_files) {
    if (other == name) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is already a file for ", name));
    }
  }
  options->policy_files.push_back(parts);
  return absl::OkStatus();
}

absl::Status SetDrainTimeout(const std::string& text, WorkerOptions* options) {
  if (!absl::ParseDuration(text, &options->drain_timeout) ||
      options->drain_timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("not a duration like 30s, 0 or more");
  }
  return absl::OkStatus();
}

constexpr Flag kFlags[] = {
    {"model", "DIR", "Hugging Face folder of the model (required)",
     SetText<&WorkerOptions::model_dir>},
    {"coordinator", "HOST:PORT",
     "port for workers of the coordinator to register with (required)",
     SetText<&WorkerOptions::coordinator>},
    {"listen", "HOST:PORT", "address to serve on (127.0.0.1:0, a free port)",
     SetText<&WorkerOptions::listen>},
    {"advertise", "HOST:PORT",
     "address the coordinator dials (the one that was bound)",
     SetText<&WorkerOptions::advertise>},
    {"backend", "KIND", "cpu, reference or cuda (cpu)",
     [](const std::string& text, WorkerOptions* options) {
       options->backend.kind = text;
       return absl::OkStatus();
     }},
    {"cpus", "LIST", "cores for compute threads, like 0,2-3 (one, unpinned)",
     SetCpus},
    {"weights", "TYPE",
     "auto, f32, bf16, bf16a16 (the inputs of products, too), int8, int4 or "
     "fp8 (auto: as in the checkpoint; all but f32 may change outputs; int4 "
     "not on cuda, fp8 on cuda only)",
     [](const std::string& text, WorkerOptions* options) {
       options->backend.weights = text;
       return absl::OkStatus();
     }},
    {"kv-type", "TYPE",
     "f32 or bf16, of keys and values (f32; bf16 halves the KV cache and "
     "changes outputs)",
     [](const std::string& text, WorkerOptions* options) {
       options->backend.kv_type = text;
       return absl::OkStatus();
     }},
    {"device", "N", "GPU of --backend cuda (0)", SetDevice},
    {"max-memory", "BYTES",
     "size of the KV cache, K, M or G may follow (what 32 full contexts "
     "need, at most 1G); of a GPU: weights, KV cache and scratch together (a "
     "share of what is free)",
     SetMaxMemory},
    {"address-file", "FILE", "receives the bound address once it accepts calls",
     SetText<&WorkerOptions::address_file>},
    {"metrics-listen", "HOST:PORT",
     "address to serve /metrics on, port 0 picks a free one (off)",
     SetText<&WorkerOptions::metrics_listen>},
    {"metrics-address-file", "FILE", "receives the bound address of /metrics",
     SetText<&WorkerOptions::metrics_address_file>},
    {"log-format", "FORMAT", "text or json (text)",
     SetText<&WorkerOptions::log_format>},
    {"log-level", "LEVEL", "trace, debug, info, warn, error or off (info)",
     SetText<&WorkerOptions::log_level>},
    {"drain-timeout", "DURATION",
     "how long SIGTERM waits for open sessions (30s)", SetDrainTimeout},
    {"hang-timeout", "DURATION",
     "work without progress for so long is a hang: not live (8s)",
     SetHangTimeout},
    {"prefill-chunk", "ROWS",
     "most prompt tokens in a step while sessions decode: less holds them up "
     "less, more reads prompts sooner (128)",
     SetPrefillChunk},
    {"spin", "DURATION",
     "how long a wait for the other worker keeps a core awake, yielding it; a "
     "core that sleeps answers later (5ms)",
     SetSpin},
    {"prefix-cache", "on|off",
     "whether prompts that begin alike share KV; outputs are the same (on)",
     SetSwitch<&WorkerOptions::prefix_cache>},
    {"gate-timeouts", "on|off",
     "of a target worker: whether a step begins without the draft's tokens "
     "when "
     "they are late; off makes recordings independent of time (on)",
     SetSwitch<&WorkerOptions::gate_timeouts>},
    {"policy-file", "NAME=DIR",
     "of a draft worker: calibration of a length policy; may be given several "
     "times",
     SetPolicyFile},
    {"record-features", "FILE",
     "what a draft's rows say of every verified token, or where the hidden "
     "states of a target's tokens are, is appended there, for calibration "
     "(off)",
     SetText<&WorkerOptions::record_features>},
    {"record-hidden", "FILE",
     "with --record-features: hidden states go to this new file; they are "
     "large (off)",
     SetText<&WorkerOptions::record_hidden>},
    {"tls-cert", "FILE", "certificate of this worker (PEM); TLS both ways",
     SetTlsFile<&rpc::TlsFiles::cert_file>},
    {"tls-key", "FILE", "private key of --tls-cert (PEM)",
     SetTlsFile<&rpc::TlsFiles::key_file>},
    {"tls-ca", "FILE", "who signs the coordinator's certificate (PEM)",
     SetTlsFile<&rpc::TlsFiles::ca_file>},
    {"tls-client-auth", "require|none",
     "must who dials this worker show a certificate? (require)",
     [](const std::string& text, WorkerOptions* options) {
       options->tls.client_auth = text;
       return absl::OkStatus();
     }},
    {"tls-server-name", "NAME",
     "name in the coordinator's certificate (host of --coordinator)",
     [](const std::string& text, WorkerOptions* options) {
       options->tls.server_name = text;
       return absl::OkStatus();
     }},
};

const Flag* FindFlag(const std::string& name) {
  for (const Flag& flag : kFlags) {
    if (name == flag.name) return &flag;
  }
  return nullptr;
}

absl::Status CheckAddress(const char* flag, const std::string& address,
                          bool allow_port_zero) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535 ||
      port < (allow_port_zero ? 0 : 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " \"", address, "\" is not HOST:PORT"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerOptions> ParseWorkerOptions(
    const std::vector<std::string>& args) {
  WorkerOptions options;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help" || arg == "-h") {
      options.help = true;
      return options;
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    const Flag* flag =
        absl::StartsWith(name, "--") ? FindFlag(name.substr(2)) : nullptr;
    if (flag == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag \"", name, "\"; see --help"));
    }
    if (equals == std::string::npos && i + 1 == args.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " needs a value, ", flag->value));
    }
    const std::string value =
        equals == std::string::npos ? args[++i] : arg.substr(equals + 1);
    if (absl::Status status = flag->set(value, &options); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " \"", value, "\": ", status.message()));
    }
  }
  NACRE_RETURN_IF_ERROR(Validate(options));
  return options;
}

absl::Status Validate(const WorkerOptions& options) {
  NACRE_RETURN_IF_ERROR(
      ParseLogOptions(options.log_format, options.log_level).status());
  if (options.model_dir.empty()) {
    return absl::InvalidArgumentError("--model DIR is required");
  }
  if (options.coordinator.empty()) {
    return absl::InvalidArgumentError("--coordinator HOST:PORT is required");
  }
  NACRE_RETURN_IF_ERROR(CheckAddress("coordinator", options.coordinator,
                                     /*allow_port_zero=*/false));
  NACRE_RETURN_IF_ERROR(
      CheckAddress("listen", options.listen, /*allow_port_zero=*/true));
  if (!options.record_hidden.empty() && options.record_features.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--record-hidden ", options.record_hidden,
                     " needs --record-features, which refers to its states"));
  }
  if (!options.metrics_listen.empty()) {
    NACRE_RETURN_IF_ERROR(CheckAddress("metrics-listen", options.metrics_listen,
                                       /*allow_port_zero=*/true));
  }
  if (!options.advertise.empty()) {
    return CheckAddress("advertise", options.advertise,
                        /*allow_port_zero=*/false);
  }
  for (const char* wildcard : {"0.0.0.0:", "[::]:", "*:"}) {
    if (absl::StartsWith(options.listen, wildcard)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--listen ", options.listen,
                       " is no address to dial: --advertise is required"));
    }
  }
  return absl::OkStatus();
}

std::string HelpText(const std::string& program, const std::string& summary) {
  std::string text =
      absl::StrCat(program, ": ", summary, "\n\nUsage: ", program,
                   " --model DIR --coordinator HOST:PORT [flags]\n\n");
  for (const Flag& flag : kFlags) {
    absl::StrAppendFormat(&text, "  %-26s %s\n",
                          absl::StrCat("--", flag.name, " ", flag.value),
                          flag.help);
  }
  return text;
}

}  // namespace nacre::worker
