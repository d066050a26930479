// What has come of an answer, and the request that goes on with it where its
// call is cut off: Resume in proto/inference.proto.
//
// Pure: no I/O, no clock, no threads.

#ifndef GATEWAY_CUT_STREAM_H_
#define GATEWAY_CUT_STREAM_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "proto/inference.pb.h"

namespace nacre::gateway {

class CutAnswer {
 public:
  explicit CutAnswer(v1::GenerateRequest request);

  const v1::GenerateRequest& request() const { return request_; }

  // Notes what a response says. INTERNAL: it does not follow on what came
  // before. Of a call that resumed it must not be shown then; there is no
  // resume after it.
  absl::Status Add(const v1::GenerateResponse& response);
  // Tokens and ends of choices that have come.
  uint64_t progress() const { return progress_; }
  bool is_complete() const { return num_done_ == choices_.size(); }

  // Whether a coordinator can go on with it token for token, and the request
  // for that.
  bool CanResume() const;
  v1::GenerateRequest Resume() const;

 private:
  struct Choice {
    std::vector<uint32_t> token_ids;
    bool done = false;
  };

  absl::Status Check(const v1::GenerateResponse& response) const;

  const v1::GenerateRequest request_;
  absl::optional<v1::Start> start_;
  std::vector<Choice> choices_;
  size_t num_done_ = 0;
  uint64_t progress_ = 0;
  bool follows_ = true;  // each response on those before
};

}  // namespace nacre::gateway

#endif  // GATEWAY_CUT_STREAM_H_
