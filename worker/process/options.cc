#include "worker/process/options.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/cpu_list.h"
#include "common/cpu_quota.h"
#include "common/files.h"
#include "common/logging.h"
#include "common/status_macros.h"
#include "model/tensor_shard.h"
#include "speculation/policies/policy_spec.h"
#include "worker/process/coordinator_list.h"
#include "worker/process/flag_values.h"

namespace nacre::worker {
namespace {

// A text that is a duration in [least, most].
FlagSet::Set SetDuration(absl::Duration* value, absl::Duration least,
                         absl::Duration most, const char* words) {
  return [=](const std::string& text) -> absl::Status {
    absl::Duration parsed;
    if (!absl::ParseDuration(text, &parsed) || parsed < least ||
        parsed > most) {
      return absl::InvalidArgumentError(words);
    }
    *value = parsed;
    return absl::OkStatus();
  };
}

// A text that is a number in [least, most].
FlagSet::Set SetNumber(int* value, int least, int most,
                       const std::string& words) {
  return [=](const std::string& text) -> absl::Status {
    int parsed = 0;
    if (!absl::SimpleAtoi(text, &parsed) || parsed < least || parsed > most) {
      return absl::InvalidArgumentError(words);
    }
    *value = parsed;
    return absl::OkStatus();
  };
}

absl::Status SetPolicyFile(
    const std::string& text,
    std::vector<std::pair<std::string, std::string>>* files) {
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
  for (const auto& [other, unused] : *files) {
    if (other == name) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is already a file for ", name));
    }
  }
  files->push_back(parts);
  return absl::OkStatus();
}

void RegisterCpus(std::vector<int>* cpus, FlagSet* flags) {
  flags->AddParsed(
      "cpus", "LIST", "",
      [cpus](const std::string& text) -> absl::Status {
        if (text == "auto") {
          *cpus = CpusWithin(AvailableCpus(), CpuQuota());
          return absl::OkStatus();
        }
        NACRE_ASSIGN_OR_RETURN(*cpus, ParseCpuList(text));
        return absl::OkStatus();
      },
      "cores for compute threads, like 0,2-3; auto: one for each core that "
      "this "
      "process may use, by its affinity and its container's limit (default: "
      "one, unpinned)");
}

void RegisterPorts(WorkerOptions* options, FlagSet* flags) {
  flags->Add("listen", "HOST:PORT", &options->listen,
             "address to serve on; port 0 picks a free one");
  flags->Add("advertise", "HOST:PORT", &options->advertise,
             "address the coordinator dials (default: the one that was bound)");
  flags->Add("address-file", "FILE", &options->address_file,
             "receives the bound address once it accepts calls");
  flags->Add("metrics-listen", "HOST:PORT", &options->metrics_listen,
             "address to serve /metrics on, port 0 picks a free one (default: "
             "off)");
  flags->Add("metrics-address-file", "FILE", &options->metrics_address_file,
             "receives the bound address of /metrics");
}

void RegisterSuffixes(OwnDraftFlags* own, FlagSet* flags) {
  flags->AddSwitch("suffix-drafter", &own->suffix_drafter,
                   "of a target worker: whether it drafts from what followed "
                   "when the end of a text occurred before");
  flags->AddParsed(
      "suffix-cache", "BYTES", "16M",
      [own](const std::string& text) -> absl::Status {
        constexpr int64_t kLeast = 64 << 10;
        constexpr int64_t kMost = int64_t{16} << 30;
        absl::optional<int64_t> bytes = 0;
        if (text != "0" && (!SetBytes(text, &bytes).ok() || *bytes < kLeast ||
                            *bytes > kMost)) {
          return absl::InvalidArgumentError(
              "not 0 and not a number of bytes from 64K to 16G (K, M and G may "
              "follow)");
        }
        own->suffix_cache_bytes = *bytes;
        return absl::OkStatus();
      },
      "of a target worker: memory for answers to finished requests, from which "
      "it drafts for the same client; 0: from a request's own text alone");
}

absl::Status SetMedusaTree(const std::string& text,
                           speculation::TreeSpec* tree) {
  constexpr absl::string_view kList = "static:";
  std::string name = text;
  if (absl::StartsWith(text, kList)) {
    NACRE_ASSIGN_OR_RETURN(
        const std::string list,
        ReadFile(text.substr(kList.size()), speculation::kMaxShapeText));
    name = absl::StrCat(kList, list);
  }
  NACRE_ASSIGN_OR_RETURN(*tree, speculation::ParseTreeSpec(name));
  if (tree->shape == speculation::TreeShape::kBest ||
      tree->shape == speculation::TreeShape::kStatic) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("not best and not static:FILE");
}

// "--a, --b and --c".
std::string FlagsOfKinds(absl::string_view conjunction) {
  std::string text;
  const size_t count = OwnDraftKinds().size();
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&text,
                    i == 0           ? ""
                    : i + 1 == count ? absl::StrCat(" ", conjunction, " ")
                                     : ", ",
                    "--", OwnDraftKinds()[i].flag);
  }
  return text;
}

