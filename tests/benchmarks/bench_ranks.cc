// Tensor parallel against one rank with as many threads: what a step of some
// rows costs, logits of every row included, and how fast a prompt is read.
//
//   bench_ranks --folder DIR [--cpus LIST] [--ranks N] [--weights TYPE]
//               [--context N] [--layers N] [--hidden N] [--repetitions N]
//
// Of a Llama of random weights, which is written to the folder. Three models
// take turns in each repetition: not split, split on one rank, split on N; all
// use all cores. Times are medians, so that a busy moment of the machine falls
// on all alike; the share is the median of each repetition's.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cpu_list.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "model/tensor_parallel_model.h"
#include "tests/benchmarks/machine_limits.h"
#include "tests/benchmarks/random_llama.h"

namespace nacre::model {
namespace {

using kernels::Median;
using kernels::Seconds;
using kernels::ValueOrExit;

struct RankFlags {
  std::string folder;
  std::vector<int> cpus = {0, 1};
  int ranks = 2;
  std::string weights = "bf16";
  int context = 128;  // tokens before the rows
  int layers = 4;
  int hidden = 2048;
  int repetitions = 31;
};

constexpr int kRankPromptRows = 256;
// Rows of a step; 0: a prompt.
constexpr int kStepRows[] = {1, 4, 16, 0};

RankFlags ParseFlags(int argc, char** argv) {
  RankFlags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--folder") {
      flags.folder = value;
    } else if (name == "--cpus") {
      flags.cpus = ValueOrExit(ParseCpuList(value));
    } else if (name == "--ranks") {
      flags.ranks = std::atoi(value);
    } else if (name == "--weights") {
      flags.weights = value;
    } else if (name == "--context") {
      flags.context = std::max(0, std::atoi(value));
    } else if (name == "--layers") {
      flags.layers = std::max(1, std::atoi(value));
    } else if (name == "--hidden") {
      flags.hidden = std::max(512, std::atoi(value)) / 512 * 512;
    } else if (name == "--repetitions") {
      flags.repetitions = std::max(1, std::atoi(value));
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      std::exit(1);
    }
  }
  return flags;
}

// As of bench_decode, with as many KV heads as 8 ranks need.
LlamaShape ShapeOf(const RankFlags& flags) {
  return ShapeOfWidth(flags.hidden, flags.layers, 32000, 4096);
}

class Timed {
 public:
  Timed(std::string name, LanguageModel* model, int context)
      : name_(std::move(name)), model_(model), context_(context) {
    for (int i = 0; i < context + kRankPromptRows; ++i) {
      tokens_.push_back(i * 7919 % model->info().vocab_size);
    }
    sequence_ = ValueOrExit(model->NewSequence(context + 64));
    if (context > 0) Run(sequence_.get(), context, 0);
  }

  const std::string& name() const { return name_; }

  double Time(int rows) {
    if (rows == 0) {
      const auto sequence = ValueOrExit(model_->NewSequence(kRankPromptRows));
      return Run(sequence.get(), kRankPromptRows, 1);
    }
    sequence_->Truncate(context_);
    return Run(sequence_.get(), rows, rows);
  }

 private:
  double Run(Sequence* sequence, int rows, int logits) {
    const SequenceRows batch = {
        sequence, absl::MakeConstSpan(tokens_).first(static_cast<size_t>(rows)),
        logits};
    const double start = Seconds();
    ValueOrExit(model_->Forward({&batch, 1}));
    return Seconds() - start;
  }

  std::string name_;
  LanguageModel* model_;
  int context_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<Sequence> sequence_;
};

void MeasureRows(std::vector<Timed>& models, int rows, int repetitions) {
  std::vector<std::vector<double>> times(models.size()), shares(models.size());
  for (Timed& model : models) model.Time(rows);  // allocates
  for (int i = 0; i < repetitions; ++i) {
    for (size_t m = 0; m < models.size(); ++m) {
      times[m].push_back(models[m].Time(rows));
      shares[m].push_back(times[0].back() / times[m].back());
    }
  }
  std::printf("%s\n", rows == 0
                          ? absl::StrCat("prompt of ", kRankPromptRows).c_str()
                          : absl::StrCat("step of ", rows).c_str());
  for (size_t m = 0; m < models.size(); ++m) {
    std::printf("  %-22s %9.3f ms  %6.3f x\n", models[m].name().c_str(),
                Median(times[m]) * 1e3, Median(shares[m]));
  }
}

int RunRanks(const RankFlags& flags) {
  if (flags.folder.empty()) {
    std::fprintf(stderr, "--folder DIR is required\n");
    return 1;
  }
  const RandomLlama random(ShapeOf(flags), flags.weights == "f32"
                                               ? kernels::DType::kF32
                                               : kernels::DType::kBF16);
  if (const absl::Status status = random.Write(flags.folder); !status.ok()) {
    kernels::Exit(status);
  }
  kernels::BackendOptions options;
  options.cpus = flags.cpus;
  options.weights = flags.weights;
  ModelOptions model_options;
  model_options.kv_cache_bytes = int64_t{256} << 20;
  const auto backend = ValueOrExit(kernels::CreateBackend(options));
  const auto plain =
      ValueOrExit(LoadModel(flags.folder, backend.get(), model_options));
  const auto one = ValueOrExit(
      TensorParallelModel::Load(flags.folder, options, 1, model_options));
  const auto split = ValueOrExit(TensorParallelModel::Load(
      flags.folder, options, flags.ranks, model_options));
  plain->BindComputeThread();  // the first core is the same of all
  std::printf("%s\n%s\n%s\n", plain->info().description.c_str(),
              backend->description().c_str(),
              split->backend_description().c_str());
  std::vector<Timed> models;
  models.emplace_back("not split", plain.get(), flags.context);
  models.emplace_back("1 rank", one.get(), flags.context);
  models.emplace_back(absl::StrCat(flags.ranks, " ranks"), split.get(),
                      flags.context);
  for (const int rows : kStepRows) {
    MeasureRows(models, rows, flags.repetitions);
  }
  return 0;
}

}  // namespace
}  // namespace nacre::model

int main(int argc, char** argv) {
  return nacre::model::RunRanks(nacre::model::ParseFlags(argc, argv));
}
