#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "tools/bench_methods.h"
#include "tools/bench_report.h"
#include "tools/bench_run.h"
#include "tools/cluster.h"
#include "tools/commands.h"
#include "tools/flag_set.h"
#include "tools/generation_client.h"
#include "tools/generation_json.h"
#include "tools/interrupt.h"
#include "tools/prompts_file.h"
#include "tools/request_flags.h"
#include "tools/security_flags.h"
#include "tools/temporary_folder.h"
#include "tools/trace_writer.h"

namespace nacre::tools {
namespace {

// Without a seed of the user's: all methods need the same one.
constexpr uint64_t kDefaultSeed = 1;

struct BenchFlags {
  std::string address;
  Cluster::Options cluster;
  std::string prompts;
  std::string methods = "ar,sd,pearl,async";
  int repeat = 3;
  std::string streams = "1";
  std::optional<int> limit;
  SecurityFlags security;
  RequestFlags request;
  std::string json;

  void Register(FlagSet* flags) {
    flags->Add("prompts", "FILE", &prompts,
               "one JSON object a line: prompt, perhaps id and max_tokens");
    flags->Add("methods", "LIST", &methods,
               "methods to compare, each perhaps with a window, as in "
               "ar,sd:4,async");
    flags->Add("repeat", "R", &repeat, "repetitions; medians are reported");
    flags->Add("streams", "LIST", &streams,
               "requests at once; several numbers, as in 1,4,16,64, compare "
               "loads");
    flags->Add("limit", "N", &limit, "use only the first N prompts");
    flags->Add("json", "FILE", &json, "write all numbers there");
    flags->Add("address", "H:P", &address,
               "of a running coordinator; without it one is started with");
    // Else the method that is run first would read the prompts for the others.
    cluster.prefix_cache = "off";
    cluster.Register(flags);
    security.Register(flags);
    request.Register(flags);
  }
};

absl::Status CheckAtLeastOne(const char* name, int value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("flag --", name, ": ", value, " is not > 0"));
}

// "1,4,16": numbers >= 1, each once.
absl::StatusOr<std::vector<int>> ParseStreams(const std::string& text) {
  std::vector<int> streams;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int count = 0;
    if (!absl::SimpleAtoi(part, &count) || count < 1 ||
        std::count(streams.begin(), streams.end(), count) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --streams: \"", part, "\" in \"", text,
                       "\" is no number > 0, or there twice"));
    }
    streams.push_back(count);
  }
  return streams;
}

// All that can be wrong with the flags and the prompts file.
absl::StatusOr<BenchPlan> BuildPlan(const BenchFlags& flags) {
  if (flags.prompts.empty()) {
    return absl::InvalidArgumentError("flag --prompts is needed");
  }
  if (flags.address.empty()) {
    NACRE_RETURN_IF_ERROR(flags.cluster.Validate());
    if (flags.security.wanted()) {
      return absl::InvalidArgumentError(
          "flags about TLS and tokens need --address: what is started here "
          "talks plaintext on the loopback interface");
    }
  }
  NACRE_RETURN_IF_ERROR(CheckAtLeastOne("repeat", flags.repeat));
  NACRE_RETURN_IF_ERROR(CheckAtLeastOne("limit", flags.limit.value_or(1)));
  BenchPlan plan;
  NACRE_ASSIGN_OR_RETURN(
      plan.methods, ParseBenchMethods(flags.methods, flags.request.window));
  NACRE_RETURN_IF_ERROR(flags.request.Fill(&plan.request));
  plan.request.mutable_speculation()->clear_window();
  if (!flags.request.seed.has_value()) {
    plan.request.mutable_sampling()->set_seed(kDefaultSeed);
  }
  NACRE_ASSIGN_OR_RETURN(const std::string content, ReadFile(flags.prompts));
  NACRE_ASSIGN_OR_RETURN(plan.prompts, ParsePrompts(flags.prompts, content));
  if (flags.limit.has_value() &&
      plan.prompts.size() > static_cast<size_t>(*flags.limit)) {
    plan.prompts.resize(*flags.limit);
  }
  plan.repeat = flags.repeat;
  plan.timeout = absl::Seconds(flags.request.timeout_s);
  return plan;
}