void RegisterOwnDraftKinds(OwnDraftFlags* own, FlagSet* flags) {
  for (size_t i = 0; i < OwnDraftKinds().size(); ++i) {
    const OwnDraftKind& kind = OwnDraftKinds()[i];
    flags->Add(kind.flag, kind.value, &own->paths[i], kind.help);
  }
  flags->AddParsed(
      "medusa-tree", "TREE", "best",
      [own](const std::string& text) {
        return SetMedusaTree(text, &own->medusa_tree);
      },
      "which of the candidates of --medusa may be verified: best, the "
      "likeliest; static:FILE, those of a list of paths as published");
  own->step_time.RegisterAs(
      "own-draft-step-time",
      absl::StrCat("of a target worker: each call of ", FlagsOfKinds("or"),
                   " takes at least as long as that for its rows, by waiting"),
      flags);
}

void RegisterRecording(WorkerOptions* options, FlagSet* flags) {
  flags->AddSwitch(
      "gate-timeouts", &options->gate_timeouts,
      "of a target worker: whether a step begins without the draft's tokens "
      "when they are late; off makes recordings independent of time");
  flags->Add("record-features", "FILE", &options->record_features,
             "what a draft's rows say of every verified token, or where the "
             "hidden states of a target's tokens are, is appended there, for "
             "calibration (default: off)");
  flags->Add("record-hidden", "FILE", &options->record_hidden,
             "with --record-features: hidden states go to this new file; they "
             "are large (default: off)");
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

void NodeFlags::Register(FlagSet* flags) {
  flags->AddParsed(
      "nodes", "N", "1",
      [this](const std::string& text) -> absl::Status {
        if (!absl::SimpleAtoi(text, &nodes) || !model::IsRankCount(nodes)) {
          return absl::InvalidArgumentError("not 1, 2, 4 or 8");
        }
        return absl::OkStatus();
      },
      "processes, most often on a machine each, that share the ranks of "
      "--tensor-parallel evenly");
  flags->AddParsed(
      "node-rank", "I", "",
      [this](const std::string& text) -> absl::Status {
        int number = 0;
        if (!absl::SimpleAtoi(text, &number) || number < 0 || number > 7) {
          return absl::InvalidArgumentError("not a number of 0 to 7");
        }
        rank = number;
        return absl::OkStatus();
      },
      "with --nodes, which of them this is: 0 leads, and is the worker that "
      "coordinators see; the others follow it and take no sessions of their "
      "own");
  flags->Add("leader-address", "HOST:PORT", &leader_address,
             "with --nodes, where node 0 serves the others: it listens there, "
             "they dial it");
  flags->AddParsed("join-timeout", "DURATION",
                   absl::FormatDuration(join_timeout),
                   SetDuration(&join_timeout, absl::Seconds(1), absl::Hours(24),
                               "not a duration like 10m, 1s to 24h"),
                   "with --nodes, how long they wait for each other before "
                   "and after they load the model");
}

absl::Status NodeFlags::Validate(const ComputeFlags& compute) const {
  if (nodes == 1) {
    if (!rank.has_value() && leader_address.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        rank.has_value() ? absl::StrCat("--node-rank ", *rank, " needs --nodes")
                         : absl::StrCat("--leader-address ", leader_address,
                                        " needs --nodes"));
  }
  const std::string given = absl::StrCat("--nodes ", nodes);
  if (compute.tensor_parallel < nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat(given, " needs --tensor-parallel of ", nodes,
                     " or more, it is ", compute.tensor_parallel));
  }
  if (compute.backend.rank_transport == "peer") {
    return absl::InvalidArgumentError(absl::StrCat(
        given,
        " and --tensor-parallel-transport peer exclude each other: "
        "GPUs of several machines cannot read each other's memory"));
  }
  if (!rank.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(given, " needs --node-rank, 0 to ", nodes - 1));
  }
  if (*rank >= nodes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--node-rank ", *rank, " of ", given, " is not 0 to ", nodes - 1));
  }
  if (leader_address.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(given, " needs --leader-address HOST:PORT"));
  }
  return CheckAddress("leader-address", leader_address,
                      /*allow_port_zero=*/false);
}

void PrefillFlags::Register(FlagSet* flags) {
  flags->AddParsed(
      "prefill", "NAME", by,
      [this](const std::string& text) -> absl::Status {
        if (text != kernels::kOwnPrefill && text != kernels::kCublasPrefill) {
          return absl::InvalidArgumentError("not own and not cublas");
        }
        by = text;
        return absl::OkStatus();
      },
      kernels::kPrefillHelp);
}

