// What drafting from suffixes costs the target for one step, by the number of
// tokens remembered: one core.
//
//   bench_suffixes [--cpus LIST] [--steps N]
//
// "ordinary" text is words drawn by Zipf's law, "copied" text repeats what it
// said 500 tokens before; remembered texts are ordinary. Medians, and the worst
// hundredth, over the steps.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "common/cpu_list.h"
#include "kernels/cpu/thread_pool.h"
#include "speculation/suffix_draft.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::speculation {
namespace {

using kernels::Median;
using kernels::Seconds;
using kernels::ValueOrExit;

constexpr TextOwner kOwner = {1, 2};
constexpr int kVocab = 32000;

class Words {
 public:
  int32_t Next() {
    std::uniform_real_distribution<double> uniform(0, std::log(kVocab));
    return static_cast<int32_t>(std::exp(uniform(random_))) - 1;
  }

 private:
  std::mt19937 random_{1};
};

void Measure(const char* name, bool copies, int64_t remembered_tokens,
             int steps) {
  Words words;
  SuffixIndex remembered(std::max<int64_t>(remembered_tokens, 1));
  for (int64_t i = 0; i + 1000 <= remembered_tokens; i += 1000) {
    std::vector<int32_t> text(1000);
    for (int32_t& id : text) id = words.Next();
    remembered.Add(kOwner, text);
  }
  std::vector<int32_t> text(1000);
  for (int32_t& id : text) id = words.Next();
  SuffixDraft draft(kOwner, 1000 + steps);
  const SuffixLimits limits = {16, 16, 1.0 / 64};
  const double start = Seconds();
  draft.Propose(text, &remembered, limits);
  const double prompt = Seconds() - start;
  std::vector<double> costs;
  for (int i = 0; i < steps; ++i) {
    text.push_back(copies ? text[text.size() - 500] : words.Next());
    const double before = Seconds();
    draft.Propose(text, &remembered, limits);
    costs.push_back(1e6 * (Seconds() - before));
  }
  std::sort(costs.begin(), costs.end());
  std::printf("%-10s %12lld %10.2f %10.2f %14.3f\n", name,
              static_cast<long long>(remembered_tokens), Median(costs),
              costs[costs.size() * 99 / 100], prompt * 1e6 / 1000);
}

int Main(int argc, char** argv) {
  std::vector<int> cpus = {0};
  int steps = 4000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--cpus") {
      cpus = ValueOrExit(ParseCpuList(argv[i + 1]));
    } else if (flag == "--steps") {
      steps = std::max(1, std::atoi(argv[i + 1]));
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      return 1;
    }
  }
  kernels::ThreadPool threads(cpus);
  threads.BindCaller();
  std::printf("%-10s %12s %10s %10s %14s\n", "text", "remembered", "us a step",
              "99 %", "us a p. token");
  for (const int64_t remembered : {0, 100'000, 2'000'000}) {
    Measure("ordinary", false, remembered, steps);
    Measure("copied", true, remembered, steps);
  }
  return 0;
}

}  // namespace
}  // namespace nacre::speculation

int main(int argc, char** argv) { return nacre::speculation::Main(argc, argv); }
