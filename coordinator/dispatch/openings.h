// Sessions that workers are to open. Their messages are built when they are
// sent, since prompts are long.

#ifndef COORDINATOR_DISPATCH_OPENINGS_H_
#define COORDINATOR_DISPATCH_OPENINGS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/dispatch/request.h"
#include "speculation/pipeline.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"

namespace nacre::coordinator {

struct TargetOpening {
  wire::OpenTarget Message() const;
  // Prompt and what was committed after it.
  std::vector<int32_t> token_ids() const;

  uint64_t session_id = 0;
  std::shared_ptr<const RequestSpec> request;
  std::vector<int32_t> generated;
  speculation::TargetPlan plan;
  uint32_t epoch = 0;
  bool has_draft = false;
  TensorChannels channels = {};
  int num_slots = 0;  // for rows of a tree
  // How many log-probabilities of the prompt are there already.
  int prompt_logprobs = 0;
};

struct DraftOpening {
  wire::OpenDraft Message() const;
  std::vector<int32_t> token_ids() const;

  uint64_t session_id = 0;
  std::shared_ptr<const RequestSpec> request;
  std::vector<int32_t> generated;
  std::vector<int32_t> end_ids;
  int vocab_limit = 0;
  speculation::DraftPlan plan;
  int num_slots = 0;      // for branches
  int64_t kv_length = 0;  // it drafts up to there; 0: the whole text
  uint32_t epoch = 0;
  // Where it reads its target's tensors, and as what.
  std::string hidden_address = {};
  TensorChannels channels = {};
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_OPENINGS_H_
