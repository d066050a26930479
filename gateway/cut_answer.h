// What has come of one Generate: enough to go on with it where its coordinator
// has gone.
//
// One thread at a time.

#ifndef GATEWAY_CUT_ANSWER_H_
#define GATEWAY_CUT_ANSWER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/inference.pb.h"

namespace nacre::gateway {

// Whether the tokens of its answer do not depend on what is drafted: not by the
// ratio test above temperature 0, nor with the oracle.
bool IsRepeatable(const v1::GenerateRequest& request);

// Whether it says that no target has the size or the numerics_id. A coordinator
// that has just started says so, too, before it has heard of all its targets.
bool MayMissTargets(const absl::Status& status);

class CutAnswer {
 public:
  // `request`: the call's, with token ids as its prompt. It may resume an
  // answer. It outlives this.
  explicit CutAnswer(const v1::GenerateRequest* request);

  // Whether the response is what comes next: a choice's tokens begin where
  // those before ended, its Complete counts those that came, and nothing
  // follows that.
  bool Follows(const v1::GenerateResponse& response) const;
  // Notes a response that follows, in the order in which they come.
  void Note(const v1::GenerateResponse& response);

  // Whether anything came.
  bool has_begun() const { return has_begun_; }
  // Whether every choice has its Complete.
  bool is_whole() const;

  // Whether it has a rest that goes on as it would have. It has none where the
  // request is not repeatable, or the coordinator did not say what a resume
  // needs.
  bool can_go_on() const;
  // The request that goes on after what came (Resume of inference.proto), the
  // whole one where nothing came, with a request_id that no attempt before had.
  // Requires can_go_on(), or that nothing came.
  v1::GenerateRequest Rest();

 private:
  struct Choice {
    std::vector<uint32_t> token_ids;
    bool done = false;
  };

  const v1::GenerateRequest* const request_;
  std::optional<v1::Start> start_;  // without the prompt, which request_ has
  const bool has_choices_;          // not more than are kept
  std::vector<Choice> choices_;
  bool has_begun_ = false;
  int rests_ = 0;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_CUT_ANSWER_H_
