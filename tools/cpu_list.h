// Which cores the compute threads of each worker get. Users' lists are parsed
// by common/cpu_list.h.

#ifndef TOOLS_CPU_LIST_H_
#define TOOLS_CPU_LIST_H_

#include <string>
#include <vector>

namespace nacre::tools {

// {0, 1, 2, 6} to "0,1,2,6".
std::string FormatCpuList(const std::vector<int>& cpus);

// The cores this process may run on.
std::vector<int> AvailableCpus();

// Deals `cpus` (not empty) out like cards: worker i gets cpus i, i + n, i + 2n
// and so on, n = num_workers. With fewer cpus than workers they are shared, one
// to a worker.
std::vector<std::vector<int>> DealCpus(const std::vector<int>& cpus,
                                       int num_workers);

}  // namespace nacre::tools

#endif  // TOOLS_CPU_LIST_H_
