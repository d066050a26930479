// Drawing a token from a row of logits, against the time it takes to read that
// row from memory once, by vocabulary, kind of row and parameters.
//
//   bench_sampling [--cpus LIST] [--vocab LIST] [--repetitions N] [--json FILE]
//
// Times are medians over repetitions of the mean over many rows, together more
// than any cache holds: weights stream through the caches between two steps.
// The bandwidth is measured between them.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/cpu_list.h"
#include "common/json.h"
#include "kernels/backend_factory.h"
#include "model/logprobs.h"
#include "model/sampler.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::model {
namespace {

using kernels::Median;
using kernels::Seconds;
using kernels::ValueOrExit;

struct Flags {
  std::vector<int> cpus = {0};
  std::vector<int> vocabularies = {32000, 128256, 152064};
  int repetitions = 9;
  std::string json;
};

constexpr size_t kBytesOfRows = size_t{64} << 20;
constexpr int kPosition = 1000;
constexpr int kHistory = 500;  // tokens that penalties look at

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--cpus") {
      flags.cpus = ValueOrExit(ParseCpuList(value));
    } else if (name == "--vocab") {
      flags.vocabularies.clear();
      for (const auto part : absl::StrSplit(value, ',')) {
        int vocab = 0;
        if (!absl::SimpleAtoi(part, &vocab) || vocab < 1000) {
          std::fprintf(stderr, "--vocab is \"%s\", expected sizes >= 1000\n",
                       value);
          std::exit(1);
        }
        flags.vocabularies.push_back(vocab);
      }
    } else if (name == "--repetitions") {
      flags.repetitions = std::max(1, std::atoi(value));
    } else if (name == "--json") {
      flags.json = value;
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      std::exit(1);
    }
  }
  return flags;
}

// What rows look like. Token ids have nothing to do with likelihood, so large
// logits lie anywhere.
struct RowKind {
  const char* name;
  std::function<void(std::mt19937* rng, absl::Span<float> row)> fill;
};

// ln p falls with ln rank by `slope`, as the next token of a text does, under
// noise.
void FillZipf(float slope, std::mt19937* rng, absl::Span<float> row) {
  std::normal_distribution<float> noise(0.0f, 0.5f);
  for (size_t rank = 0; rank < row.size(); ++rank) {
    row[rank] =
        20.0f - slope * std::log(static_cast<float>(rank + 1)) + noise(*rng);
  }
  std::shuffle(row.begin(), row.end(), *rng);
}

std::vector<RowKind> RowKinds() {
  return {
      {"one-hot",
       [](std::mt19937* rng, absl::Span<float> row) {
         std::fill(row.begin(), row.end(), 0.0f);
         row[(*rng)() % row.size()] = 40.0f;
       }},
      // The best token has about 0.93 of the mass.
      {"confident",
       [](std::mt19937* rng, absl::Span<float> row) {
         FillZipf(1.3f, rng, row);
         row[(*rng)() % row.size()] = 24.0f;
       }},
      // About 30 tokens share 0.9 of the mass.
      {"text", [](std::mt19937* rng,
                  absl::Span<float> row) { FillZipf(1.5f, rng, row); }},
      {"normal",
       [](std::mt19937* rng, absl::Span<float> row) {
         std::normal_distribution<float> normal(0.0f, 2.5f);
         for (float& logit : row) logit = normal(*rng);
       }},
      {"flat",
       [](std::mt19937* rng, absl::Span<float> row) {
         std::normal_distribution<float> normal(0.0f, 0.1f);
         for (float& logit : row) logit = normal(*rng);
       }},
      {"equal",
       [](std::mt19937*, absl::Span<float> row) {
         std::fill(row.begin(), row.end(), 1.0f);
       }},
  };
}

struct Drawing {
  const char* name;
  SamplingParams params;
  bool penalties = false;
  int logprobs = -1;  // ComputeLogprobs of so many instead of drawing
  int places = 1;     // the best of so many
};

std::vector<Drawing> Drawings() {
  std::vector<Drawing> drawings;
  const auto add = [&](const char* name) -> SamplingParams& {
    drawings.push_back({name, {}});
    return drawings.back().params;
  };
  add("greedy");
  add("T 1").temperature = 1.0f;
  add("T 0.7").temperature = 0.7f;
  {
    SamplingParams& p = add("T 0.7 top-k 40");
    p.temperature = 0.7f;
    p.top_k = 40;
  }
  {
    SamplingParams& p = add("T 1 top-p 0.9");
    p.temperature = 1.0f;
    p.top_p = 0.9f;
  }
  {
    SamplingParams& p = add("T 0.8 top-k 50 top-p 0.95");
    p.temperature = 0.8f;
    p.top_k = 50;
    p.top_p = 0.95f;
  }
  {
    SamplingParams& p = add("T 0.8 min-p 0.05");
    p.temperature = 0.8f;
    p.min_p = 0.05f;
  }
  {
    SamplingParams& p = add("greedy, penalties");
    p.repetition_penalty = 1.1f;
    drawings.back().penalties = true;
  }
  {
    SamplingParams& p = add("T 0.7, penalties, bias");
    p.temperature = 0.7f;
    p.repetition_penalty = 1.1f;
    p.frequency_penalty = 0.2f;
    for (int id = 0; id < 20; ++id) p.logit_bias.emplace_back(37 * id, -1.0f);
    drawings.back().penalties = true;
  }
  drawings.push_back({"logprobs, top 5", {}, false, 5});
  add("greedy, best 8");
  drawings.back().places = 8;
  add("T 1, best 8").temperature = 1.0f;
  drawings.back().places = 8;
  return drawings;
}

