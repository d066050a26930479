// What this machine can do at most, measured: the denominators of the other
// benchmarks. And the little that all benchmark programs share.
//
// Threads: a limit is measured by the threads of the pool it is given.

#ifndef TESTS_BENCHMARKS_MACHINE_LIMITS_H_
#define TESTS_BENCHMARKS_MACHINE_LIMITS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"

namespace nacre::kernels {

double Seconds();  // of a steady clock

double Median(std::vector<double> values);

// The value; prints the error and ends the program without one.
[[noreturn]] void Exit(const absl::Status& status);
template <class T>
T ValueOrExit(absl::StatusOr<T> value) {
  if (!value.ok()) Exit(value.status());
  return *std::move(value);
}

// Reads memory that no cache holds.
class ReadBandwidth {
 public:
  // Allocates `bytes` from `backend`: pages as weights have them.
  ReadBandwidth(Backend& backend, ThreadPool* threads, size_t bytes);

  void MeasureOnce();
  // Median of the measurements so far.
  double bytes_per_second() const;

 private:
  ThreadPool* threads_;
  size_t bytes_;
  std::unique_ptr<Buffer> memory_;
  std::vector<double> seconds_;
  volatile double checksum_ = 0;  // keeps the compiler from skipping the sum
};

// Float32 multiply-adds a second of all threads together, from registers:
// median of `repetitions`.
double MultiplyAddPeak(ThreadPool* threads, int repetitions);

// Until a task of nothing has been given to all threads and is done: tells
// cores that share a cache from those that do not.
double HandOverSeconds(ThreadPool* threads);

}  // namespace nacre::kernels

#endif  // TESTS_BENCHMARKS_MACHINE_LIMITS_H_
