#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/files.h"
#include "common/flag_set.h"
#include "common/status_macros.h"
#include "coordinator/limit_flags.h"
#include "speculation/policies/policy_spec.h"
#include "tools/bench/bench_html.h"
#include "tools/bench/bench_matches.h"
#include "tools/bench/bench_methods.h"
#include "tools/bench/bench_prediction.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_run.h"
#include "tools/cluster/cluster.h"
#include "tools/cluster/command_cluster.h"
#include "tools/cluster/security_flags.h"
#include "tools/cluster/temporary_folder.h"
#include "tools/commands.h"
#include "tools/generate/generation_client.h"
#include "tools/generate/generation_json.h"
#include "tools/generate/prompts_file.h"
#include "tools/generate/request_flags.h"
#include "tools/interrupt.h"
#include "tools/simulate/match_trace.h"
#include "tools/throttled_progress.h"
#include "worker/process/own_draft_kinds.h"

namespace nacre::tools {
namespace {

// Without a seed of the user's: all methods need the same one.
constexpr uint64_t kDefaultSeed = 1;

struct BenchFlags {
  std::string command;  // as typed
  std::string address;
  Cluster::Options cluster;
  std::string prompts;
  std::string methods = "ar,sd,pearl,async";
  std::string policies;
  std::string tree_methods = "async";
  int repeat = 3;
  std::string streams = "1";
  std::optional<int> limit;
  SecurityFlags security;
  RequestFlags request;
  std::string json;
  std::string html;
  bool predict = false;
  std::string match_trace;
  int draft_rows = coordinator::LimitFlags().draft_rows;
  int tree_rows = coordinator::LimitFlags().tree_rows;
  double latency_us = 0.0;

