// A whole model against the limits of this machine: what a step of 1 to 32 rows
// costs, logits of every row included, and how fast a prompt is read.
//
//   bench_decode [--weights TYPE] [--cpus LIST] [--context N] [--layers N]
//                [--hidden N] [--vocab N] [--model DIR] [--config FILE]
//                [--repetitions N] [--prompts N] [--rows LIST]
//                [--avx512 on|off] [--json FILE]
//
// Without --model, which may be a GGUF file, a Llama of random weights of the
// given size, or a model of any family that a config.json describes. Times are
// medians over repetitions, in which the row counts take turns, so that a busy
// moment of the machine falls on all alike. --avx512 off: as on a CPU without
// it.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "common/cpu_list.h"
#include "common/files.h"
#include "common/json.h"
#include "hwy/targets.h"
#include "kernels/backend_factory.h"
#include "kernels/cpu/coded_weights.h"
#include "kernels/weight_type.h"
#include "model/load_model.h"
#include "tests/benchmarks/machine_limits.h"
#include "tests/benchmarks/random_llama.h"

namespace nacre::model {
namespace {

using kernels::Median;
using kernels::Seconds;
using kernels::ValueOrExit;

struct Flags {
  std::string weights = "bf16";
  std::vector<int> cpus = {0};
  int context = 128;  // tokens before the rows
  int layers = 12;
  int hidden = 2048;
  int vocab = 32000;
  std::string model;
  std::string config;  // of a random model, in place of its shape
  int repetitions = 9;
  int prompts = 3;  // repetitions that read one
  bool avx512 = true;
  std::vector<int> rows = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
  std::string json;
};

constexpr int kPromptRows = 512;

bool OnOrOff(const std::string& value) {
  if (value == "on" || value == "off") return value == "on";
  std::fprintf(stderr, "--avx512 %s: on or off\n", value.c_str());
  std::exit(1);
}

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--weights") {
      flags.weights = value;
    } else if (name == "--cpus") {
      flags.cpus = ValueOrExit(ParseCpuList(value));
    } else if (name == "--context") {
      flags.context = std::max(0, std::atoi(value));
    } else if (name == "--layers") {
      flags.layers = std::max(1, std::atoi(value));
    } else if (name == "--hidden") {
      flags.hidden = std::max(256, std::atoi(value)) / 256 * 256;
    } else if (name == "--vocab") {
      flags.vocab = std::max(256, std::atoi(value));
    } else if (name == "--model") {
      flags.model = value;
    } else if (name == "--config") {
      flags.config = value;
    } else if (name == "--repetitions") {
      flags.repetitions = std::max(1, std::atoi(value));
    } else if (name == "--prompts") {
      flags.prompts = std::max(1, std::atoi(value));
    } else if (name == "--avx512") {
      flags.avx512 = OnOrOff(value);
    } else if (name == "--rows") {  // as "1,4-8"
      flags.rows = ValueOrExit(ParseCpuList(value));
    } else if (name == "--json") {
      flags.json = value;
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      std::exit(1);
    }
  }
  return flags;
}

void ForbidAvx512() {
#if HWY_ARCH_X86
  // Highway numbers better targets lower.
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & -HWY_AVX2);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
#endif
}

LlamaShape Shape(const Flags& flags) {
  return ShapeOfWidth(flags.hidden, flags.layers, flags.vocab, 65536);
}

double BytesPerWeight(const Flags& flags) {
  const std::string& weights = flags.weights;
  if (weights == "f32") return 4;
  if (weights == "int8") return 1 + 2.0 / 64;
  if (weights == "int4") return 0.5 + 2.0 / 32;
  if (weights == "bf16a16" && flags.avx512 &&
      kernels::FindCodedKernels() != nullptr) {
    return 1.5;  // but for small matrices, and those of many exponents
  }
  return 2;
}

class Bench {
 public:
  Bench(LanguageModel* model, int context) : model_(model), context_(context) {
    tokens_.resize(static_cast<size_t>(std::max(context, kPromptRows)) + 64);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<int32_t>(i * 7919 % model->info().vocab_size);
    }
    sequence_ = ValueOrExit(model->NewSequence(context + 64));
    for (int left = context; left > 0; left -= kPromptRows) {
      Run(sequence_.get(), std::min(left, kPromptRows), 0);
    }
  }

  // Seconds of a step of `rows` rows after the context, with all logits.
  double Step(int rows) {
    sequence_->Truncate(context_);
    return Run(sequence_.get(), rows, rows);
  }

  // Seconds of a prompt of kPromptRows rows.
  double Prompt() {
    const auto sequence = ValueOrExit(model_->NewSequence(kPromptRows));
    return Run(sequence.get(), kPromptRows, 1);
  }

 private:
  double Run(Sequence* sequence, int rows, int logits) {
    const SequenceRows batch = {
        sequence, absl::MakeConstSpan(tokens_).first(rows), logits};
    const double start = Seconds();
    ValueOrExit(model_->Forward({&batch, 1}));
    return Seconds() - start;
  }

  LanguageModel* model_;
  int context_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<Sequence> sequence_;
};