absl::Status PrefillFlags::Validate(const ComputeFlags& compute) const {
  if (by == kernels::kOwnPrefill) return absl::OkStatus();
  kernels::BackendOptions backend = compute.backend;
  backend.prefill = by;
  NACRE_RETURN_IF_ERROR(kernels::CheckPrefill(backend));
  if (compute.tensor_parallel == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--prefill ", by, " and --tensor-parallel ", compute.tensor_parallel,
      " exclude each other: ranks sum in shards of their own"));
}

void OwnDraftFlags::Register(FlagSet* flags) {
  RegisterSuffixes(this, flags);
  RegisterOwnDraftKinds(this, flags);
}

const OwnDraftKind* OwnDraftFlags::kind() const {
  const auto given =
      std::find_if(paths.begin(), paths.end(),
                   [](const std::string& path) { return !path.empty(); });
  return given == paths.end()
             ? nullptr
             : &OwnDraftKinds()[static_cast<size_t>(given - paths.begin())];
}

const std::string& OwnDraftFlags::path() const {
  return paths[static_cast<size_t>(kind() - OwnDraftKinds().data())];
}

absl::Status OwnDraftFlags::Validate() const {
  const OwnDraftKind* const given = kind();
  if (medusa_tree != speculation::TreeShape::kBest &&
      (given == nullptr || absl::string_view(given->flag) != "medusa")) {
    return absl::InvalidArgumentError(
        "--medusa-tree needs --medusa, whose candidates it is for");
  }
  if (std::count(paths.begin(), paths.end(), "") + 1 <
      static_cast<std::ptrdiff_t>(paths.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(FlagsOfKinds("and"),
                     " exclude each other: a target drafts from one of them"));
  }
  if (given == nullptr && step_time.times.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--own-draft-step-time ", step_time.text, " needs ",
                     FlagsOfKinds("or"), ", whose calls it is for"));
  }
  return absl::OkStatus();
}

void PolicyFlags::Register(FlagSet* flags) {
  flags->AddParsed(
      "policy-file", "NAME=DIR", "",
      [this](const std::string& text) { return SetPolicyFile(text, &files); },
      "of a draft worker: calibration of a length policy; may be given several "
      "times");
}

void PaceOfSteps::Register(FlagSet* flags) {
  RegisterAs("step-time",
             "each step takes at least as long as that for its rows, by "
             "waiting, as in 1:30,8:30.5,16:31: what services do on devices of "
             "that speed",
             flags);
}

void PaceOfSteps::RegisterAs(absl::string_view name, absl::string_view help,
                             FlagSet* flags) {
  flags->AddParsed(
      name, "ROWS:MS,...", "",
      [this](const std::string& value) -> absl::Status {
        NACRE_ASSIGN_OR_RETURN(times, ParseStepTimes(value));
        text = value;
        return absl::OkStatus();
      },
      help);
}

void TensorFlags::Register(FlagSet* flags) {
  std::string help =
      "how targets' hidden states, keys, values and features go to drafts:";
  const char* separator = " ";
  for (const TensorTransport& each : TensorTransports()) {
    absl::StrAppend(&help, separator, each.name, ", ", each.way);
    separator = "; ";
  }
  flags->AddParsed(
      "tensor-transport", "NAME", transport->name,
      [this](const std::string& text) -> absl::Status {
        NACRE_ASSIGN_OR_RETURN(transport, FindTensorTransport(text));
        return absl::OkStatus();
      },
      help);
}

void FeatureFlags::Register(FlagSet* flags) {
  flags->Add(
      "publish-features", "DIR", &draft,
      "of a target worker: the folder of an EAGLE draft that runs on "
      "draft workers; the target computes what it reads (default: none)");
  flags->AddParsed(
      "feature-cache", "BYTES", "64M",
      [this](const std::string& text) -> absl::Status {
        constexpr int64_t kLeast = 64 << 10;
        absl::optional<int64_t> bytes;
        if (!SetBytes(text, &bytes).ok() || *bytes < kLeast) {
          return absl::InvalidArgumentError(
              "not a number of bytes of 64K or more (K, M and G may follow)");
        }
        cache_bytes = *bytes;
        cache_text = text;
        return absl::OkStatus();
      },
      "memory for these, of all open requests together: beyond it the oldest "
      "of the longest one are dropped");
}

absl::Status FeatureFlags::Validate() const {
  if (cache_text.empty() || !draft.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--feature-cache ", cache_text,
                   " needs --publish-features, whose features it is for"));
}

