// How long a checkpoint takes to load, by type of weights, against the time to
// read its file's bytes from memory once.
//
//   bench_loading [--weights LIST] [--cpus LIST] [--layers N] [--hidden N]
//                 [--vocab N] [--model DIR] [--repetitions N] [--json FILE]
//
// Without --model, a bf16 Llama of random weights of the given size is written
// to a temporary folder. The file is in the system's cache: what is measured is
// the work, not a disk. Times are medians.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/cpu_list.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "nlohmann/json.hpp"
#include "tests/benchmarks/machine_limits.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using kernels::Median;
using kernels::Seconds;
using kernels::ValueOrExit;

struct Flags {
  std::vector<std::string> weights = {"bf16", "int8", "int4"};
  std::vector<int> cpus = {0};
  int layers = 9;
  int hidden = 2048;
  int vocab = 32000;
  std::string model;
  int repetitions = 3;
  std::string json;
};

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--weights") {
      flags.weights = absl::StrSplit(value, ',');
    } else if (name == "--cpus") {
      flags.cpus = ValueOrExit(ParseCpuList(value));
    } else if (name == "--layers") {
      flags.layers = std::max(1, std::atoi(value));
    } else if (name == "--hidden") {
      flags.hidden = std::max(256, std::atoi(value)) / 256 * 256;
    } else if (name == "--vocab") {
      flags.vocab = std::max(256, std::atoi(value));
    } else if (name == "--model") {
      flags.model = value;
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

// As bench_decode's.
std::string WriteModel(const Flags& flags) {
  nacre::testing::TinyCheckpoint shape;
  shape.hidden_size = flags.hidden;
  shape.intermediate_size = flags.hidden * 11 / 4;
  shape.num_hidden_layers = flags.layers;
  shape.head_dim = 64;
  shape.num_attention_heads = flags.hidden / 64;
  shape.num_key_value_heads = flags.hidden / 256;
  shape.vocab_size = flags.vocab;
  shape.dtype = kernels::DType::kBF16;
  const std::string dir = (std::filesystem::temp_directory_path() /
                           absl::StrCat("nacre-bench-loading-", getpid()))
                              .string();
  std::filesystem::create_directories(dir);
  nacre::testing::WriteTinyCheckpoint(shape, dir);
  return dir;
}

double BytesOfTensors(const std::string& dir) {
  double bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    if (file.path().extension() == ".safetensors") {
      bytes += static_cast<double>(file.file_size());
    }
  }
  return bytes;
}

int Main(int argc, char** argv) {
  const Flags flags = Parse(argc, argv);
  const std::string dir = flags.model.empty() ? WriteModel(flags) : flags.model;
  const double bytes = BytesOfTensors(dir);
  kernels::ThreadPool threads(flags.cpus);
  // Made before this thread is bound, after which it has one core only.
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  for (const std::string& weights : flags.weights) {
    kernels::BackendOptions options;
    options.cpus = flags.cpus;
    options.weights = weights;
    backends.push_back(ValueOrExit(kernels::CreateBackend(options)));
  }
  threads.BindCaller();
  nlohmann::json json = {{"bytes", bytes},
                         {"threads", flags.cpus.size()},
                         {"loads", nlohmann::json::array()}};
  std::printf("a checkpoint of %.0f MB, %zu threads\n%8s %10s %12s %8s\n",
              bytes * 1e-6, flags.cpus.size(), "weights", "seconds",
              "s to read", "ratio");
  for (size_t b = 0; b < backends.size(); ++b) {
    const std::string& weights = flags.weights[b];
    kernels::Backend* const backend = backends[b].get();
    kernels::ReadBandwidth read(*backend, &threads, size_t{512} << 20);
    std::vector<double> times;
    for (int i = 0; i < flags.repetitions; ++i) {
      for (int j = 0; j < 3; ++j) read.MeasureOnce();
      const double start = Seconds();
      const auto model =
          ValueOrExit(LoadModel(dir, backend, {int64_t{64} << 20, {}}));
      times.push_back(Seconds() - start);
    }
    const double seconds = Median(times);
    const double to_read = bytes / read.bytes_per_second();
    std::printf("%8s %10.2f %12.3f %8.1f\n", weights.c_str(), seconds, to_read,
                seconds / to_read);
    std::fflush(stdout);
    json["loads"].push_back({{"weights", weights},
                             {"seconds", seconds},
                             {"seconds_to_read", to_read}});
  }
  if (flags.model.empty()) std::filesystem::remove_all(dir);
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