int Main(int argc, char** argv) {
  const Flags flags = Parse(argc, argv);
  if (!flags.avx512) ForbidAvx512();
  kernels::BackendOptions options;
  options.cpus = flags.cpus;
  options.weights = flags.weights;
  const auto backend = ValueOrExit(kernels::CreateBackend(options));
  backend->BindComputeThread();
  ModelOptions model_options = {int64_t{1} << 30, {}};
  MemoryNeeds needs;
  model_options.admit = [&needs](const MemoryNeeds& told) {
    needs = told;
    return absl::OkStatus();
  };
  absl::optional<RandomLlama> random;
  std::unique_ptr<LanguageModel> model;
  ModelConfig config;
  if (flags.model.empty()) {
    const auto dtype =
        flags.weights == "f32" ? kernels::DType::kF32 : kernels::DType::kBF16;
    if (flags.config.empty()) {
      random.emplace(Shape(flags), dtype);
    } else {
      random.emplace(ValueOrExit(ReadRegularFile(flags.config, 1 << 20)),
                     dtype);
    }
    model = ValueOrExit(random->Load(backend.get(), model_options));
    config = random->config();
  } else {
    model = ValueOrExit(LoadModel(flags.model, backend.get(), model_options));
    config = ValueOrExit(ReadConfig(flags.model));
  }
  const double weights = MatrixWeights(config);
  const double bytes = flags.weights == kernels::kAutoWeights
                           ? static_cast<double>(needs.weights)
                           : weights * BytesPerWeight(flags);
  std::printf("%s\n%s, weights %s: a step reads %.0f MB\n",
              backend->description().c_str(), model->info().description.c_str(),
              flags.weights.c_str(), bytes * 1e-6);

  const std::vector<int>& row_counts = flags.rows;
  Bench bench(model.get(), flags.context);
  for (const int rows : row_counts) bench.Step(rows);  // allocates
  std::vector<std::vector<double>> times(row_counts.size());
  std::vector<double> prompts;
  kernels::ThreadPool threads(flags.cpus);
  kernels::ReadBandwidth read(*backend, &threads, size_t{512} << 20);
  std::vector<double> peaks;
  std::vector<double> hand_overs;
  for (int repetition = 0; repetition < flags.repetitions; ++repetition) {
    read.MeasureOnce();
    hand_overs.push_back(kernels::HandOverSeconds(&threads));
    bench.Step(row_counts[0]);  // so that the next finds caches as others do
    for (size_t c = 0; c < row_counts.size(); ++c) {
      times[c].push_back(bench.Step(row_counts[c]));
    }
    if (repetition < flags.prompts) {
      prompts.push_back(bench.Prompt());
      peaks.push_back(kernels::MultiplyAddPeak(&threads, 1));
    }
  }
  const double bandwidth = read.bytes_per_second();
  const double hand_over = Median(hand_overs);
  const double one_row = Median(times[0]);
  nlohmann::json json = {
      {"weights", flags.weights},      {"backend", backend->description()},
      {"threads", flags.cpus.size()},  {"context", flags.context},
      {"step_bytes", bytes},           {"read_bytes_per_second", bandwidth},
      {"hand_over_seconds", hand_over}};
  std::printf(
      "read bandwidth %.1f GB/s, a task to all threads and back %.2f us, "
      "context %d\n",
      bandwidth * 1e-9, hand_over * 1e6, flags.context);
  std::printf("%6s %10s %8s %10s %9s %10s\n", "rows", "ms", "GB/s", "% of read",
              "to 1 row", "rows/s");
  for (size_t c = 0; c < row_counts.size(); ++c) {
    const double seconds = Median(times[c]);
    std::printf("%6d %10.3f %8.2f %10.1f %9.3f %10.1f\n", row_counts[c],
                seconds * 1e3, bytes / seconds * 1e-9,
                100 * bytes / seconds / bandwidth, seconds / one_row,
                row_counts[c] / seconds);
    json["steps"].push_back({{"rows", row_counts[c]},
                             {"seconds", seconds},
                             {"of_read_bandwidth", bytes / seconds / bandwidth},
                             {"to_one_row", seconds / one_row}});
  }
  const double prompt = Median(prompts);
  const double peak = Median(peaks);
  const double macs =
      kPromptRows * (weights - 1.0 * config.vocab_size * config.hidden_size);
  std::printf(
      "prompt of %d: %.1f ms, %.0f tokens/s, %.1f GMAC/s in matrices, %.1f %% "
      "of the f32 multiply-adds of this machine (%.1f G/s)\n",
      kPromptRows, prompt * 1e3, kPromptRows / prompt, macs / prompt * 1e-9,
      100 * macs / prompt / peak, peak * 1e-9);
  json["prompt"] = {{"rows", kPromptRows},
                    {"seconds", prompt},
                    {"macs_per_second", macs / prompt},
                    {"f32_macs_per_second_peak", peak}};
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
