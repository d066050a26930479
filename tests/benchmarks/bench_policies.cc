// What each length policy costs for one drafted token, verdicts included, by
// vocabulary and hidden size of the draft. One core; weights are random.
//
//   bench_policies [--cpus LIST] [--repetitions N]
//
// Medians over repetitions of the mean over eight tokens and the commit that
// accepts them: LengthControl as the draft's engine calls it.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/cpu_list.h"
#include "draft_worker/length_control.h"
#include "kernels/backend_factory.h"
#include "speculation/draft_session.h"
#include "speculation/policies/make_policy.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::draft_worker {
namespace {

using kernels::Median;
using kernels::Seconds;
using kernels::ValueOrExit;

constexpr int kTokensPerCommit = 8;
constexpr int32_t kToken = 7;

struct Draft {
  int vocab_size;
  int hidden_size;
};

std::vector<float> RandomValues(size_t count, float spread) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-spread, spread);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

speculation::PolicyCalibration Calibration(const speculation::PolicySpec& spec,
                                           const Draft& draft) {
  speculation::PolicyCalibration file;
  file.defaults = spec;
  const auto size = static_cast<size_t>(draft.hidden_size);
  constexpr size_t kWidth = 64;
  file.disco = {RandomValues(kWidth * speculation::kDiscoInputs, 0.1f),
                RandomValues(kWidth, 0.1f), RandomValues(kWidth, 0.1f), 0.0f};
  file.head = {3,
               RandomValues(size * size, 0.02f),
               RandomValues(size, 0.02f),
               RandomValues(2 * size, 0.02f),
               {0.0f, 0.0f}};
  speculation::CaliTsModel cali;
  cali.target_size = cali.draft_size = draft.hidden_size;
  cali.step_weights =
      RandomValues(speculation::CaliTsModel::kSteps * size * size, 0.02f);
  cali.mix = RandomValues(2 * (size + size), 0.02f);
  file.cali_ts.emplace(cali);
  return file;
}

// Microseconds for a drafted token. `target_hidden`: cali-ts gets the target's
// hidden state with every commit.
double Cost(const char* text, const Draft& draft, int repetitions,
            bool target_hidden) {
  const speculation::PolicySpec spec =
      ValueOrExit(speculation::ParsePolicySpec(text));
  const speculation::PolicyCalibration file = Calibration(spec, draft);
  speculation::PolicyInputs inputs;
  inputs.has_target_hidden = target_hidden;
  inputs.hidden_size = draft.hidden_size;
  inputs.file = &file;
  const int num_tokens = kTokensPerCommit * (repetitions + 1);
  inputs.oracle_ids.assign(static_cast<size_t>(num_tokens), kToken);
  auto policy = ValueOrExit(speculation::MakePolicy(spec, std::move(inputs)));
  speculation::DraftLength* const length = policy.get();
  LengthControl control(std::move(policy), /*prompt_length=*/1,
                        draft.vocab_size);

  speculation::DraftSession::Options options;
  options.max_length = num_tokens + 2;
  options.plan = {2 * kTokensPerCommit, 2 * kTokensPerCommit};
  speculation::DraftSession session(options, {1});
  const std::vector<float> logits =
      RandomValues(static_cast<size_t>(draft.vocab_size), 12.0f);
  const std::vector<float> hidden =
      RandomValues(static_cast<size_t>(draft.hidden_size), 1.0f);
  absl::optional<int32_t> token_id;
  if (control.looks_at_token()) token_id = kToken;

  std::vector<double> costs;
  for (int i = 0; i <= repetitions; ++i) {
    speculation::Commit commit;
    commit.first_position = session.length();
    commit.token_ids.assign(kTokensPerCommit, kToken);
    const double start = Seconds();
    for (int j = 0; j < kTokensPerCommit; ++j) {
      const auto decision =
          control.Decide(session.length(), token_id, logits, hidden);
      session.OnDrafted(kToken, decision == speculation::LengthDecision::kStop);
    }
    session.OnCommit(commit);
    control.OnCommit(session);
    if (target_hidden) length->OnTargetHidden(hidden);
    const double seconds = Seconds() - start;
    if (i > 0) costs.push_back(seconds / kTokensPerCommit);
  }
  return 1e6 * Median(std::move(costs));
}

int Main(int argc, char** argv) {
  std::vector<int> cpus = {0};
  int repetitions = 201;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--cpus") {
      cpus = ValueOrExit(ParseCpuList(argv[i + 1]));
    } else if (name == "--repetitions") {
      repetitions = std::max(1, std::atoi(argv[i + 1]));
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      return 1;
    }
  }
  kernels::ThreadPool threads(cpus);
  threads.BindCaller();
  const Draft drafts[] = {{49152, 576}, {32000, 2048}, {128256, 2048}};
  std::printf("us for a drafted token%4s", "");
  for (const Draft& draft : drafts) {
    std::printf("  V %6d D %4d", draft.vocab_size, draft.hidden_size);
  }
  const auto row = [&](const char* name, const char* text, bool target_hidden) {
    std::printf("\n%-26s", name);
    for (const Draft& draft : drafts) {
      std::printf("  %15.2f", Cost(text, draft, repetitions, target_hidden));
      std::fflush(stdout);
    }
  };
  for (const speculation::PolicyInfo& info : speculation::AllPolicies()) {
    switch (info.kind) {
      case speculation::PolicyKind::kLoad:  // no rule in the draft
        break;
      case speculation::PolicyKind::kConstant:
        row("constant:n=4", "constant:n=4", false);
        break;
      case speculation::PolicyKind::kOptimalStatic:
        row("optimal-static:gamma=4", "optimal-static:gamma=4", false);
        break;
      default:
        row(info.name, info.name, false);
    }
  }
  row("cali-ts with its model", "cali-ts", true);
  std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace nacre::draft_worker

int main(int argc, char** argv) {
  return nacre::draft_worker::Main(argc, argv);
}
