#include "tests/simulation/protocol/schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/fleet/kv_ledger.h"
#include "target_worker/feature_shelf.h"
#include "tests/simulation/protocol/own_draft_schedule.h"
#include "tests/simulation/protocol/policies.h"

namespace nacre::protocol {
namespace {

using coordinator::WorkerRole;
using speculation::Method;

SamplingParams RandomSampling(Random& random) {
  SamplingParams sampling;
  sampling.seed = random.Bits();
  if (random.Percent(35)) return sampling;  // greedy
  sampling.temperature = random.OneOf({0.7f, 1.0f, 1.5f});
  if (random.Percent(25)) sampling.top_k = 1 + random.Below(kVocabSize);
  if (random.Percent(25)) sampling.top_p = 0.8f;
  if (random.Percent(15)) sampling.min_p = 0.1f;
  if (random.Percent(20)) sampling.repetition_penalty = 1.3f;
  if (random.Percent(20)) sampling.frequency_penalty = 0.5f;
  if (random.Percent(20)) sampling.presence_penalty = 0.4f;
  return sampling;
}

RequestOptions RandomRequest(Random& random, int index, int64_t hop_ns) {
  RequestOptions request;
  coordinator::RequestSpec& spec = request.spec;
  spec.request_id = absl::StrCat("r", random.Percent(2) ? 0 : index);
  const int prompt_length = 1 + random.Below(random.Percent(10) ? 24 : 5);
  for (int i = 0; i < prompt_length; ++i) {
    spec.prompt_ids.push_back(random.Below(kVocabSize));
  }
  // Now and then longer than what the target may run ahead.
  spec.max_tokens =
      random.Percent(2) ? 70 + random.Below(80) : 1 + random.Below(14);
  if (random.Percent(10)) spec.min_tokens = random.Below(spec.max_tokens + 1);
  spec.sampling = RandomSampling(random);
  spec.method = random.OneOf({Method::kAr, Method::kSd, Method::kPearl,
                              Method::kAsync, Method::kAsync});
  if (random.Percent(80)) spec.window = 1 + random.Below(5);
  spec.stream = random.Percent(80);
  spec.ignore_eos = random.Percent(40);
  spec.include_stop_string = random.Percent(30);
  if (random.Percent(20)) spec.stop_token_ids = {random.Below(kVocabSize)};
  if (random.Percent(20)) {
    const char letters[] = {static_cast<char>('a' + random.Below(kVocabSize)),
                            static_cast<char>('a' + random.Below(kVocabSize))};
    spec.stop.emplace_back(letters, 2);
  }
  request.arrival_ns =
      random.Percent(50) ? 0 : random.Between(0, 30 * kMillisecond);
  if (random.Percent(12)) {
    request.cancel_ns =
        request.arrival_ns + random.Between(0, 60 * kMillisecond);
  }
  if (random.Percent(8)) {
    request.deadline_ns =
        request.arrival_ns + random.Between(0, 80 * kMillisecond);
  }
  request.read_ns = random.Percent(10) ? 5 * kMillisecond : hop_ns;
  return request;
}

// Another choice of that request, or one whose prompt begins as its does.
void BeginLike(const RequestOptions& other, Random& random,
               RequestOptions* request) {
  std::vector<int32_t>& prompt = request->spec.prompt_ids;
  const std::vector<int32_t>& begin = other.spec.prompt_ids;
  if (begin.size() > 16 || random.Percent(50)) {
    prompt = begin;
  } else {
    prompt.insert(prompt.begin(), begin.begin(), begin.end());
  }
  if (random.Percent(50)) {
    const int64_t later_ns = other.arrival_ns - request->arrival_ns;
    request->arrival_ns += later_ns;
    if (request->cancel_ns >= 0) request->cancel_ns += later_ns;
    if (request->deadline_ns >= 0) request->deadline_ns += later_ns;
  }
}

// Whether the target drafts from suffixes, and whose answers it may look at. In
// some schedules requests come one after the other and say enough to be
// remembered.
void DrawSuffixes(uint64_t seed, int index, RequestOptions* request) {
  const bool remembers = simulation::MixBits(seed * 2 + 1) % 8 == 0;
  Random random(seed * 0x94D049BB133111EB + 29 + static_cast<uint64_t>(index));
  coordinator::RequestSpec& spec = request->spec;
  if (remembers) {
    spec.method = Method::kAsync;
    spec.max_tokens = 18 + random.Below(20);
    spec.min_tokens = 0;
    spec.ignore_eos = true;
    spec.stop_token_ids.clear();
    spec.stop.clear();
    request->cancel_ns = request->deadline_ns = -1;
    request->arrival_ns = index * 80 * kMillisecond;
  }
  if (spec.method != Method::kAsync || !random.Percent(80)) return;
  const int client = random.Below(remembers ? 6 : 3);
  spec.suffixes.emplace();
  if (client > 0) *spec.suffixes = {1, client > 4 ? 2u : 1u};
}

// In some schedules a few large requests wait among many small ones, of which
// some always fit: they must have their turn all the same.
bool Overtakes(uint64_t seed) {
  return simulation::MixBits(seed * 4 + 3) % 50 == 0;
}
constexpr int kOvertaking = 30;  // requests
constexpr int kLargeKv = 48;     // the small ones need a block

void DrawOvertaking(Schedule* schedule) {
  Random random(schedule->seed * 0xA0761D6478BD642F + 47);
  for (int i = 0; i < kOvertaking; ++i) {
    RequestOptions& request = schedule->requests[static_cast<size_t>(i)];
    coordinator::RequestSpec& spec = request.spec;
    const bool is_large = i == 3 || i == 4;
    spec.prompt_ids.resize(std::min<size_t>(spec.prompt_ids.size(), 5));
    spec.max_tokens = is_large ? 33 + random.Below(10) : 1 + random.Below(8);
    spec.min_tokens = std::min(spec.min_tokens, spec.max_tokens);
    request.arrival_ns =
        i < 5 ? i * 200 * kMicrosecond
              : random.Between(2 * kMillisecond, 8 * kMillisecond);
    request.cancel_ns = is_large ? -1 : request.cancel_ns;
    request.deadline_ns = -1;
  }
  schedule->queue_timeout_ns = 60'000 * kMillisecond;
  for (WorkerOptions& worker : schedule->workers) {
    if (worker.role != WorkerRole::kTarget) continue;
    worker.numerics = 0;
    worker.has_little_kv = true;
    worker.kv_capacity_tokens = kLargeKv;
  }
}

// In some schedules a target drains under many requests. The other one has room
// for a quarter, half or all of what half of the requests need.
constexpr int kManyRequests[] = {12, 40, 64};

void DrawDrainOfMany(Schedule* schedule) {
  Random random(schedule->seed * 0xE9846AF9B1A615D5 + 53);
  const int64_t begin_ns = 8 * schedule->hop_ns;
  int64_t kv[2] = {0, 0};
  int64_t longest = 0;
  for (size_t i = 0; i < schedule->requests.size(); ++i) {
    RequestOptions& request = schedule->requests[i];
    coordinator::RequestSpec& spec = request.spec;
    // Most when the targets are there: before the first one they are refused.
    request.arrival_ns = begin_ns + random.Between(0, 2 * kMillisecond);
    request.cancel_ns += request.cancel_ns < 0 ? 0 : begin_ns;
    request.deadline_ns += request.deadline_ns < 0 ? 0 : begin_ns;
    spec.numerics_id.clear();
    const int64_t need = coordinator::KvLedger::Need(
        static_cast<int64_t>(spec.prompt_ids.size()) + spec.max_tokens);
    longest = std::max(longest, need);
    kv[i % 2] += need;
  }
  kv[1] += coordinator::KvLedger::Need(kv[0] / random.OneOf({1, 2, 4}));
  for (int i = 0; i < 2; ++i) {
    WorkerOptions& worker = schedule->workers[static_cast<size_t>(i)];
    worker.numerics = 0;
    worker.has_little_kv = true;
    worker.kv_capacity_tokens = std::max(kv[i], longest);
  }
  schedule->queue_timeout_ns = 60'000 * kMillisecond;
  schedule->hold_without_target = true;
  schedule->max_running = 0;
  Fault fault;
  fault.kind = Fault::Kind::kDrain;
  fault.at_ns = begin_ns + random.Between(4 * kMillisecond, 30 * kMillisecond);
  schedule->faults = {fault};
}

WorkerOptions RandomWorker(Random& random, WorkerRole role) {
  WorkerOptions worker;
  worker.role = role;
  if (role == WorkerRole::kTarget) {
    worker.step_ns = random.Between(500 * kMicrosecond, 4 * kMillisecond);
    if (random.Percent(8)) worker.kv_capacity_tokens = random.Between(8, 40);
    if (random.Percent(10)) worker.numerics = 1;
  } else {
    worker.draft_kind = static_cast<DraftKind>(random.Below(kNumDraftKinds));
    worker.step_ns = random.Between(50 * kMicrosecond, kMillisecond);
    if (random.Percent(8)) worker.step_ns *= 20;
    if (random.Percent(12)) worker.kv_capacity_tokens = random.Between(4, 30);
    if (random.Percent(12)) worker.context_length = 4 + random.Below(16);
  }
  worker.block_size = random.OneOf({2, 4, 4});
  worker.shares_prefixes = random.Percent(80);
  worker.kv_capacity_tokens -= worker.kv_capacity_tokens % worker.block_size;
  worker.has_little_kv = worker.kv_capacity_tokens > 0;
  if (random.Percent(25)) {
    worker.budget = {1 + random.Below(8), 1 + random.Below(8)};
  }
  worker.clock_offset_ns = random.Between(1, 1000 * kMillisecond);
  worker.is_interruptible = worker.clock_offset_ns % 2 == 0;
  return worker;
}

Fault RandomFault(Random& random, int num_workers, int64_t horizon_ns,
                  int64_t worker_timeout_ns) {
  Fault fault;
  const int kind = random.Below(100);
  fault.kind = kind < 16   ? Fault::Kind::kBreak
               : kind < 28 ? Fault::Kind::kHang
               : kind < 37 ? Fault::Kind::kHalfOpen
               : kind < 43 ? Fault::Kind::kSilence
               : kind < 56 ? Fault::Kind::kCrash
               : kind < 60 ? Fault::Kind::kDeviceError
               : kind < 63 ? Fault::Kind::kDrain
               : kind < 96 ? Fault::Kind::kInject
                           : Fault::Kind::kRestartCoordinator;
  fault.at_ns = random.Between(0, horizon_ns);
  fault.worker = random.Below(num_workers);
  fault.duration_ns = random.Between(0, 60 * kMillisecond);
  if (fault.kind == Fault::Kind::kDrain && fault.at_ns % 2 == 0) {
    fault.duration_ns = 0;
  }
  if (fault.kind == Fault::Kind::kHalfOpen ||
      fault.kind == Fault::Kind::kSilence) {
    fault.duration_ns = random.Between(0, 3 * worker_timeout_ns);
  }
  return fault;
}

// The ratio test, where the service takes it (request_convert.cc): not with
// policies that look at the drawn token, and at temperature 0 it is exact
// match.
void DrawVerifications(Schedule* schedule) {
  Random random(schedule->seed * 0xD1B54A32D192ED03 + 11);
  for (RequestOptions& request : schedule->requests) {
    coordinator::RequestSpec& spec = request.spec;
    if (!random.Percent(30) || spec.sampling.temperature == 0.0f ||
        speculation::InfoOf(spec.policy.kind()).looks_at_token) {
      continue;
    }
    spec.verification = speculation::Verification::kRatio;
    spec.suffixes.reset();  // as the service does
  }
}

// Of pearl, with exact match alone, as the service takes them.
void DrawAblations(Schedule* schedule) {
  using speculation::Ablation;
  Random random(schedule->seed * 0x94D049BB133111EB + 37);
  for (RequestOptions& request : schedule->requests) {
    coordinator::RequestSpec& spec = request.spec;
    const Ablation ablation =
        random.OneOf({Ablation::kNone, Ablation::kNone, Ablation::kNoPreVerify,
                      Ablation::kNoPostVerify});
    if (spec.method == Method::kPearl &&
        spec.verification == speculation::Verification::kExact) {
      spec.ablation = ablation;
    }
  }
}

// Rows of trees. Which requests have any: as the service decides.
void DrawTrees(Schedule* schedule) {
  Random random(schedule->seed * 0xBF58476D1CE4E5B9 + 19);
  schedule->draft_rows = random.OneOf({1, 2, 4, 4});
  schedule->tree_rows = random.OneOf({0, 3, 8, 16});
  schedule->drafts_have_slots =
      simulation::MixBits(schedule->seed * 8 + 5) % 2 == 0;
  if (schedule->drafts_have_slots && schedule->seed % 3 == 0) {
    schedule->draft_rows = 8;
  }
  for (RequestOptions& request : schedule->requests) {
    coordinator::RequestSpec& spec = request.spec;
    spec.tree = *speculation::ResolveTreeShape(
        absl::nullopt,
        {spec.method, spec.verification, spec.policy.has_own_rule()});
    // Shapes by name: those of others, whose rows have no price, and of sd and
    // pearl best, too. A length policy ends the depth of the first two.
    if (!random.Percent(20)) continue;
    constexpr absl::string_view kNames[] = {
        "cape", "eagle2:k=3,depth=3,total=9",
        "static:[[0],[1],[0,0],[0,1],[1,0]]", "best"};
    const absl::StatusOr<speculation::TreeSpec> named =
        speculation::ResolveTreeShape(
            *speculation::ParseTreeSpec(
                kNames[random.Below(static_cast<int>(std::size(kNames)))]),
            {spec.method, spec.verification, spec.policy.has_own_rule()});
    if (named.ok()) spec.tree = *named;
  }
}

// What drafts read of their targets. What follows does not depend on it.
void DrawReads(Schedule* schedule) {
  if (schedule->seed / 7 % 3 != 0) return;
  if (schedule->seed / 21 % 2 == 0) {
    schedule->drafts_read = DraftReads::kKeysValues;
    return;
  }
  Random random(schedule->seed * 0xEB44ACCAB455D165 + 59);
  schedule->drafts_read = DraftReads::kFeatures;
  schedule->max_lag = 1 + random.Below(8);
  schedule->features_of = !random.Percent(10)  ? kDraftFingerprint
                          : random.Percent(50) ? kAnotherDraft
                                               : "";
  // Some have room for a few rows, and lose others.
  schedule->feature_bytes = random.Percent(40)
                                ? random.Between(0, 200)
                                : target_worker::FeatureShelf::kDefaultBytes;
  // As a draft over features does not.
  for (WorkerOptions& worker : schedule->workers) {
    if (worker.role == WorkerRole::kDraft) worker.shares_prefixes = false;
  }
}

// What targets remember of the answers that they gave.
void DrawSuffixCaches(Schedule* schedule) {
  Random random(schedule->seed * 0xD6E8FEB86659FD93 + 31);
  for (WorkerOptions& worker : schedule->workers) {
    worker.suffix_cache_bytes = random.OneOf({0, 1 << 16, 1 << 16});
  }
}

// Where a draft's stop marks change on their way, only the timer helps.
void DrawGateTimeouts(Schedule* schedule) {
  Random random(schedule->seed * 0xC2B2AE3D27D4EB4F + 23);
  schedule->gate_timeouts = !random.Percent(20) || schedule->tampers;
}

// What requests wait for and how long; some ask for one kind of targets. In
// some schedules targets drain that have room for a few requests each.
void DrawWaits(Schedule* schedule) {
  Random random(schedule->seed * 0xA24BAED4963EE407 + 13);
  const int64_t queue_timeout_ns = random.OneOf(
      {30 * kMillisecond, 200 * kMillisecond, 60'000 * kMillisecond});
  if (!Overtakes(schedule->seed)) schedule->queue_timeout_ns = queue_timeout_ns;
  schedule->hold_without_target = !random.Percent(20);
  int64_t longest = 0;
  for (RequestOptions& request : schedule->requests) {
    coordinator::RequestSpec& spec = request.spec;
    spec.prefixes = coordinator::PrefixesOf(spec.prompt_ids);
    if (random.Percent(4)) {
      spec.numerics_id = NumericsId(random.Percent(80) ? 0 : 1);
    }
    longest = std::max(longest, static_cast<int64_t>(spec.prompt_ids.size()) +
                                    spec.max_tokens);
  }
  if (!random.Percent(10)) return;
  int num_targets = 0;
  for (WorkerOptions& worker : schedule->workers) {
    if (worker.role != WorkerRole::kTarget) continue;
    ++num_targets;
    worker.numerics = 0;
    worker.has_little_kv = true;
    worker.kv_capacity_tokens =
        coordinator::KvLedger::Need(longest) * (1 + random.Below(2));
  }
  for (int i = random.Below(num_targets); i >= 0; --i) {
    Fault fault;
    fault.kind = Fault::Kind::kDrain;
    fault.at_ns = random.Between(0, 40 * kMillisecond);
    fault.worker = random.Below(num_targets);
    schedule->faults.push_back(fault);
  }
}

// In some schedules workers of one role only seem to hang, one after the other:
// sessions come back to where they were, perhaps before that worker has heard
// that they had left.
void DrawReturns(Schedule* schedule) {
  Random random(schedule->seed * 0x9FB21C651E98DF25 + 17);
  if (!random.Percent(15)) return;
  const WorkerRole role =
      random.Percent(80) ? WorkerRole::kTarget : WorkerRole::kDraft;
  std::vector<int> workers;
  for (size_t i = 0; i < schedule->workers.size(); ++i) {
    WorkerOptions& worker = schedule->workers[i];
    worker.numerics = 0;
    if (worker.role == role) workers.push_back(static_cast<int>(i));
  }
  if (workers.size() < 2) return;
  schedule->slow_percent = random.OneOf({2, 15, 40});
  int64_t at_ns = random.Between(0, 10 * kMillisecond);
  for (int i = 3 + random.Below(12); i > 0; --i) {
    Fault fault;
    fault.kind = Fault::Kind::kDrain;
    fault.at_ns = at_ns;
    fault.worker = workers[static_cast<size_t>(i) % workers.size()];
    fault.duration_ns = random.Between(1, 5 * kMillisecond);
    at_ns += fault.duration_ns;
    schedule->faults.push_back(fault);
  }
}

// Long answers, and workers with room for few of them.
void Crowd(Random& random, Schedule* schedule) {
  int64_t longest = 0;
  int64_t total = 0;
  for (RequestOptions& request : schedule->requests) {
    coordinator::RequestSpec& spec = request.spec;
    if (random.Percent(50)) {
      spec.max_tokens += random.Below(24);
      spec.ignore_eos = true;
      // The answer is another one now.
      if (request.oracle_is_right) RecordAnswer(schedule->table, &spec);
    }
    request.loses_end = random.Percent(10);
    const int64_t length =
        static_cast<int64_t>(spec.prompt_ids.size()) + spec.max_tokens;
    longest = std::max(longest, length);
    total += length;
  }
  const bool is_crowded = random.Percent(60) || Overtakes(schedule->seed);
  for (WorkerOptions& worker : schedule->workers) {
    worker.numerics = 0;  // of a call that is lost its client may not know it
    worker.has_little_kv = is_crowded && random.Percent(80);
    worker.kv_capacity_tokens =
        worker.has_little_kv
            ? coordinator::KvLedger::Need(longest) * (1 + random.Below(3))
            : 96 + 16 * total;
  }
}

// In some schedules one to three coordinators share the workers and clients go
// on elsewhere. Time limits are short there, or no request reaches them once
// faults have stopped.
void DrawCoordinators(Schedule* schedule) {
  if (schedule->drains_many) return;
  Random random(schedule->seed * 0xE7037ED1A0B428DB + 41);
  if (!random.Percent(Overtakes(schedule->seed) ? 50 : 10)) return;
  schedule->num_coordinators = random.OneOf({1, 2, 2, 2, 3});
  schedule->heartbeat_ns =
      random.OneOf({5 * kMillisecond, 20 * kMillisecond, 100 * kMillisecond});
  for (int64_t* limit_ns :
       {&schedule->queue_timeout_ns, &schedule->failover_timeout_ns}) {
    *limit_ns =
        random.Percent(70) ? kNoStarvation : std::min(*limit_ns, kNoStarvation);
  }
  Crowd(random, schedule);
  for (Fault& fault : schedule->faults) {
    fault.coordinator = random.Below(schedule->num_coordinators);
  }
  for (int i = random.Below(6); i > 0; --i) {
    Fault fault;
    fault.kind = random.OneOf(
        {Fault::Kind::kStopCoordinator, Fault::Kind::kStopCoordinator,
         Fault::Kind::kPartition, Fault::Kind::kCutClients,
         Fault::Kind::kCutClients, Fault::Kind::kLateHeartbeats});
    fault.at_ns = random.Between(0, 80 * kMillisecond);
    fault.worker = random.Below(static_cast<int>(schedule->workers.size()));
    fault.coordinator = random.Below(schedule->num_coordinators);
    fault.duration_ns =
        random.Between(0, fault.kind == Fault::Kind::kLateHeartbeats
                              ? 3 * schedule->worker_timeout_ns
                              : 100 * kMillisecond);
    schedule->faults.push_back(fault);
  }
}

// In some schedules targets take few sessions at once. The draws are its own:
// the other schedules are what they are without it.
void DrawMaxRunning(Schedule* schedule) {
  Random random(schedule->seed * 0x8CB92BA72F3D8DD7 + 43);
  if (!random.Percent(12)) return;
  schedule->max_running = random.OneOf({1, 1, 2, 3});
}

// Workers, requests and faults are there; then, in most, come other faults.
void DrawFaults(Random& random, int64_t horizon_ns, Schedule* schedule) {
  if (random.Percent(25)) return;
  const int num_faults = 1 + random.Below(6);
  for (int i = 0; i < num_faults; ++i) {
    schedule->faults.push_back(
        RandomFault(random, static_cast<int>(schedule->workers.size()),
                    horizon_ns, schedule->worker_timeout_ns));
  }
}

std::string DescribeReads(const Schedule& schedule) {
  switch (schedule.drafts_read) {
    case DraftReads::kNothing:
      return "";
    case DraftReads::kKeysValues:
      return ", drafts over the target's keys";
    case DraftReads::kFeatures:
      return absl::StrCat(", drafts over features of \"", schedule.features_of,
                          "\", up to ", schedule.max_lag,
                          " tokens behind, of which a target keeps ",
                          schedule.feature_bytes, " bytes");
  }
  return "";
}

}  // namespace

bool DrainsMany(uint64_t seed) {
  return !Overtakes(seed) && simulation::MixBits(seed * 8 + 7) % 400 == 0;
}

std::string NumericsId(int numerics) {
  return absl::StrCat("numerics", numerics);
}

bool Schedule::GrowsTree(int request) const {
  const coordinator::RequestSpec& spec =
      requests[static_cast<size_t>(request)].spec;
  const uint64_t draw =
      simulation::MixBits(seed * 64 + static_cast<uint64_t>(request));
  // More of those whose targets verify trees. (What is made up beside a chain
  // may take its stop mark from it: then only the timer helps.)
  return gate_timeouts &&
         spec.verification == speculation::Verification::kExact &&
         draw % 3 <= (spec.tree == speculation::TreeShape::kChain ? 0u : 1u);
}

Schedule RandomSchedule(uint64_t seed) {
  Random random(seed * 2 + 1);
  Schedule schedule;
  schedule.seed = seed;
  schedule.table = random.Below(4);
  schedule.hop_ns =
      random.OneOf({10 * kMicrosecond, 300 * kMicrosecond, 2 * kMillisecond});
  schedule.slow_percent = random.OneOf({0, 2, 15});
  schedule.coordinator_clock_ns = random.Between(1, 1000 * kMillisecond);
  schedule.failover_timeout_ns = random.OneOf(
      {5 * kMillisecond, 50 * kMillisecond, 30'000 * kMillisecond});
  schedule.worker_timeout_ns = random.OneOf(
      {20 * kMillisecond, 100 * kMillisecond, 1'000 * kMillisecond});
  schedule.tampers = random.Percent(5);
  schedule.drains_many = DrainsMany(seed);
  const int drawn_targets = random.OneOf({1, 1, 2, 2, 3});
  const int num_targets = schedule.drains_many ? 2 : drawn_targets;
  const int num_drafts = random.OneOf({0, 1, 1, 1, 2, 3});
  for (int i = 0; i < num_targets; ++i) {
    schedule.workers.push_back(RandomWorker(random, WorkerRole::kTarget));
  }
  for (int i = 0; i < num_drafts; ++i) {
    schedule.workers.push_back(RandomWorker(random, WorkerRole::kDraft));
  }
  // Now and then a crowd that lives on what others have cached.
  const bool crowd = random.Percent(2);
  const int num_drawn = crowd ? 8 : random.OneOf({1, 1, 2, 2, 3, 4});
  const int num_requests = schedule.drains_many ? kManyRequests[seed / 3 % 3]
                           : Overtakes(seed)    ? kOvertaking
                                                : num_drawn;
  int total_tokens = 0;
  int total_length = 0;
  int longest = 0;
  for (int i = 0; i < num_requests; ++i) {
    RequestOptions request = RandomRequest(random, i, schedule.hop_ns);
    if (i > 0 && random.Percent(crowd ? 80 : 50)) {
      BeginLike(schedule.requests[static_cast<size_t>(random.Below(i))], random,
                &request);
    }
    DrawSuffixes(seed, i, &request);
    if (i >= num_requests - 2 && !schedule.drains_many && !Overtakes(seed)) {
      DrawLongText(seed, &request);
    }
    total_tokens += request.spec.max_tokens;
    const int prompt_length = static_cast<int>(request.spec.prompt_ids.size());
    total_length += prompt_length;
    longest = std::max(longest, prompt_length + request.spec.max_tokens);
    schedule.requests.push_back(std::move(request));
  }
  total_length += total_tokens;
  for (WorkerOptions& worker : schedule.workers) {
    if (worker.has_little_kv) continue;
    worker.has_little_kv = random.Percent(crowd ? 80 : 10);
    // Room for any request alone, so that what was cached has to go. Or for
    // all, and again for those that are opened anew before the worker knows
    // that they were lost.
    worker.kv_capacity_tokens = worker.has_little_kv
                                    ? coordinator::KvLedger::Need(longest)
                                    : 96 + 8 * total_length;
    worker.kv_capacity_tokens -= worker.kv_capacity_tokens % worker.block_size;
  }
  if (Overtakes(seed)) DrawOvertaking(&schedule);
  DrawPolicies(&schedule);
  DrawVerifications(&schedule);
  DrawAblations(&schedule);
  DrawTrees(&schedule);
  DrawReads(&schedule);
  DrawOwnDrafts(&schedule);
  DrawSuffixCaches(&schedule);
  DrawGateTimeouts(&schedule);
  DrawWaits(&schedule);
  DrawReturns(&schedule);
  const int64_t horizon_ns =
      std::min(total_tokens, 40) * 3 * kMillisecond + 10 * kMillisecond;
  DrawFaults(random, horizon_ns, &schedule);
  DrawCoordinators(&schedule);
  DrawMaxRunning(&schedule);
  if (schedule.drains_many) DrawDrainOfMany(&schedule);
  return schedule;
}

std::string Describe(const Schedule& schedule) {
  std::string text = absl::StrCat(
      "table ", schedule.table, ", hop ", schedule.hop_ns, " ns, slow ",
      schedule.slow_percent, " %", schedule.tampers ? ", tampered drafts" : "",
      schedule.gate_timeouts ? "" : ", gates without a timer",
      DescribeReads(schedule), DescribeOwnDrafts(schedule),
      schedule.drafts_have_slots
          ? absl::StrCat(", drafts of ", schedule.draft_rows, " rows")
          : std::string(),
      schedule.is_shared()
          ? absl::StrCat(", shared by ", schedule.num_coordinators,
                         " coordinators, heartbeats every ",
                         schedule.heartbeat_ns, " ns")
          : std::string(),
      schedule.max_running > 0
          ? absl::StrCat(", at most ", schedule.max_running,
                         " sessions on a target")
          : std::string(),
      "\n");
  for (size_t i = 0; i < schedule.workers.size(); ++i) {
    const WorkerOptions& worker = schedule.workers[i];
    absl::StrAppend(
        &text, "worker ", i,
        worker.role == WorkerRole::kTarget
            ? ": target"
            : absl::StrCat(": draft of kind ",
                           static_cast<int>(worker.draft_kind)),
        ", step ", worker.step_ns, " ns, KV ", worker.kv_capacity_tokens,
        " in blocks of ", worker.block_size,
        worker.shares_prefixes ? " that are shared" : "",
        worker.has_policy_files ? ", policy files" : "",
        worker.is_interruptible ? ", interruptible" : "", ", context ",
        worker.context_length, ", budget ", worker.budget.max_rows, "\n");
  }
  for (size_t i = 0; i < schedule.requests.size(); ++i) {
    const RequestOptions& request = schedule.requests[i];
    absl::StrAppend(
        &text, "request ", i, " at ", request.arrival_ns,
        " ns: ", std::string(speculation::MethodName(request.spec.method)),
        ", policy ", request.spec.policy.text(), ", window ",
        request.spec.window.value_or(0), ", prompt ",
        request.spec.prompt_ids.size(), ", max_tokens ",
        request.spec.max_tokens, ", temperature ",
        request.spec.sampling.temperature,
        request.spec.verification == speculation::Verification::kRatio
            ? ", by the ratio test"
            : "",
        request.spec.ignore_eos ? ", ignore_eos" : "",
        request.spec.numerics_id.empty()
            ? std::string()
            : absl::StrCat(", only ", request.spec.numerics_id),
        request.spec.stop.empty()
            ? std::string()
            : absl::StrCat(", stop \"", request.spec.stop[0], "\""),
        request.spec.stop_token_ids.empty()
            ? std::string()
            : absl::StrCat(", stop id ", request.spec.stop_token_ids[0]),
        "\n");
  }
  return text;
}

}  // namespace nacre::protocol
