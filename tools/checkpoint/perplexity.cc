#include "tools/checkpoint/perplexity.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "kernels/backend.h"
#include "model/load_model.h"
#include "model/logprobs.h"
#include "model/model_backend.h"
#include "tokenizer/tokenizer.h"
#include "worker/process/memory_check.h"

namespace nacre::tools {
namespace {

// Rows of one forward: enough to read the weights rarely, few enough that the
// logits of a large vocabulary stay small.
constexpr int kChunkRows = 128;
// Each text has the KV cache to itself.
constexpr int64_t kKvCacheBytes = int64_t{1} << 30;

// Adds one text of at least two tokens.
absl::Status AddText(model::LanguageModel* model,
                     const std::vector<int32_t>& tokens,
                     PerplexityResult* result) {
  const int count =
      static_cast<int>(tokens.size()) - 1;  // the last predicts none
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<model::Sequence> sequence,
                         model->NewSequence(count));
  const size_t vocab = static_cast<size_t>(model->info().vocab_size);
  model::SamplingScratch scratch;
  for (int begin = 0; begin < count; begin += kChunkRows) {
    const int rows = std::min(kChunkRows, count - begin);
    const model::SequenceRows batch = {
        sequence.get(),
        absl::MakeConstSpan(tokens).subspan(static_cast<size_t>(begin),
                                            static_cast<size_t>(rows)),
        rows};
    NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                           model->Forward({&batch, 1}));
    for (int i = 0; i < rows; ++i) {
      const int32_t token =
          tokens[static_cast<size_t>(begin) + static_cast<size_t>(i) + 1];
      const double logprob =
          model::ComputeLogprobs(
              logits.subspan(static_cast<size_t>(i) * vocab, vocab), token, 0,
              &scratch)
              .logprob;
      if (!std::isfinite(logprob)) {
        return absl::DataLossError(
            absl::StrCat("token ", begin + i + 1, " of text ", result->texts,
                         " has log-probability ", logprob));
      }
      result->nll -= logprob;
    }
  }
  result->tokens += count;
  return absl::OkStatus();
}

}  // namespace

double PerplexityResult::Perplexity() const {
  return std::exp(nll / static_cast<double>(tokens));
}

absl::StatusOr<PerplexityResult> MeasurePerplexity(
    const PerplexityOptions& options) {
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<kernels::Backend> backend,
      model::CreateBackendFor(options.model_dir, options.backend));
  backend->BindComputeThread();
  NACRE_ASSIGN_OR_RETURN(const auto tokenizer,
                         tokenizer::LoadTokenizer(options.model_dir));
  model::ModelOptions model_options;
  model_options.kv_cache_bytes = kKvCacheBytes;
  model_options.progress = options.progress;
  model_options.step_rows = kChunkRows;
  model_options.admit = [&options](const model::MemoryNeeds& needs) {
    const std::vector<MemoryLimit> limits = MemoryLimits(options.memory);
    NACRE_RETURN_IF_ERROR(worker::CheckMemory(needs, limits));
    const std::string warning = worker::MemoryWarning(needs, limits);
    if (options.warn && !warning.empty()) options.warn(warning);
    return absl::OkStatus();
  };
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<model::LanguageModel> model,
      model::LoadModel(options.model_dir, backend.get(), model_options));
  if (options.warn && !model->info().unread.empty()) {
    options.warn(model->info().unread);
  }
  const size_t context =
      std::min(static_cast<size_t>(model->info().context_length),
               static_cast<size_t>(model->info().kv_capacity_tokens));
  PerplexityResult result;
  result.kv_type = backend->kv_type();
  result.numerics_id = backend->numerics_id();
  for (size_t i = 0; i < options.texts.size(); ++i) {
    NACRE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                           tokenizer->Encode(options.texts[i]));
    if (tokens.size() < 2) continue;
    if (tokens.size() > context) {
      tokens.resize(context);
      ++result.cut;
    }
    NACRE_RETURN_IF_ERROR(AddText(model.get(), tokens, &result));
    ++result.texts;
    if (options.progress) {
      options.progress("texts", static_cast<double>(i + 1) /
                                    static_cast<double>(options.texts.size()));
    }
  }
  if (result.tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("none of ", options.texts.size(),
                     " texts has two tokens: there is nothing to predict"));
  }
  return result;
}

absl::StatusOr<std::vector<std::string>> ParseTexts(absl::string_view name,
                                                    absl::string_view content) {
  std::vector<std::string> texts;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(content, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    const absl::StatusOr<Json> json = ParseJsonObject(line);
    const char* const key =
        json.ok() && json->contains("text") ? "text" : "prompt";
    if (!json.ok() || !json->contains(key) || !(*json)[key].is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", number,
                       ": expected a JSON object with a string as `text` or "
                       "`prompt`"));
    }
    texts.push_back((*json)[key].get<std::string>());
  }
  if (texts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": holds no text"));
  }
  return texts;
}

}  // namespace nacre::tools
