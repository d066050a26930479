// The public API's request as plain fields, which any front end fills, and
// every check that a request must pass before a worker sees it. Knows no
// protocol.

#ifndef COORDINATOR_API_REQUEST_PARSER_H_
#define COORDINATOR_API_REQUEST_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/pipeline.h"
#include "speculation/policies/policy_spec.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

inline constexpr size_t kMaxRequestIdBytes = 256;
inline constexpr size_t kMaxNumericsIdBytes = 1024;

// As proto/inference.proto says of each field; the defaults are those of fields
// that a client leaves out. Views of what the front end has received. A value
// whose name or number the front end does not know is an error in its own
// words. ParseRequest returns that in the field's turn.
struct GenerateFields {
  struct Sampling {
    absl::optional<float> temperature;
    absl::optional<uint32_t> top_k;
    absl::optional<float> top_p;
    absl::optional<float> min_p;
    absl::optional<float> repetition_penalty;
    absl::optional<float> frequency_penalty;
    absl::optional<float> presence_penalty;
    std::vector<std::pair<uint32_t, float>> logit_bias;
    absl::optional<uint64_t> seed;
  };
  struct Stop {
    absl::optional<uint32_t> max_tokens;
    uint32_t min_tokens = 0;
    std::vector<absl::string_view> strings;
    absl::Span<const uint32_t> token_ids;
    bool ignore_eos = false;
    bool include_stop_string = false;
  };
  struct Speculation {
    absl::StatusOr<speculation::Method> method = speculation::Method::kAsync;
    absl::optional<uint32_t> window;
    absl::string_view policy;  // empty: the default one
    absl::Span<const uint32_t> oracle_token_ids;
    absl::string_view tree = {};  // empty: none is named
    absl::StatusOr<speculation::Verification> verification =
        speculation::Verification::kExact;
    bool suffixes = true;  // of async with exact
    absl::string_view ablation = {};
  };
  struct Output {
    bool stream = false;
    bool omit_streamed = false;
    bool trace_chunks = false;
    bool skip_special_tokens = true;
    bool trace = false;
    absl::optional<uint32_t> logprobs;
    absl::optional<uint32_t> prompt_logprobs;
    absl::StatusOr<bool> detailed_stats = false;
  };
  struct Resume {
    struct Choice {
      absl::Span<const uint32_t> token_ids;
      bool done = false;
    };
    std::vector<Choice> choices;
    absl::string_view model_fingerprint;
    absl::string_view numerics_id;
  };

  absl::string_view model;       // empty: whatever is served
  absl::string_view request_id;  // empty: a random one
  absl::string_view numerics_id;
  uint32_t num_choices = 1;
  // The prompt: text where both are set, an error where neither is.
  absl::optional<absl::string_view> text;
  absl::optional<absl::Span<const uint32_t>> token_ids;
  Sampling sampling;
  Stop stop;
  Speculation speculation_options;
  Output output;
  absl::optional<Resume> resume;  // absent: a new answer
};

// How many choices the request asks for: INVALID_ARGUMENT where not 1 to 16.
absl::StatusOr<int> NumChoices(const GenerateFields& fields);

// Errors as documented at Inference.Generate: INVALID_ARGUMENT, NOT_FOUND,
// UNIMPLEMENTED, FAILED_PRECONDITION (a resume only). `default_policy`: of
// requests that name none.
absl::StatusOr<RequestSpec> ParseRequest(
    const GenerateFields& fields, const tokenizer::Tokenizer& tokenizer,
    const WorkerInfo& model,
    const speculation::PolicySpec& default_policy = {});

// The request of one of its choices, with a seed of its own.
RequestSpec ChoiceOf(const RequestSpec& request, int choice);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_REQUEST_PARSER_H_