  void Register(FlagSet* flags) {
    flags->Add("prompts", "FILE", &prompts,
               "one JSON object a line: prompt, perhaps id and max_tokens");
    flags->Add("methods", "LIST", &methods,
               "methods to compare, each perhaps with a window, as in "
               "ar,sd:4,async; also pearl-no-pre-verify and "
               "pearl-no-post-verify");
    flags->Add("policies", "LIST", &policies,
               "length policies to compare with each method but ar, as in "
               "constant,svip:h=0.4,oracle (docs/policies.md)");
    flags->Add("tree-methods", "LIST", &tree_methods,
               "methods to compare with each shape of --tree, as in "
               "sd,pearl,async; the others draft as without it");
    flags->Add("repeat", "R", &repeat, "repetitions; medians are reported");
    flags->Add("streams", "LIST", &streams,
               "requests at once; several numbers, as in 1,4,16,64, compare "
               "loads");
    flags->Add("limit", "N", &limit, "use only the first N prompts");
    flags->Add("json", "FILE", &json, "write all numbers there");
    flags->Add("html", "FILE", &html,
               "write tables and plots there, as one page for a browser");
    flags->Add("predict", "", &predict,
               "print what each method would do without overhead beside it "
               "(docs/simulation.md)");
    flags->Add("match-trace", "FILE", &match_trace,
               "write there which rank the target's token had among the "
               "draft's, for nacre simulate --match-trace");
    flags->Add("draft-rows", "N", &draft_rows,
               "of the coordinator (nacre-coordinator --help); with --address "
               "what it runs with, for --predict");
    flags->Add("tree-rows", "N", &tree_rows, "likewise");
    flags->Add("latency-us", "L", &latency_us,
               "for --predict: of a hop between the coordinator and a worker, "
               "one way");
    flags->Add("address", "H:P", &address,
               "of a running coordinator; without it one is started with");
    // Else the method that is run first would read the prompts for the others.
    cluster.ReadPromptsWhole();
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

// What predictions are made for.
absl::Status CheckPredicted(const BenchFlags& flags) {
  constexpr double kMaxLatencyUs = 1e7;
  coordinator::LimitFlags limits;
  limits.draft_rows = flags.draft_rows;
  limits.tree_rows = flags.tree_rows;
  NACRE_RETURN_IF_ERROR(limits.Resolve().status());
  if (flags.latency_us >= 0.0 && flags.latency_us <= kMaxLatencyUs) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("flag --latency-us: ", flags.latency_us, " is not in 0..",
                   kMaxLatencyUs));
}

// A draft of the target's that no request would draft from.
absl::Status CheckOwnDraft(const BenchFlags& flags) {
  const worker::OwnDraftKind* const own =
      flags.cluster.workers.own_drafts.kind();
  if (own == nullptr || flags.request.suffixes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--suffixes off and --", own->flag,
                   " exclude each other: without suffixes a target does not "
                   "draft at all (--suffix-drafter off leaves out suffixes "
                   "alone)"));
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

// --policies, or the one --policy for all methods.
absl::Status AddPolicies(const BenchFlags& flags, BenchPlan* plan) {
  if (!flags.policies.empty() && !flags.request.policy.empty()) {
    return absl::InvalidArgumentError(
        "flags --policy and --policies: only one of them");
  }
  if (!flags.policies.empty()) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<std::string> policies,
                           ParseBenchPolicies(flags.policies));
    plan->methods = WithPolicies(plan->methods, policies);
  } else if (!flags.request.policy.empty()) {
    NACRE_RETURN_IF_ERROR(
        speculation::ParsePolicySpec(flags.request.policy).status());
    for (BenchMethod& method : plan->methods) {
      method.policy = flags.request.policy;
    }
  }
  const float temperature = plan->request.sampling().temperature();
  for (const BenchMethod& method : plan->methods) {
    if (method.is_oracle() && temperature != 0.0f) {
      return absl::InvalidArgumentError(absl::StrCat(
          "policy oracle needs --temperature 0, it is ", temperature));
    }
  }
  return absl::OkStatus();
}

// What the tables are not: the speed of this machine.
std::vector<std::string> Paces(const Cluster::Options& cluster) {
  std::vector<std::string> lines;
  const auto add = [&lines](const char* whose, const std::string& times) {
    if (times.empty()) return;
    lines.push_back(absl::StrCat("paced: each step of a ", whose,
                                 " takes at least as long as on a device of ",
                                 times, " (rows:ms), by waiting"));
  };
  add("target", cluster.workers.target_steps.text);
  add("draft", cluster.workers.draft_steps.text);
  add("target's own draft", cluster.workers.own_drafts.step_time.text);
  return lines;
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
  } else if (!Paces(flags.cluster).empty()) {
    return absl::InvalidArgumentError(
        "--target-step-time, --draft-step-time and --own-draft-step-time are "
        "for workers that are started here: not with --address");
  }
  NACRE_RETURN_IF_ERROR(CheckAtLeastOne("repeat", flags.repeat));
  NACRE_RETURN_IF_ERROR(CheckAtLeastOne("limit", flags.limit.value_or(1)));
  NACRE_RETURN_IF_ERROR(CheckPredicted(flags));
  NACRE_RETURN_IF_ERROR(CheckOwnDraft(flags));
  if (flags.tree_methods != "async" && flags.request.tree.empty()) {
    return absl::InvalidArgumentError(
        "flag --tree-methods is of the shapes that --tree lists");
  }
  BenchPlan plan;
  NACRE_ASSIGN_OR_RETURN(
      plan.methods, ParseBenchMethods(flags.methods, flags.request.window));
  NACRE_ASSIGN_OR_RETURN(const std::vector<v1::Verification> verifications,
                         ParseBenchVerifications(flags.request.verification));
  RequestFlags request = flags.request;
  request.verification = "exact";
  request.tree.clear();
  NACRE_RETURN_IF_ERROR(request.Fill(&plan.request));
  plan.request.mutable_speculation()->clear_window();
  plan.request.mutable_speculation()->clear_policy();
  plan.request.mutable_speculation()->clear_tree();
  NACRE_RETURN_IF_ERROR(AddPolicies(flags, &plan));
  plan.methods = WithVerifications(plan.methods, verifications);
  NACRE_ASSIGN_OR_RETURN(
      plan.methods,
      WithTrees(plan.methods, flags.request.tree, flags.tree_methods));
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
  plan.record_steps = flags.predict;
  plan.draft_rows = flags.draft_rows;
  plan.tree_rows = flags.tree_rows;
  plan.latency_us = flags.latency_us;
  plan.timeout = absl::Seconds(flags.request.timeout_s);
  return plan;
}

// The requests of one number of streams.
struct BenchLoad {
  BenchPlan plan;
  BenchResult result;
  std::vector<MethodSummary> summaries;
};

