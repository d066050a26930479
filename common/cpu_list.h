// Lists of cores, and which of them the compute threads of each worker get.
//
// Pure functions, but for AvailableCpus, which asks the kernel.

#ifndef COMMON_CPU_LIST_H_
#define COMMON_CPU_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace nacre {

// Parses "0,2-4" into {0, 2, 3, 4}. INVALID_ARGUMENT on anything else.
absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text);

// {0, 1, 2, 6} to "0,1,2,6".
std::string FormatCpuList(const std::vector<int>& cpus);

// The cores this process may run on.
std::vector<int> AvailableCpus();

// Deals `cpus` (not empty) out like cards: worker i gets cpus i, i + n, i + 2n
// and so on, n = num_workers. With fewer cpus than workers they are shared, one
// to a worker.
std::vector<std::vector<int>> DealCpus(const std::vector<int>& cpus,
                                       int num_workers);

}  // namespace nacre

#endif  // COMMON_CPU_LIST_H_
