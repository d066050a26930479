#include "simulation/fleet_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "simulation/scripted_drafter.h"

namespace nacre::simulation {

using coordinator::WorkerRole;
using speculation::Method;

namespace {

template <typename Plan, typename Commands>
void FixPlans(const Plan& fixed, Commands* commands) {
  for (auto& open : commands->open) open.plan = fixed;
  for (auto& [session_id, plan] : commands->plans) plan = fixed;
}

// What a worker has to divide: more than all sessions need. As ScriptedModel.
constexpr int64_t kSharedKv = int64_t{1} << 50;
// As of worker::Registration::Options.
constexpr int64_t kHeartbeatPeriodNs = 1'000'000'000;

// A fleet that has run for a while knows its step times.
std::vector<std::pair<int, int64_t>> StepTimesOf(const StepTimes& times) {
  std::vector<std::pair<int, int64_t>> known;
  const int most = times.flat() ? 1 : speculation::StepTimeCurve::kMaxRows;
  for (int rows = 1; rows <= most; ++rows) {
    known.emplace_back(rows, times.At(rows));
  }
  return known;
}

}  // namespace

// A client that takes everything at once, and looks whether it is what the
// target says.
class FleetWorld::Sink final : public coordinator::ResponseSink {
 public:
  Sink(FleetWorld* world, int stream) : world_(world), stream_(stream) {}

  void OnChunk(const coordinator::Chunk&) override {}
  void OnComplete(const coordinator::RequestSpec&,
                  const coordinator::Completion& completion) override {
    world_->OnComplete(stream_, completion);
  }
  void OnError(const absl::Status& status) override {
    world_->OnError(stream_, status);
  }
  int pending_chunks() const override { return 0; }
  int64_t taken_chunks() const override { return 0; }

