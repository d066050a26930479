#include "coordinator/dispatch/openings.h"

namespace nacre::coordinator {
namespace {

std::vector<int32_t> Join(const std::vector<int32_t>& prompt,
                          const std::vector<int32_t>& generated) {
  std::vector<int32_t> ids;
  ids.reserve(prompt.size() + generated.size());
  ids.insert(ids.end(), prompt.begin(), prompt.end());
  ids.insert(ids.end(), generated.begin(), generated.end());
  return ids;
}

}  // namespace

std::vector<int32_t> TargetOpening::token_ids() const {
  return Join(request->prompt_ids, generated);
}

wire::OpenTarget TargetOpening::Message() const {
  wire::OpenTarget open;
  open.session_id = session_id;
  open.request_id = request->request_id;
  open.token_ids = token_ids();
  open.prompt_length = static_cast<int>(request->prompt_ids.size());
  open.max_tokens = request->max_tokens;
  open.sampling = request->sampling;
  open.stop_token_ids = request->stop_token_ids;
  open.ignore_eos = request->ignore_eos;
  open.min_tokens = request->min_tokens;
  if (request->logprobs.has_value()) open.logprobs = *request->logprobs;
  if (request->prompt_logprobs.has_value()) {
    open.prompt_logprobs = *request->prompt_logprobs;
    open.first_prompt_logprob = 1 + prompt_logprobs;
  }
  open.plan = plan;
  open.epoch = epoch;
  open.has_draft = has_draft;
  open.verification = request->verification;
  open.hidden_channel = channels.hidden;
  open.kv_channel = channels.kv;
  open.num_slots = num_slots;
  open.suffixes = request->suffixes;
  return open;
}

std::vector<int32_t> DraftOpening::token_ids() const {
  return Join(request->prompt_ids, generated);
}

wire::OpenDraft DraftOpening::Message() const {
  wire::OpenDraft open;
  open.session_id = session_id;
  open.request_id = request->request_id;
  open.epoch = epoch;
  open.token_ids = token_ids();
  open.prompt_length = static_cast<int>(request->prompt_ids.size());
  open.max_length = open.prompt_length + request->max_tokens - 1;
  if (kv_length > 0 && kv_length < open.max_length) {
    open.max_length = static_cast<int>(kv_length);
  }
  open.sampling = request->sampling;
  open.end_token_ids = end_ids;
  open.min_tokens = request->min_tokens;
  open.vocab_limit = vocab_limit;
  open.num_slots = num_slots;
  open.plan = plan;
  if (request->policy.has_own_rule()) open.policy = request->policy.text();
  open.oracle_token_ids = request->oracle_ids;
  open.target_fingerprint = request->fingerprint;
  open.verification = request->verification;
  open.hidden_address = hidden_address;
  open.hidden_channel = channels.hidden;
  open.kv_channel = channels.kv;
  open.tells_candidates = request->trace;
  return open;
}

}  // namespace nacre::coordinator