void PaceOptions::Register(FlagSet* flags) {
  flags->AddParsed("hang-timeout", "DURATION",
                   absl::FormatDuration(hang_timeout),
                   SetDuration(&hang_timeout, absl::Seconds(1), absl::Hours(24),
                               "not a duration like 8s, 1s to 24h"),
                   "work without progress for so long is a hang: not live");
  const int max_rows = StepBudget().max_rows;
  flags->AddParsed(
      "prefill-chunk", "ROWS", absl::StrCat(prefill_chunk),
      SetNumber(&prefill_chunk, 1, max_rows,
                absl::StrCat("not a number of rows of 1 to ", max_rows)),
      "most prompt tokens in a step while sessions decode, and fewer far into "
      "a long prompt: less holds them up less, more reads prompts sooner");
  flags->AddParsed("spin", "DURATION", absl::FormatDuration(spin),
                   SetDuration(&spin, absl::ZeroDuration(), absl::Seconds(10),
                               "not a duration like 5ms, 0 to 10s"),
                   "how long a wait for the other worker keeps a core awake, "
                   "yielding it; a core that sleeps answers later");
}

void VocabularyOptions::Register(FlagSet* flags) {
  flags->Add("target-tokenizer", "PATH", &target_tokenizer,
             "of a draft worker: the target's tokenizer, its folder or GGUF "
             "file, where the draft has another one: it then drafts in the "
             "target's ids (default: the vocabularies are the same); of an "
             "EAGLE draft the target's model, whose embedding and head it "
             "takes");
  RegisterShare(flags);
}

void VocabularyOptions::RegisterShare(FlagSet* flags) {
  flags->AddParsed(
      "least-vocabulary-share", "SHARE", "0.5",
      [this](const std::string& text) -> absl::Status {
        double share = 0;
        if (!absl::SimpleAtod(text, &share) || !(share >= 0 && share <= 1)) {
          return absl::InvalidArgumentError("not a share from 0 to 1");
        }
        least_share = share;
        return absl::OkStatus();
      },
      "of a draft worker: with another tokenizer than the target's, it is "
      "refused if it has fewer of the target's pieces than that");
}

void WorkerOptions::Register(FlagSet* flags) {
  flags->Add("model", "DIR", &model_dir,
             "Hugging Face folder of the model, or its GGUF file (required)");
  flags->Add("coordinator", "HOST:PORT,...", &coordinator,
             "ports for workers of the coordinators to register with "
             "(required); dns:HOST:PORT: of all addresses of HOST, asked again "
             "and again");
  RegisterPorts(this, flags);
  RegisterCpus(&compute.backend.cpus, flags);
  compute.Register(flags);
  nodes.Register(flags);
  log.Register(flags);
  flags->AddParsed("drain-timeout", "DURATION",
                   absl::FormatDuration(drain_timeout),
                   SetDuration(&drain_timeout, absl::ZeroDuration(),
                               absl::InfiniteDuration(),
                               "not a duration like 30s, 0 or more"),
                   "how long SIGTERM waits for open sessions");
  pace.Register(flags);
  step_time.Register(flags);
  prefill.Register(flags);
  own_drafts.Register(flags);
  vocabulary.Register(flags);
  policies.Register(flags);
  tensors.Register(flags);
  features.Register(flags);
  RegisterRecording(this, flags);
  tls.Register(flags);
}

absl::Status Validate(const WorkerOptions& options) {
  NACRE_RETURN_IF_ERROR(options.log.Parse().status());
  if (options.model_dir.empty()) {
    return absl::InvalidArgumentError("--model DIR is required");
  }
  NACRE_RETURN_IF_ERROR(options.nodes.Validate(options.compute));
  // A follower has none.
  if (!options.nodes.follows() && options.coordinator.empty()) {
    return absl::InvalidArgumentError("--coordinator HOST:PORT is required");
  }
  if (!options.coordinator.empty()) {
    NACRE_RETURN_IF_ERROR(ParseCoordinators(options.coordinator).status());
  }
  NACRE_RETURN_IF_ERROR(
      CheckAddress("listen", options.listen, /*allow_port_zero=*/true));
  if (!options.record_hidden.empty() && options.record_features.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--record-hidden ", options.record_hidden,
                     " needs --record-features, which refers to its states"));
  }
  NACRE_RETURN_IF_ERROR(options.compute.Validate());
  NACRE_RETURN_IF_ERROR(options.prefill.Validate(options.compute));
  NACRE_RETURN_IF_ERROR(options.own_drafts.Validate());
  NACRE_RETURN_IF_ERROR(options.features.Validate());
  NACRE_RETURN_IF_ERROR(
      options.tensors.transport->check(options.compute.backend));
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

}  // namespace nacre::worker
