// From what nacre.v1.Inference answers to the JSON of OpenAI's API, whole or
// piece by piece.
//
// One thread at a time; borrows request and tokenizer.

#ifndef GATEWAY_ANSWER_CONVERT_H_
#define GATEWAY_ANSWER_CONVERT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/json_body.h"
#include "gateway/request_convert.h"
#include "gateway/usage_convert.h"
#include "proto/inference.pb.h"
#include "tokenizer/tokenizer.h"

namespace nacre::gateway {

// What stands in each body and each piece of one answer.
struct AnswerHead {
  std::string id;           // "chatcmpl-..." or "cmpl-..."
  std::string model;        // as clients know it
  std::string fingerprint;  // of the model's files
  int64_t created = 0;      // seconds since 1970
};

// Choices are numbered prompt * n + the service's index. Each piece is the JSON
// of one event.
class AnswerFormat {
 public:
  // `prompt_ids`: of each prompt, which echo and return_token_ids show.
  AnswerFormat(const ApiRequest* request, const tokenizer::Tokenizer* tokenizer,
               AnswerHead head, std::vector<std::vector<uint32_t>> prompt_ids);

  // The whole answer: for each prompt its choices, in order.
  std::string Whole(const std::vector<Choices>& prompts);

  // What decides the bits of the logits: part of the system_fingerprint from
  // then on.
  void SetNumericsId(const std::string& numerics_id);
  // What a resume needs: the next event says it, where that was asked for.
  void SetStart(const v1::Start& start);

  // The first event of a choice: a chat's role, the prompt that a completion
  // echoes; "" where there is nothing to say. A resumed one echoes nothing.
  std::string First(size_t choice);
  // "" where the chunk says nothing that was asked for.
  std::string Piece(size_t choice, const v1::Chunk& chunk);
  std::string Last(size_t choice, const v1::Complete& complete);
  // The event without choices that include_usage asks for.
  std::string Usage(const std::vector<Choices>& prompts) const;

 private:
  // Of one choice of a stream.
  struct State {
    int64_t completion_tokens = 0;
    int64_t text_offset = 0;  // in characters
    bool echoed = false;      // its prompt, with log-probabilities
    uint32_t last_token = 0;  // that came in a chunk
  };

  OrderedJson HeadJson(const char* object) const;
  // Of events: what stands before their choices. It is the same until the
  // fingerprint changes.
  const std::string& HeadText();
  // `choice`: its JSON.
  std::string Event(absl::string_view choice);
  // Of a resumed answer what has come before.
  void Restore();
  OrderedJson RunningUsage() const;
  std::string EchoText(size_t choice) const;
  OrderedJson ChatLogprobs(
      const google::protobuf::RepeatedPtrField<v1::TokenLogprobs>& tokens)
      const;
  // Lists of a completion. AddLegacy appends those of tokens to them, each with
  // at most `most` of the likeliest.
  struct Legacy;
  void AddLegacy(
      const google::protobuf::RepeatedPtrField<v1::TokenLogprobs>& tokens,
      int most, State* state, Legacy* to) const;
  // `answer`: a v1::Chunk or a v1::Complete. With the prompt's where they are
  // echoed and were not yet.
  template <typename Answer>
  OrderedJson LogprobsOf(size_t choice, const Answer& answer);
  // vLLM's; null where it was not asked for.
  OrderedJson PromptLogprobs(size_t prompt, const v1::Complete& complete) const;
  std::string TokenName(uint32_t id) const;
  OrderedJson ChatToken(uint32_t id, float logprob) const;

  const ApiRequest* const request_;
  const tokenizer::Tokenizer* const tokenizer_;
  AnswerHead head_;
  std::string system_fingerprint_;
  std::string head_text_;  // empty: to be made
  OrderedJson start_;      // to be said
  bool has_start_ = false;
  const std::vector<std::vector<uint32_t>> prompt_ids_;
  std::vector<State> states_;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_ANSWER_CONVERT_H_