// Rows of one vocabulary and kind, in memory as a model leaves them.
class Rows {
 public:
  Rows(kernels::Backend* backend, int vocab)
      : vocab_(static_cast<size_t>(vocab)),
        count_(kBytesOfRows / (vocab_ * sizeof(float)) + 1),
        memory_(
            ValueOrExit(backend->Allocate(count_ * vocab_ * sizeof(float)))) {}

  void Fill(const RowKind& kind) {
    std::mt19937 rng(1);
    // Few different ones: drawing normal numbers takes long.
    constexpr size_t kDifferent = 4;
    for (size_t i = 0; i < count_; ++i) {
      const absl::Span<float> row = Row(i);
      if (i < kDifferent) {
        kind.fill(&rng, row);
      } else {
        const absl::Span<const float> from = Row(i % kDifferent);
        const size_t turn = rng() % vocab_;
        std::rotate_copy(from.begin(), from.begin() + turn, from.end(),
                         row.begin());
      }
    }
  }

  // Seconds a row.
  double Draw(const Drawing& drawing, uint64_t seed) {
    TokenHistory history(0);
    if (drawing.penalties) {
      for (int i = 0; i < kHistory; ++i) {
        history.Push(static_cast<int32_t>(i * size_t{7919} % vocab_));
      }
    }
    SamplingParams params = drawing.params;
    params.seed = seed;
    Sampler sampler(params, static_cast<int>(vocab_), {}, &scratch_);
    checksum_ = checksum_ + sampler.Sample(Row(0), kPosition, history);  // warm
    const auto places = static_cast<size_t>(drawing.places);
    const double start = Seconds();
    for (size_t i = 0; i < count_; ++i) {
      const int position = kPosition + static_cast<int>(i);
      if (drawing.places > 1) {
        ScoredToken best[kMaxCandidates];
        sampler.Rank(Row(i), position, history, {best, places});
        checksum_ = checksum_ + best[0].token_id;
        continue;
      }
      checksum_ = checksum_ +
                  (drawing.logprobs >= 0
                       ? ComputeLogprobs(Row(i), 0, drawing.logprobs, &scratch_)
                             .top[0]
                             .first
                       : sampler.Sample(Row(i), position, history));
    }
    return (Seconds() - start) / static_cast<double>(count_);
  }

 private:
  absl::Span<float> Row(size_t i) {
    return {memory_->f32() + i * vocab_, vocab_};
  }

  size_t vocab_;
  size_t count_;
  std::unique_ptr<kernels::Buffer> memory_;
  SamplingScratch scratch_;
  volatile int64_t checksum_ = 0;  // keeps the compiler from skipping the draw
};

int Main(int argc, char** argv) {
  const Flags flags = Parse(argc, argv);
  kernels::BackendOptions options;
  options.cpus = {flags.cpus[0]};  // an engine draws on its own thread
  const auto backend = ValueOrExit(kernels::CreateBackend(options));
  backend->BindComputeThread();
  kernels::ThreadPool threads(options.cpus);
  kernels::ReadBandwidth read(*backend, &threads, size_t{512} << 20);
  nlohmann::json json = {{"drawings", nlohmann::json::array()}};
  std::printf("%s\n%7s %-10s %-27s %10s %12s %7s\n",
              backend->description().c_str(), "vocab", "row", "drawing",
              "us a row", "us to read", "ratio");
  for (const int vocab : flags.vocabularies) {
    Rows rows(backend.get(), vocab);
    for (const RowKind& kind : RowKinds()) {
      rows.Fill(kind);
      const std::vector<Drawing> drawings = Drawings();
      std::vector<std::vector<double>> times(drawings.size());
      for (int repetition = 0; repetition < flags.repetitions; ++repetition) {
        read.MeasureOnce();
        for (size_t i = 0; i < drawings.size(); ++i) {
          times[i].push_back(
              rows.Draw(drawings[i], static_cast<uint64_t>(repetition)));
        }
      }
      const double to_read = vocab * sizeof(float) / read.bytes_per_second();
      for (size_t i = 0; i < drawings.size(); ++i) {
        const double seconds = Median(times[i]);
        std::printf("%7d %-10s %-27s %10.1f %12.1f %7.2f\n", vocab, kind.name,
                    drawings[i].name, seconds * 1e6, to_read * 1e6,
                    seconds / to_read);
        json["drawings"].push_back({{"vocab", vocab},
                                    {"row", kind.name},
                                    {"drawing", drawings[i].name},
                                    {"seconds", seconds},
                                    {"seconds_to_read", to_read},
                                    {"ratio", seconds / to_read}});
      }
      std::fflush(stdout);
    }
  }
  json["read_bytes_per_second"] = read.bytes_per_second();
  std::printf("read bandwidth %.1f GB/s\n", read.bytes_per_second() * 1e-9);
  if (!flags.json.empty()) {
    std::FILE* file = std::fopen(flags.json.c_str(), "w");
    if (file == nullptr) {
      std::fprintf(stderr, "cannot write %s\n", flags.json.c_str());
      return 1;
    }
    std::fprintf(file, "%s\n", json.dump(2).c_str());
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace nacre::model

int main(int argc, char** argv) { return nacre::model::Main(argc, argv); }