nlohmann::ordered_json LoadJson(const BenchLoad& load) {
  return {{"streams", load.plan.streams},
          {"identical_tokens", CheckIdentical(load.plan, load.result).ok()},
          {"methods", SummariesJson(load.summaries)},
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
      {"model", model.name()},      {"numerics_id", model.numerics_id()},
      {"prompts", flags.prompts},   {"num_prompts", plan.prompts.size()},
      {"repeat", plan.repeat},      {"temperature", sampling.temperature()},
      {"seed", sampling.seed()},    {"draft_rows", plan.draft_rows},
      {"tree_rows", plan.tree_rows}};
  const Cluster::Options& cluster = flags.cluster;
  if (!cluster.workers.target_steps.text.empty()) {
    json["target_step_time"] = cluster.workers.target_steps.text;
  }
  if (!cluster.workers.draft_steps.text.empty()) {
    json["draft_step_time"] = cluster.workers.draft_steps.text;
  }
  if (!cluster.workers.own_drafts.step_time.text.empty()) {
    json["own_draft_step_time"] = cluster.workers.own_drafts.step_time.text;
  }
  if (loads.size() == 1) {
    json.update(LoadJson(loads.front()));
  } else {
    for (const BenchLoad& load : loads) json["runs"].push_back(LoadJson(load));
  }
  return json;
}

std::string ReportHtml(const BenchFlags& flags, const v1::Model& model,
                       const std::vector<BenchLoad>& loads) {
  std::vector<HtmlLoad> shown;
  shown.reserve(loads.size());
  for (const BenchLoad& load : loads) {
    shown.push_back({load.plan, load.result, load.summaries,
                     IdentityText(load.plan, load.result)});
  }
  return BenchHtml(flags.command, model, shown);
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
  if (several) terminal.out << load.plan.streams << " at once\n";
  terminal.out << SummaryTable(load.summaries) << OwnDraftLines(load.summaries);
  if (load.plan.streams > 1 || several) {
    terminal.out << LatencyTable(load.summaries);
  }
  if (AnyPrediction(load.summaries)) {
    terminal.out << TreeTable(load.summaries);
  }
  terminal.out << "identical tokens: " << IdentityText(load.plan, load.result)
               << std::endl;
}

// Writes the results; the exit code.
int Report(const BenchFlags& flags, const v1::Model& model,
           const std::vector<BenchLoad>& loads, const Terminal& terminal) {
  for (const std::string& pace : Paces(flags.cluster)) {
    terminal.out << pace << "\n";
  }
  for (const BenchLoad& load : loads) {
    Print(load, loads.size() > 1, terminal);
  }
  if (!flags.json.empty()) {
    const absl::Status written =
        WriteFile(flags.json, JsonText(ReportJson(flags, model, loads), 2));
    if (!written.ok()) return terminal.Fail(written);
  }
  if (!flags.html.empty()) {
    const absl::Status written =
        WriteFile(flags.html, ReportHtml(flags, model, loads));
    if (!written.ok()) return terminal.Fail(written);
  }
  const absl::Status identical = CheckIdenticalAcross(loads);
  return identical.ok() ? kExitOk : terminal.Fail(identical);
}

int ReportFailure(const absl::Status& status, const Terminal& terminal) {
  const int code = terminal.Fail(status);
  return absl::IsCancelled(status) ? kExitInterrupted : code;
}

using Progress = std::function<void(const std::string& line)>;

absl::StatusOr<std::vector<BenchLoad>> RunLoads(
    const BenchPlan& base, const std::vector<int>& stream_counts,
    GenerationClient* client, const Progress& progress) {
  std::vector<BenchLoad> loads;
  BenchPlan recorded = base;
  NACRE_RETURN_IF_ERROR(RecordAnswers(client, progress, &recorded));
  for (const int streams : stream_counts) {
    BenchLoad& load = loads.emplace_back();
    load.plan = recorded;
    load.plan.streams = streams;
    NACRE_ASSIGN_OR_RETURN(load.result, RunBench(load.plan, client, progress));
    load.summaries = Summarize(load.plan, load.result);
  }
  return loads;
}

bool Drafts(const BenchPlan& plan) {
  return std::any_of(
      plan.methods.begin(), plan.methods.end(),
      [](const BenchMethod& method) { return method.method != v1::METHOD_AR; });
}

