// What memory and arithmetic of this machine can do at most, by threads.
//
//   bench_bandwidth [--cpus LIST] [--megabytes N] [--repetitions N]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "common/cpu_list.h"
#include "kernels/backend_factory.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::kernels {
namespace {

int Main(int argc, char** argv) {
  std::vector<int> cpus = {0};
  int megabytes = 512;
  int repetitions = 9;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--cpus") {
      cpus = ValueOrExit(ParseCpuList(argv[i + 1]));
    } else if (name == "--megabytes") {
      megabytes = std::max(1, std::atoi(argv[i + 1]));
    } else if (name == "--repetitions") {
      repetitions = std::max(1, std::atoi(argv[i + 1]));
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      return 1;
    }
  }
  std::printf("%8s %12s %16s\n", "threads", "read GB/s", "f32 GMAC/s");
  for (size_t count = 1; count <= cpus.size(); ++count) {
    // A thread of its own: it stays on the first core.
    std::thread([&] {
      BackendOptions options;
      options.cpus.assign(cpus.begin(), cpus.begin() + count);
      const auto backend = ValueOrExit(CreateBackend(options));
      ThreadPool threads(options.cpus);
      threads.BindCaller();
      ReadBandwidth read(*backend, &threads, (size_t{1} << 20) * megabytes);
      for (int i = 0; i < repetitions; ++i) read.MeasureOnce();
      std::printf("%8zu %12.1f %16.1f\n", count, read.bytes_per_second() * 1e-9,
                  MultiplyAddPeak(&threads, repetitions) * 1e-9);
    }).join();
  }
  return 0;
}

}  // namespace
}  // namespace nacre::kernels

int main(int argc, char** argv) { return nacre::kernels::Main(argc, argv); }
