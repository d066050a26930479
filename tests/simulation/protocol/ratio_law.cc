#include "tests/simulation/protocol/ratio_law.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/protocol/table_sampler.h"
#include "tests/simulation/protocol/world.h"
#include "tests/testing/chi_square.h"

namespace nacre::protocol {
namespace {

using coordinator::WorkerRole;

constexpr int kNumTokens = 5;
constexpr int kLater = 3;  // none drafts for the last position
constexpr int kPairs = kVocabSize * kVocabSize;
constexpr int64_t kArrivalNs = 40 * kMillisecond;  // all workers are there

size_t PairOf(int32_t first, int32_t second) {
  return static_cast<size_t>(first * kVocabSize + second);
}

coordinator::RequestSpec LawRequest(uint64_t seed, bool ends) {
  coordinator::RequestSpec spec;
  spec.request_id = "law";
  spec.prompt_ids = {2, 5};
  spec.max_tokens = kNumTokens;
  spec.ignore_eos = !ends;
  spec.sampling.temperature = 1.0f;
  spec.sampling.seed = simulation::MixBits(seed);
  spec.verification = speculation::Verification::kRatio;
  return spec;
}

// The target's own law after two tokens.
std::vector<double> LawBehind(int table, int32_t before, int32_t last) {
  TableSampler sampler(&LogitTable::Target(table), LawRequest(0, false));
  sampler.Push(before);
  sampler.Push(last);
  const model::TokenWeights& weights = sampler.Weights();
  std::vector<double> law(kVocabSize, 0.0);
  double sum = 0;
  for (const float weight : weights.weights) sum += weight;
  for (size_t i = 0; i < weights.weights.size(); ++i) {
    law[static_cast<size_t>(weights.token_ids[i])] = weights.weights[i] / sum;
  }
  return law;
}

// All that a target lost must be able to matter: the draft is slow, so that the
// target waits most of the time for its next token.
Schedule LossSchedule(const LawCase& law_case, uint64_t seed) {
  Random random(seed * 2 + 1);
  Schedule schedule;
  schedule.seed = seed;
  schedule.hop_ns = 10 * kMicrosecond;
  schedule.failover_timeout_ns = 30'000 * kMillisecond;
  schedule.worker_timeout_ns = 20 * kMillisecond;
  WorkerOptions worker;
  worker.kv_capacity_tokens = 512;
  worker.step_ns = 100 * kMicrosecond;
  schedule.workers.assign(2, worker);
  worker.role = WorkerRole::kDraft;
  worker.draft_kind = law_case.draft_kind;
  worker.step_ns = 2 * kMillisecond;
  schedule.workers.insert(schedule.workers.end(), 2, worker);
  RequestOptions request;
  request.spec = LawRequest(seed, law_case.ends);
  request.spec.method = law_case.method;
  request.spec.window = 2;
  request.arrival_ns = kArrivalNs;
  schedule.requests.push_back(std::move(request));
  Fault fault;
  fault.kind = Fault::Kind::kCrash;
  fault.at_ns =
      kArrivalNs + random.Between(3 * kMillisecond, 14 * kMillisecond);
  for (fault.worker = 0; fault.worker < 4; ++fault.worker) {
    const bool drafts =
        schedule.workers[static_cast<size_t>(fault.worker)].role ==
        WorkerRole::kDraft;
    fault.duration_ns = drafts ? 200 * kMillisecond : 0;
    schedule.faults.push_back(fault);
  }
  return schedule;
}

// The drafts are lost with one token of two sent. Another is there when the
// target, which has fed the prompt meanwhile, verifies that token; its steps
// are long enough for two others to come.
Schedule SwapSchedule(const LawCase& law_case, uint64_t seed) {
  Random random(seed * 2 + 1);
  Schedule schedule = LossSchedule(law_case, seed);
  schedule.workers.erase(schedule.workers.begin());
  schedule.workers[0].step_ns = 10 * kMillisecond;
  for (const int draft : {1, 2}) {
    schedule.workers[draft].step_ns = 500 * kMicrosecond;
  }
  schedule.workers[2].draft_kind = DraftKind::kPoor;
  schedule.faults.clear();
  Fault fault;
  fault.kind = Fault::Kind::kCrash;
  fault.at_ns = kArrivalNs + random.Between(kMillisecond, 3 * kMillisecond);
  for (fault.worker = 1; fault.worker <= 2; ++fault.worker) {
    fault.duration_ns = fault.worker == 1 ? 200 * kMillisecond
                                          : random.Between(20 * kMillisecond,
                                                           25 * kMillisecond);
    schedule.faults.push_back(fault);
  }
  return schedule;
}

// Which of the two is first varies.
Schedule QuietSchedule(const LawCase& law_case, uint64_t seed) {
  Schedule schedule;
  schedule.seed = seed;
  schedule.hop_ns = 500 * kMicrosecond;
  schedule.failover_timeout_ns = 30'000 * kMillisecond;
  schedule.worker_timeout_ns = 20 * kMillisecond;
  WorkerOptions worker;
  worker.kv_capacity_tokens = 512;
  worker.step_ns = kMillisecond;
  schedule.workers.push_back(worker);
  worker.role = WorkerRole::kDraft;
  worker.draft_kind = law_case.draft_kind;
  worker.step_ns = 700 * kMicrosecond;
  schedule.workers.push_back(worker);
  RequestOptions request;
  request.spec = LawRequest(seed, law_case.ends);
  request.spec.method = law_case.method;
  request.spec.window = law_case.window;
  request.spec.policy = *speculation::ParsePolicySpec(law_case.policy);
  request.arrival_ns = kArrivalNs;
  schedule.requests.push_back(std::move(request));
  return schedule;
}

}  // namespace

Schedule LawSchedule(const LawCase& law_case, uint64_t seed) {
  if (law_case.is_quiet) return QuietSchedule(law_case, seed);
  if (law_case.swaps_draft) return SwapSchedule(law_case, seed);
  if (law_case.loses_all) return LossSchedule(law_case, seed);
  Random random(seed * 2 + 1);
  Schedule schedule;
  schedule.seed = seed;
  schedule.hop_ns = random.OneOf({10 * kMicrosecond, 300 * kMicrosecond});
  schedule.slow_percent = 2;
  schedule.failover_timeout_ns = 30'000 * kMillisecond;
  schedule.worker_timeout_ns = 20 * kMillisecond;
  WorkerOptions worker;
  worker.kv_capacity_tokens = 512;
  for (int i = 0; i < 2; ++i) {
    worker.step_ns = random.Between(500 * kMicrosecond, 2 * kMillisecond);
    schedule.workers.push_back(worker);
  }
  worker.role = WorkerRole::kDraft;
  worker.draft_kind = law_case.draft_kind;
  for (int i = 0; i < 2; ++i) {
    worker.step_ns = random.Between(50 * kMicrosecond, 2 * kMillisecond);
    schedule.workers.push_back(worker);
    worker.draft_kind = static_cast<DraftKind>(random.Below(kNumDraftKinds));
  }
  RequestOptions request;
  request.spec = LawRequest(seed, law_case.ends);
  request.spec.method = law_case.method;
  request.spec.window = 1 + random.Below(3);
  request.arrival_ns = kArrivalNs;
  schedule.requests.push_back(std::move(request));
  for (int i = random.Below(5); i > 0; --i) {
    Fault fault;
    fault.kind = random.OneOf({Fault::Kind::kBreak, Fault::Kind::kCrash,
                               Fault::Kind::kHang, Fault::Kind::kHalfOpen,
                               Fault::Kind::kSilence});
    fault.at_ns = kArrivalNs + random.Between(0, 15 * kMillisecond);
    fault.worker = random.Below(4);
    fault.duration_ns = random.Between(0, 40 * kMillisecond);
    schedule.faults.push_back(fault);
  }
  return schedule;
}

LawCounts::LawCounts(int table, bool ends)
    : table(table),
      ends(ends),
      pairs(kPairs, 0),
      later(kPairs * kVocabSize, 0) {}

void LawCounts::Add(const std::vector<int32_t>& tokens) {
  ++pairs[PairOf(tokens[0], tokens.size() > 1 ? tokens[1] : 0)];
  // Where an end comes before, there is none.
  for (size_t at = 2; at <= kLater && at < tokens.size(); ++at) {
    const size_t prefix = PairOf(tokens[at - 2], tokens[at - 1]);
    ++later[prefix * kVocabSize + static_cast<size_t>(tokens[at])];
  }
}

double LawCounts::FirstPair() const {
  const std::vector<int32_t> prompt = LawRequest(0, false).prompt_ids;
  const std::vector<double> first = LawBehind(table, prompt[0], prompt[1]);
  std::vector<double> exact;
  for (int32_t a = 0; a < kVocabSize; ++a) {
    std::vector<double> second(kVocabSize, 0.0);
    second[0] = 1.0;
    if (!ends || a != kEos) second = LawBehind(table, prompt[1], a);
    for (const double b : second) {
      exact.push_back(first[static_cast<size_t>(a)] * b);
    }
  }
  return testing::ChiSquareDeviation(exact, pairs);
}

double LawCounts::LaterGivenPrefix() const {
  double sum = 0;
  for (int32_t a = 0; a < kVocabSize; ++a) {
    for (int32_t b = 0; b < kVocabSize; ++b) {
      const auto begin =
          later.begin() + static_cast<ptrdiff_t>(PairOf(a, b)) * kVocabSize;
      sum += testing::ChiSquareDeviation(LawBehind(table, a, b),
                                         {begin, begin + kVocabSize});
    }
  }
  // A sum of as many independent deviations.
  return sum / std::sqrt(kPairs);
}

LawResult MeasureLaw(const LawCase& law_case, int num_samples) {
  LawResult result = {"", LawCounts(/*table=*/0, law_case.ends), {}};
  for (int sample = 0; sample < num_samples; ++sample) {
    const Schedule schedule =
        LawSchedule(law_case, static_cast<uint64_t>(sample));
    const Outcome outcome = RunSchedule(schedule);
    result.totals.Add(outcome.counts);
    result.failure = outcome.failure;
    // The law is that of all: none may be missing for what it says.
    const std::vector<int32_t>& answer = outcome.answers[0];
    const bool ended =
        law_case.ends && !answer.empty() && answer.back() == kEos;
    if (result.failure.empty() && answer.size() != kNumTokens && !ended) {
      result.failure = absl::StrCat(answer.size(), " tokens");
    }
    if (!result.failure.empty()) {
      result.failure = absl::StrCat("seed ", sample, ": ", result.failure, "\n",
                                    Describe(schedule), outcome.trace);
      break;
    }
    result.deviation_of.Add(answer);
  }
  return result;
}

}  // namespace nacre::protocol