// One line a prompt. Prompts without tokens to draft have none.
std::string MatchTraceText(const BenchPlan& plan,
                           const std::vector<simulation::MatchTrace>& matches) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < matches.size(); ++i) {
    if (!matches[i].empty()) {
      lines.push_back(MatchTraceLine(plan.prompts[i].id, matches[i]));
    }
  }
  return absl::StrJoin(lines, "\n");
}

// What --predict and --match-trace ask for. Answers that differ have no one
// trace: they are reported instead.
absl::Status RecordAndPredict(const BenchFlags& flags, uint32_t context_length,
                              GenerationClient* client,
                              const Progress& progress,
                              std::vector<BenchLoad>* loads) {
  if (!CheckIdenticalAcross(*loads).ok()) return absl::OkStatus();
  const BenchLoad& first = loads->front();
  std::vector<simulation::MatchTrace> matches;
  if (!flags.match_trace.empty() || (flags.predict && Drafts(first.plan))) {
    NACRE_ASSIGN_OR_RETURN(
        matches, RecordMatches(first.plan, first.result, context_length, client,
                               progress));
  }
  if (!flags.match_trace.empty()) {
    NACRE_RETURN_IF_ERROR(
        WriteFile(flags.match_trace, MatchTraceText(first.plan, matches)));
  }
  if (!flags.predict) return absl::OkStatus();
  for (BenchLoad& load : *loads) {
    AddPredictions(load.plan, Predict(load.plan, load.result, matches),
                   &load.summaries);
  }
  return absl::OkStatus();
}

int RunAndReport(const BenchFlags& flags, const BenchPlan& base,
                 const std::vector<int>& stream_counts,
                 const std::string& address, const ClientSecurity& security,
                 const Terminal& terminal) {
  GenerationClient client(address, security);
  absl::StatusOr<v1::Model> model;
  absl::StatusOr<std::vector<BenchLoad>> loads;
  absl::Status recorded;
  {
    InterruptWatcher watcher([&client] { client.CancelAll(); });
    model = client.GetModel(absl::Seconds(10));
    if (!model.ok()) return terminal.Fail(model.status());
    ThrottledProgress throttled(terminal);
    const Progress progress = [&throttled](const std::string& line) {
      throttled(line);
    };
    loads = RunLoads(base, stream_counts, &client, progress);
    if (loads.ok()) {
      recorded = RecordAndPredict(flags, model->context_length(), &client,
                                  progress, &*loads);
    }
  }
  terminal.EndProgress();
  if (!loads.ok()) return ReportFailure(loads.status(), terminal);
  const int code = Report(flags, *model, *loads, terminal);
  return recorded.ok() ? code : ReportFailure(recorded, terminal);
}

// With a cluster of its own, whose logs are shown only where one fails to
// start.
int RunWithCluster(const BenchFlags& flags, const BenchPlan& plan,
                   const std::vector<int>& stream_counts,
                   const Terminal& terminal) {
  const TemporaryFolder logs;
  Cluster::Options options = flags.cluster;
  for (const std::string& arg :
       {absl::StrCat("--draft-rows=", plan.draft_rows),
        absl::StrCat("--tree-rows=", plan.tree_rows)}) {
    options.more_args.coordinator.push_back(arg);
  }
  const absl::StatusOr<std::unique_ptr<Cluster>> cluster =
      StartCommandCluster(options, logs.path(), terminal);
  if (absl::IsCancelled(cluster.status())) return kExitInterrupted;
  if (!cluster.ok()) return terminal.Fail(cluster.status());
  return RunAndReport(flags, plan, stream_counts, (*cluster)->address(), {},
                      terminal);
}

}  // namespace

int BenchCommand(const std::vector<std::string>& args,
                 const Terminal& terminal) {
  BenchFlags flags;
  flags.command = absl::StrCat("nacre bench ", absl::StrJoin(args, " "));
  FlagSet flag_set("nacre bench",
                   "Runs prompts with several methods, checks that all give "
                   "the same tokens, prints how fast each is.");
  flags.Register(&flag_set);
  if (const auto exit = terminal.ReadFlags(args, &flag_set)) return *exit;
  flags.cluster.HandOn(flag_set);
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