// The requests of one number of streams.
struct BenchLoad {
  BenchPlan plan;
  BenchResult result;
};

nlohmann::ordered_json LoadJson(const BenchLoad& load) {
  return {{"streams", load.plan.streams},
          {"identical_tokens", CheckIdentical(load.plan, load.result).ok()},
          {"methods", SummariesJson(Summarize(load.plan, load.result))},
          {"requests", RequestsJson(load.plan, load.result)}};
}

// With one number of streams its fields stand beside the others, with several
// `runs` has an object for each.
nlohmann::ordered_json ReportJson(const BenchFlags& flags,
                                  const v1::Model& model,
                                  const std::vector<BenchLoad>& loads) {
  const BenchPlan& plan = loads.front().plan;
  const v1::SamplingParams& sampling = plan.request.sampling();
  nlohmann::ordered_json json = {
      {"model", model.name()},    {"numerics_id", model.numerics_id()},
      {"prompts", flags.prompts}, {"num_prompts", plan.prompts.size()},
      {"repeat", plan.repeat},    {"temperature", sampling.temperature()},
      {"seed", sampling.seed()}};
  if (loads.size() == 1) {
    json.update(LoadJson(loads.front()));
  } else {
    for (const BenchLoad& load : loads) json["runs"].push_back(LoadJson(load));
  }
  return json;
}

// All answers of all loads: the same prompt, the same tokens.
absl::Status CheckIdenticalAcross(const std::vector<BenchLoad>& loads) {
  BenchResult all;
  for (const BenchLoad& load : loads) {
    all.answers.insert(all.answers.end(), load.result.answers.begin(),
                       load.result.answers.end());
    all.traced.insert(all.traced.end(), load.result.traced.begin(),
                      load.result.traced.end());
  }
  return CheckIdentical(loads.front().plan, all);
}

// The tables of one load.
void Print(const BenchLoad& load, bool several, const Terminal& terminal) {
  const std::vector<MethodSummary> summaries =
      Summarize(load.plan, load.result);
  if (several) terminal.out << load.plan.streams << " at once\n";
  terminal.out << SummaryTable(summaries);
  if (load.plan.streams > 1 || several) {
    terminal.out << LatencyTable(summaries);
  }
  terminal.out << (CheckIdentical(load.plan, load.result).ok()
                       ? absl::StrFormat(
                             "identical tokens: yes (%d prompts x %d methods)",
                             load.plan.prompts.size(), load.plan.methods.size())
                       : "identical tokens: no")
               << std::endl;
}

// Writes the results; the exit code.
int Report(const BenchFlags& flags, const v1::Model& model,
           const std::vector<BenchLoad>& loads, const Terminal& terminal) {
  for (const BenchLoad& load : loads) {
    Print(load, loads.size() > 1, terminal);
  }
  if (!flags.json.empty()) {
    const absl::Status written =
        WriteFile(flags.json, JsonText(ReportJson(flags, model, loads), 2));
    if (!written.ok()) return terminal.Fail(written);
  }
  const absl::Status identical = CheckIdenticalAcross(loads);
  return identical.ok() ? kExitOk : terminal.Fail(identical);
}

// Progress that a log file can bear: ten lines a second where they
// overwrite each other, one in five seconds elsewhere.
class ThrottledProgress {
 public:
  explicit ThrottledProgress(const Terminal& terminal)
      : terminal_(terminal),
        interval_(terminal.err_is_tty ? absl::Milliseconds(100)
                                      : absl::Seconds(5)) {}

