#include "tests/benchmarks/machine_limits.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/benchmarks/machine_limits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace nacre::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sums floats [begin, end), fetching as far ahead as the products do.
double Sum(const float* values, size_t begin, size_t end) {
  const hn::ScalableTag<float> df;
  constexpr size_t kLine = 16;             // floats
  constexpr size_t kPrefetchAhead = 2048;  // floats
  const size_t lanes = hn::Lanes(df);
  auto sum0 = hn::Zero(df);
  auto sum1 = hn::Zero(df);
  auto sum2 = hn::Zero(df);
  auto sum3 = hn::Zero(df);
  for (size_t i = begin; i + 4 * kLine <= end; i += 4 * kLine) {
    for (size_t j = 0; j < 4 * kLine; j += kLine) {
      hwy::Prefetch(values + i + j + kPrefetchAhead);
    }
    for (size_t j = 0; j < 4 * kLine; j += 4 * lanes) {
      sum0 = hn::Add(sum0, hn::Load(df, values + i + j));
      sum1 = hn::Add(sum1, hn::Load(df, values + i + j + lanes));
      sum2 = hn::Add(sum2, hn::Load(df, values + i + j + 2 * lanes));
      sum3 = hn::Add(sum3, hn::Load(df, values + i + j + 3 * lanes));
    }
  }
  return hn::GetLane(
      hn::SumOfLanes(df, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// `steps` times 12 independent vector multiply-adds; returns their sum. Sets
// `count` to the scalar ones.
double MultiplyAdds(size_t steps, double* count) {
  const hn::ScalableTag<float> df;
  using V = hn::Vec<decltype(df)>;
  // All differ: a compiler computes equal ones once.
  V a0 = hn::Iota(df, 0.0f), a1 = hn::Iota(df, 1.0f), a2 = hn::Iota(df, 2.0f);
  V a3 = hn::Iota(df, 3.0f), a4 = hn::Iota(df, 4.0f), a5 = hn::Iota(df, 5.0f);
  V a6 = hn::Iota(df, 6.0f), a7 = hn::Iota(df, 7.0f), a8 = hn::Iota(df, 8.0f);
  V a9 = hn::Iota(df, 9.0f), a10 = hn::Iota(df, 10.0f);
  V a11 = hn::Iota(df, 11.0f);
  const V x = hn::Set(df, 0.5f);
  const V y = hn::Set(df, 0.25f);
  for (size_t i = 0; i < steps; ++i) {
    a0 = hn::MulAdd(a0, x, y);
    a1 = hn::MulAdd(a1, x, y);
    a2 = hn::MulAdd(a2, x, y);
    a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y);
    a5 = hn::MulAdd(a5, x, y);
    a6 = hn::MulAdd(a6, x, y);
    a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y);
    a9 = hn::MulAdd(a9, x, y);
    a10 = hn::MulAdd(a10, x, y);
    a11 = hn::MulAdd(a11, x, y);
  }
  *count = 12.0 * static_cast<double>(steps * hn::Lanes(df));
  const V sum = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
                        hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)));
  const V rest = hn::Add(hn::Add(a8, a9), hn::Add(a10, a11));
  return hn::GetLane(hn::SumOfLanes(df, hn::Add(sum, rest)));
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::kernels {

HWY_EXPORT(Sum);
HWY_EXPORT(MultiplyAdds);

namespace {
// Past what Sum reads, so that it may fetch ahead.
constexpr size_t kSlackBytes = 16384;
}  // namespace

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Exit(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

ReadBandwidth::ReadBandwidth(Backend& backend, ThreadPool* threads,
                             size_t bytes)
    : threads_(threads),
      bytes_(bytes),
      memory_(ValueOrExit(backend.Allocate(bytes + kSlackBytes))) {
  std::memset(memory_->data(), 0, bytes_);
}

void ReadBandwidth::MeasureOnce() {
  const float* values = memory_->f32();
  const size_t each =
      bytes_ / sizeof(float) / threads_->size() / 64 * 64;  // whole lines
  std::vector<double> totals(threads_->size());
  const double start = Seconds();
  threads_->Run([&](int thread) {
    totals[thread] =
        HWY_DYNAMIC_DISPATCH(Sum)(values, each * thread, each * (thread + 1));
  });
  seconds_.push_back(Seconds() - start);
  for (const double total : totals) checksum_ = checksum_ + total;
}

double ReadBandwidth::bytes_per_second() const {
  return static_cast<double>(bytes_) / Median(seconds_);
}

double MultiplyAddPeak(ThreadPool* threads, int repetitions) {
  constexpr size_t kSteps = 2'000'000;
  std::vector<double> rates;
  std::vector<double> totals(threads->size());
  volatile double checksum = 0;
  for (int i = 0; i < repetitions; ++i) {
    std::vector<double> counts(threads->size());
    const double start = Seconds();
    threads->Run([&](int thread) {
      totals[thread] =
          HWY_DYNAMIC_DISPATCH(MultiplyAdds)(kSteps, &counts[thread]);
    });
    const double seconds = Seconds() - start;
    double count = 0;
    for (size_t t = 0; t < counts.size(); ++t) {
      count += counts[t];
      checksum = checksum + totals[t];
    }
    rates.push_back(count / seconds);
  }
  return Median(rates);
}

double HandOverSeconds(ThreadPool* threads) {
  constexpr int kTasks = 100;
  std::vector<double> seconds;
  for (int i = 0; i < kTasks; ++i) {
    const double start = Seconds();
    threads->Run([](int) {});
    seconds.push_back(Seconds() - start);
  }
  return Median(seconds);
}

}  // namespace nacre::kernels
#endif  // HWY_ONCE