 private:
  FleetWorld* const world_;
  const int stream_;
};

FleetWorld::FleetWorld(const FleetOptions& options)
    : World(options.seed, /*start_ns=*/0),
      options_(options),
      script_(options.streams),
      target_times_(StepTimesOf(options.target_step)),
      draft_times_(StepTimesOf(options.draft_step)),
      num_targets_(options.targets) {
  for (int i = 0; i < options.coordinators; ++i) {
    StartCoordinator(i, {.tokenizer = &tokenizer_,
                         .failover_timeout_ns = coordinator::kNever,
                         .max_queue = options.streams,
                         .queue_timeout_ns = coordinator::kNever,
                         .client_timeout_ns = coordinator::kNever,
                         .draft_rows = options.draft_rows,
                         .tree_rows = options.tree_rows});
  }
  // A draft that no method uses would only blur the account.
  const bool drafts = options.method.method != Method::kAr;
  const int num_workers = options.targets + (drafts ? options.drafts : 0);
  workers_.resize(static_cast<size_t>(num_workers));
  for (int i = 0; i < num_workers; ++i) {
    Process& process = AddProcess(i < options.targets ? WorkerRole::kTarget
                                                      : WorkerRole::kDraft);
    StartProcess(process);
    for (int to = 0; to < options.coordinators; ++to) {
      AttachWorker(process, to);
    }
  }
}

FleetWorld::~FleetWorld() {
  is_ending_ = true;
  End();
}

FleetResult FleetWorld::Run() {
  AwaitGrants();
  Begin();
  while (running_streams_ > 0 && !IsStalled() && RunNext()) ++result_.events;
  result_.finished = running_streams_ == 0;
  for (Process& process : processes_) {
    StopClock(process);
    (process.is_target() ? result_.target : result_.draft) +=
        WorkerOf(process).time;
  }
  return result_;
}

void FleetWorld::Begin() {
  const int num_workers = static_cast<int>(processes_.size());
  for (const Failure& failure : options_.failures) {
    const bool of_drafts = failure.role == Role::kDraft;
    const int first = of_drafts ? options_.targets : 0;
    const int end = of_drafts ? num_workers : options_.targets;
    for (int i = first; i < end; ++i) {
      if (failure.worker.value_or(i - first) != i - first) continue;
      Schedule(failure, &processes_[static_cast<size_t>(i)]);
    }
  }
  running_streams_ = options_.streams;
  for (int i = 0; i < options_.streams; ++i) {
    Stream& stream = streams_.emplace_back();
    stream.requests_left = options_.requests;
    const uint64_t seed = MixBits(options_.seed) + static_cast<uint64_t>(i);
    const size_t count = options_.recorded.size();
    stream.matches = count == 0 ? IndependentMatches(options_.alpha, seed,
                                                     options_.rank_shares)
                                : RecordedMatches(options_.recorded[i % count],
                                                  // Not all streams in step.
                                                  MixBits(seed) >> 1);
  }
  for (int i = 0; i < options_.streams; ++i) StartRequest(i);
}

absl::optional<Script::Request> FleetWorld::NextRequest(Stream& stream) {
  Script::Request request;
  if (!options_.replay.empty()) {
    if (next_replayed_ == options_.replay.size()) return absl::nullopt;
    const ReplayedRequest& replayed = options_.replay[next_replayed_++];
    request.prompt_length = replayed.prompt_tokens;
    request.output_tokens = replayed.output_tokens;
    request.matches = RecordedMatches(replayed.matches, /*first=*/0);
    return request;
  }
  if (stream.requests_left == 0) return absl::nullopt;
  --stream.requests_left;
  request.prompt_length = options_.prompt_tokens;
  request.output_tokens = options_.output_tokens;
  request.matches = stream.matches;
  request.first_match = stream.next_match;
  stream.next_match += options_.output_tokens;
  return request;
}

void FleetWorld::StartRequest(int stream) {
  absl::optional<Script::Request> next =
      NextRequest(streams_[static_cast<size_t>(stream)]);
  if (!next.has_value()) {
    --running_streams_;
    return;
  }
  Script::Request& request = script_.OfStream(stream);
  next->number = request.number == 0
                     ? static_cast<uint64_t>(stream) + 1
                     : request.number + static_cast<uint64_t>(options_.streams);
  request = *std::move(next);
  coordinator::RequestSpec spec;
  spec.request_id = absl::StrCat(request.number);
  spec.prompt_ids.resize(static_cast<size_t>(request.prompt_length));
  for (int i = 0; i < request.prompt_length; ++i) {
    spec.prompt_ids[static_cast<size_t>(i)] =
        Script::TargetToken(request.number, i);
  }
  spec.max_tokens = request.output_tokens;
  spec.ignore_eos = true;
  spec.sampling.seed = request.number;
  spec.method = options_.method.method;
  spec.window = options_.method.window;
  spec.ablation = options_.method.ablation;
  spec.policy = options_.policy;
  if (spec.method == Method::kAsync && options_.draft_rows > 1) {
    spec.tree = speculation::TreeShape::kBest;
  }
  if (spec.policy.kind() == speculation::PolicyKind::kOracle) {
    for (int i = 0; i < request.output_tokens; ++i) {
      spec.oracle_ids.push_back(
          Script::TargetToken(request.number, request.prompt_length + i));
    }
  }
  const int to = next_coordinator_;
  next_coordinator_ = (to + 1) % options_.coordinators;
  const absl::StatusOr<uint64_t> started = dispatcher(to)->Start(
      std::move(spec), std::make_shared<Sink>(this, stream));
  NACRE_CHECK(started.ok(), started.status().ToString().c_str());
}

void FleetWorld::OnComplete(int stream,
                            const coordinator::Completion& completion) {
  const Script::Request& request = script_.OfStream(stream);
  NACRE_CHECK(
      static_cast<int>(completion.token_ids.size()) == request.output_tokens,
      "an answer has another length");
  for (int i = 0; i < request.output_tokens; ++i) {
    NACRE_CHECK(
        completion.token_ids[static_cast<size_t>(i)] ==
            Script::TargetToken(request.number, request.prompt_length + i),
        "an answer is not what the target says");
  }
  const speculation::SpeculationStats& stats = completion.stats;
  result_.stats.rounds += stats.rounds;
  result_.stats.drafted += stats.drafted;
  result_.stats.verified += stats.verified;
  result_.stats.accepted += stats.accepted;
  result_.stats.committed += stats.committed;
  result_.stats.degraded_rounds += stats.degraded_rounds;
  result_.stats.stale_messages += stats.stale_messages;
  for (size_t rank = 0; rank < stats.ranks.size(); ++rank) {
    result_.stats.ranks[rank] += stats.ranks[rank];
  }
  result_.stats.prepared += stats.prepared;
  result_.window = options_.fixed_plan.has_value() ? options_.fixed_plan->window
                                                   : completion.window;
  ++result_.requests;
  result_.output_tokens += request.output_tokens;
  result_.virtual_ns = now_ns() - begin_ns_;
  // Not from within the dispatcher.
  queue_.Post(now_ns(), [this, stream] { StartRequest(stream); });
}

void FleetWorld::OnError(int stream, const absl::Status& status) {
  if (is_ending_) return;
  ++result_.failed_requests;
  if (result_.first_failure.empty()) {
    result_.first_failure = std::string(status.message());
  }
  result_.virtual_ns = now_ns() - begin_ns_;
  queue_.Post(now_ns(), [this, stream] { StartRequest(stream); });
}

std::unique_ptr<model::LanguageModel> FleetWorld::NewModel(Process& process) {
  ScriptedModel::Options options;
  const StepTimes& times =
      process.is_target() ? options_.target_step : options_.draft_step;
  options.pass = [this, &process, &times](
                     int rows, const std::function<bool()>& interrupt) {
    return Compute(process, times.At(rows), interrupt);
  };
  if (process.is_target()) {
    options.draw = [](const TokenDraw& draw) {
      return Script::TargetToken(draw.seed, draw.position);
    };
  } else {
    options.is_interruptible = options_.abandons_steps;
  }
  return std::make_unique<ScriptedModel>(std::move(options));
}

coordinator::WorkerInfo FleetWorld::InfoOf(const Process& process) {
  coordinator::WorkerInfo info;
  info.fingerprint = process.is_target() ? "target" : "draft";
  info.numerics_id = "scripted";
  info.model_vocab_size = info.tokenizer_vocab_size = Script::kVocabulary;
  info.context_length = 1 << 30;
  info.kv_capacity_tokens = SharedKvOf(process);
  info.abandons_steps = !process.is_target() && options_.abandons_steps;
  info.step_times_ns = process.is_target() ? target_times_ : draft_times_;
  return info;
}

LinkDelay FleetWorld::HopOf(const Process& process) const {
  return process.is_target() ? options_.target_hop : options_.draft_hop;
}

int64_t FleetWorld::SharedKvOf(const Process& /*process*/) const {
  return options_.coordinators > 1 ? kSharedKv : 0;
}

int64_t FleetWorld::HeartbeatPeriodNs() const {
  return options_.coordinators > 1 ? kHeartbeatPeriodNs : 0;
}

void FleetWorld::Equip(const Process&,
                       target_worker::TargetEngine::Options* options) {
  options->budget = options_.budget;
}

void FleetWorld::Equip(const Process& process,
                       draft_worker::DraftEngine::Options* options) {
  options->drafter = std::make_unique<ScriptedDrafter>(
      process.model.get(), &script_, /*ranks=*/options_.draft_rows > 1);
  options->budget = options_.budget;
}

void FleetWorld::OnCommands(Connection&, wire::TargetCommands* commands) {
  if (!options_.fixed_plan.has_value()) return;
  FixPlans(options_.fixed_plan->target, commands);
}

void FleetWorld::OnCommands(Connection&, wire::DraftCommands* commands) {
  if (!options_.fixed_plan.has_value()) return;
  FixPlans(options_.fixed_plan->draft, commands);
}

}  // namespace nacre::simulation
