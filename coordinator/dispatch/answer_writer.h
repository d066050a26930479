// How the answer to a call reaches its client: the seam between what a call
// says (call_answer.h) and the protocol that carries it. Knows no protocol.

#ifndef COORDINATOR_DISPATCH_ANSWER_WRITER_H_
#define COORDINATOR_DISPATCH_ANSWER_WRITER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/dispatch/request.h"

namespace nacre::coordinator {

// A chunk or the completion of one choice. Valid while Write runs.
struct AnswerPart {
  int choice = 0;
  absl::string_view request_id;
  const Chunk* chunk = nullptr;  // null: the choice is complete
  // Of a completion:
  const RequestSpec* request = nullptr;
  const Completion* completion = nullptr;
};

// The client's end of one call. Thread-safe. No method blocks or calls the
// CallAnswer back before it returns.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // Sends the part after all parts before it. CallAnswer::OnTaken follows once
  // the transport has taken it, or has dropped it because the client is gone.
  virtual void Write(const AnswerPart& part) = 0;
  // Ends the call. Last, once, and not before every part was taken.
  virtual void Finish(const absl::Status& status) = 0;
  // The client takes nothing: its connection is cut. Every part written so far
  // is then dropped, and the client counts as one that has cancelled.
  virtual void Abandon() = 0;
  // Calls `on_time` at `at_ns`, in place of the last one that was set, unless
  // the call is over by then.
  virtual void SetTimer(int64_t at_ns, std::function<void()> on_time) = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_ANSWER_WRITER_H_