  void operator()(const std::string& line) {
    if (absl::Now() < next_) return;
    next_ = absl::Now() + interval_;
    terminal_.Progress(line);
  }

 private:
  const Terminal& terminal_;
  const absl::Duration interval_;
  absl::Time next_ = absl::InfinitePast();
};

int RunAndReport(const BenchFlags& flags, const BenchPlan& base,
                 const std::vector<int>& stream_counts,
                 const std::string& address, const ClientSecurity& security,
                 const Terminal& terminal) {
  GenerationClient client(address, security);
  absl::StatusOr<v1::Model> model;
  std::vector<BenchLoad> loads;
  absl::Status status;
  {
    InterruptWatcher watcher([&client] { client.CancelAll(); });
    model = client.GetModel(absl::Seconds(10));
    if (!model.ok()) return terminal.Fail(model.status());
    ThrottledProgress progress(terminal);
    for (const int streams : stream_counts) {
      BenchPlan plan = base;
      plan.streams = streams;
      absl::StatusOr<BenchResult> result =
          RunBench(plan, &client,
                   [&progress](const std::string& line) { progress(line); });
      status = result.status();
      if (!status.ok()) break;
      loads.push_back({std::move(plan), *std::move(result)});
    }
  }
  terminal.EndProgress();
  if (absl::IsCancelled(status)) {
    terminal.Fail(status);
    return kExitInterrupted;
  }
  if (!status.ok()) return terminal.Fail(status);
  return Report(flags, *model, loads, terminal);
}

// With a cluster of its own, whose logs are shown only where one fails to
// start.
int RunWithCluster(const BenchFlags& flags, const BenchPlan& plan,
                   const std::vector<int>& stream_counts,
                   const Terminal& terminal) {
  const TemporaryFolder logs;
  Cluster::Options options = flags.cluster;
  options.log_dir = logs.path();
  options.progress = [&terminal](const std::string& line) {
    terminal.Progress(line);
  };
  options.supervisor.report = [&terminal](const std::string& line) {
    terminal.err << line << std::endl;
  };
  std::atomic<bool> interrupted = false;
  options.interrupted = [&interrupted] { return interrupted.load(); };
  absl::StatusOr<std::unique_ptr<Cluster>> cluster;
  {
    InterruptWatcher watcher([&interrupted] { interrupted = true; });
    cluster = Cluster::Start(options);
  }
  terminal.EndProgress();
  if (absl::IsCancelled(cluster.status())) return kExitInterrupted;
  if (!cluster.ok()) return terminal.Fail(cluster.status());
  return RunAndReport(flags, plan, stream_counts, (*cluster)->address(), {},
                      terminal);
}

}  // namespace

int BenchCommand(const std::vector<std::string>& args,
                 const Terminal& terminal) {
  BenchFlags flags;
  FlagSet flag_set("nacre bench",
                   "Runs prompts with several methods, checks that all give "
                   "the same tokens, prints how fast each is.");
  flags.Register(&flag_set);
  if (absl::Status status = flag_set.Parse(args); !status.ok()) {
    return terminal.FailUsage(status);
  }
  if (flag_set.help_requested()) {
    terminal.out << flag_set.Help();
    return kExitOk;
  }
  const absl::StatusOr<BenchPlan> plan = BuildPlan(flags);
  if (!plan.ok()) return terminal.FailUsage(plan.status());
  const absl::StatusOr<std::vector<int>> stream_counts =
      ParseStreams(flags.streams);
  if (!stream_counts.ok()) return terminal.FailUsage(stream_counts.status());
  if (flags.address.empty()) {
    return RunWithCluster(flags, *plan, *stream_counts, terminal);
  }
  const absl::StatusOr<ClientSecurity> security = flags.security.Load();
  if (!security.ok()) return terminal.FailUsage(security.status());
  return RunAndReport(flags, *plan, *stream_counts, flags.address, *security,
                      terminal);
}

}  // namespace nacre::tools
