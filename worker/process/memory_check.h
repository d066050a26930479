// Whether a model has room in the memory of the host. A process that has too
// little is killed when most of the model is loaded, so it is told before.
//
// Pure functions.

#ifndef WORKER_PROCESS_MEMORY_CHECK_H_
#define WORKER_PROCESS_MEMORY_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/memory_limit.h"
#include "kernels/product_ops.h"
#include "model/memory_needs.h"

namespace nacre::worker {

// RESOURCE_EXHAUSTED with the bytes, and the least limit, where what loading
// writes passes it: it would be killed, whatever others do.
absl::Status CheckMemory(const model::MemoryNeeds& needs,
                         absl::Span<const MemoryLimit> limits);

// What may go wrong all the same: all that it may come to need is more than is
// available now, or than a limit. Empty: nothing.
std::string MemoryWarning(const model::MemoryNeeds& needs,
                          absl::Span<const MemoryLimit> limits);

// For the log, of what was loaded; empty: nothing can be saved.
std::string SavedWeightsLine(const kernels::SavedWeights& saved);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_MEMORY_CHECK_H_
