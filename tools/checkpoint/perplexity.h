// How well a checkpoint predicts texts, in process: what keeping its weights in
// fewer bits costs.
//
// Pure functions of files.

#ifndef TOOLS_CHECKPOINT_PERPLEXITY_H_
#define TOOLS_CHECKPOINT_PERPLEXITY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/memory_limit.h"
#include "kernels/backend_factory.h"
#include "model/progress.h"

namespace nacre::tools {

struct PerplexityOptions {
  std::string model_dir;
  std::vector<std::string> texts;
  kernels::BackendOptions backend;
  model::ProgressCallback progress;  // may be empty; stages "weights", "texts"
  std::function<void(absl::string_view)> warn;  // may be empty
  MemoryFiles memory;
};

struct PerplexityResult {
  int64_t texts = 0;  // that had a token to predict
  int64_t cut = 0;  // of these, longer than the context: their end is left out
  int64_t tokens = 0;  // predicted
  double nll = 0;      // sum over the tokens of -log p(token | text before it)
  // What BackendOptions led to.
  kernels::DType kv_type = kernels::DType::kF32;
  std::string numerics_id;

  // e^(nll / tokens).
  double Perplexity() const;
};

// Every token of a text but its first is predicted from all before it; the
// first is the model's BOS where it has one. Errors of the checkpoint, the
// tokenizer and worker::CheckMemory; INVALID_ARGUMENT if no text has two
// tokens; DATA_LOSS if a token's probability is no number > 0.
absl::StatusOr<PerplexityResult> MeasurePerplexity(
    const PerplexityOptions& options);

// One JSON object a line with `text` or else `prompt`, a string; empty lines
// are skipped. INVALID_ARGUMENT with `name` and the line.
absl::StatusOr<std::vector<std::string>> ParseTexts(absl::string_view name,
                                                    absl::string_view content);

}  // namespace nacre::tools

#endif  // TOOLS_CHECKPOINT_PERPLEXITY_H_
