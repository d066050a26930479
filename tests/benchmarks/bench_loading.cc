// How long a checkpoint takes to load, by type of weights, against the time to
// read its file's bytes from memory once; and what it takes of memory, against
// what was told before.
//
//   bench_loading [--weights LIST] [--cpus LIST] [--shape NAME] [--layers N]
//                 [--hidden N] [--vocab N] [--model DIR] [--write DIR]
//                 [--gguf TYPE] [--repetitions N] [--json FILE]
//
// Without --model, a bf16 Llama of random weights of the given size is written
// to a temporary folder; with --write to that one, which is all then. --gguf
// q8_0, q4_k or q6_k: a GGUF file of random blocks, model.gguf there. --shape
// 8b: as Llama 3 8B, 16 GB. A small file is in the system's cache: what is
// measured is the work, not a disk. Times are medians. Memory is that of the
// process, less what it had before: what is left after a load, and the peak,
// which is the highest of all loads.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/cpu_list.h"
#include "common/json.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/benchmarks/machine_limits.h"
#include "tests/benchmarks/random_gguf.h"
#include "tests/benchmarks/random_llama.h"
#include "tests/testing/process_memory.h"

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
  std::string shape;
  std::string model;
  std::string write;
  std::string gguf;
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
    } else if (name == "--shape" && std::string(value) == "8b") {
      flags.shape = value;
    } else if (name == "--model") {
      flags.model = value;
    } else if (name == "--write") {
      flags.write = value;
    } else if (name == "--gguf") {
      flags.gguf = value;
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

// As bench_decode's, unless it has a name.
LlamaShape Shape(const Flags& flags) {
  if (flags.shape == "8b") {
    LlamaShape shape;
    shape.hidden = 4096;
    shape.intermediate = 14336;
    shape.layers = 32;
    shape.heads = 32;
    shape.kv_heads = 8;
    shape.head_dim = 128;
    shape.vocab = 128256;
    shape.context = 8192;
    return shape;
  }
  return ShapeOfWidth(flags.hidden, flags.layers, flags.vocab, 512);
}

std::string FolderOf(const Flags& flags) {
  if (!flags.write.empty()) return flags.write;
  return (std::filesystem::temp_directory_path() /
          absl::StrCat("nacre-bench-loading-", getpid()))
      .string();
}

// Into the folder; returns what --model would be.
std::string WriteModel(const Flags& flags, const std::string& dir) {
  std::filesystem::create_directories(dir);
  const RandomLlama model(Shape(flags), kernels::DType::kBF16);
  const bool is_gguf = !flags.gguf.empty();
  const std::string file = dir + "/model.gguf";
  const absl::Status status =
      is_gguf ? WriteRandomGguf(model.config(), flags.gguf, file)
              : model.Write(dir);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  return is_gguf ? file : dir;
}

// "VmRSS", "VmHWM": bytes of this process.
double Memory(const char* name) {
  return static_cast<double>(nacre::testing::ProcessMemory(name));
}

// Counts peaks from now on.
void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// Of a folder or a GGUF file.
double BytesOfTensors(const std::string& dir) {
  if (!std::filesystem::is_directory(dir)) {
    return static_cast<double>(std::filesystem::file_size(dir));
  }
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
  const std::string written = FolderOf(flags);
  const std::string dir =
      flags.model.empty() ? WriteModel(flags, written) : flags.model;
  if (!flags.write.empty()) return 0;
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
  std::printf(
      "a checkpoint of %.0f MB, %zu threads\n%8s %10s %12s %8s %10s %10s "
      "%10s\n",
      bytes * 1e-6, flags.cpus.size(), "weights", "seconds", "s to read",
      "ratio", "needs MB", "has MB", "peak MB");
  for (size_t b = 0; b < backends.size(); ++b) {
    const std::string& weights = flags.weights[b];
    kernels::Backend* const backend = backends[b].get();
    std::vector<double> times;
    MemoryNeeds needs;
    ModelOptions options;
    options.kv_cache_bytes = int64_t{64} << 20;
    options.admit = [&needs](const MemoryNeeds& told) {
      needs = told;
      return absl::OkStatus();
    };
    double resident = 0;
    ForgetPeak();
    const double before = Memory("VmRSS");
    for (int i = 0; i < flags.repetitions; ++i) {
      const double start = Seconds();
      const auto model = ValueOrExit(LoadModel(dir, backend, options));
      times.push_back(Seconds() - start);
      resident = Memory("VmRSS") - before;
    }
    const double peak = Memory("VmHWM") - before;
    kernels::ReadBandwidth read(*backend, &threads, size_t{512} << 20);
    for (int i = 0; i < 3 * flags.repetitions; ++i) read.MeasureOnce();
    const double seconds = Median(times);
    const double to_read = bytes / read.bytes_per_second();
    const auto loaded = static_cast<double>(needs.loaded());
    std::printf("%8s %10.2f %12.3f %8.1f %10.1f %10.1f %10.1f\n",
                weights.c_str(), seconds, to_read, seconds / to_read,
                loaded * 1e-6, resident * 1e-6, peak * 1e-6);
    std::fflush(stdout);
    json["loads"].push_back({{"weights", weights},
                             {"seconds", seconds},
                             {"seconds_to_read", to_read},
                             {"needed_bytes", needs.loaded()},
                             {"resident_bytes", resident},
                             {"peak_bytes", peak}});
  }
  if (flags.model.empty()) std::filesystem::remove_all(written);
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
