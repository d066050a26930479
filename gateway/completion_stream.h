// One request for completions on its way: its calls of the service, one for
// each prompt. Also its answer over HTTP, whole or as a stream.
//
// On the thread of the event loop. Lives as long as a call or the reply refers
// to it. A reader that is slow stops the reading of its calls, and with it
// their targets (gRPC's flow control); a client that goes cancels them.

#ifndef GATEWAY_COMPLETION_STREAM_H_
#define GATEWAY_COMPLETION_STREAM_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gateway/answer_convert.h"
#include "gateway/event_loop.h"
#include "gateway/http_message.h"
#include "gateway/inference_client.h"
#include "gateway/request_convert.h"

namespace nacre::gateway {

class CompletionStream : public std::enable_shared_from_this<CompletionStream> {
 public:
  // A prompt as the service takes it.
  struct PromptIds {
    std::vector<uint32_t> ids;
    uint32_t max_tokens = 1;
  };
  struct Order {
    ApiRequest request;
    std::vector<PromptIds> prompts;
    AnswerHead head;
    CallHeaders headers;
    HttpHeaders reply_headers;  // beside those of the answer's kind
  };

  // `ping_period`: of silence, after which a stream gets a comment.
  CompletionStream(EventLoop* loop, InferenceClient* client,
                   const tokenizer::Tokenizer* tokenizer,
                   absl::Duration ping_period, Order order,
                   std::shared_ptr<HttpReply> reply);

  void Start();

 private:
  v1::GenerateRequest RequestOf(size_t prompt) const;
  // Of a resumed answer: the choice had its end before.
  bool IsDone(size_t choice) const;
  void OnResponse(size_t prompt, v1::GenerateResponse response);
  void OnDone(size_t prompt, const absl::Status& status);
  void FetchMore(size_t prompt);
  void OnRoom();
  void BeginStream();
  void BeginAnswer();
  void WriteEvent(const std::string& json);
  void WatchSilence();
  void Finish();
  void SendWhole();
  void Fail(const ApiError& error);
  void LetGo();

  EventLoop* const loop_;
  InferenceClient* const client_;
  const absl::Duration ping_period_;
  Order order_;
  AnswerFormat format_;
  std::shared_ptr<HttpReply> reply_;
  std::vector<std::shared_ptr<GenerationCall>> calls_;
  std::vector<size_t> waiting_;  // prompts whose calls wait for room
  std::vector<Choices> completes_;
  size_t running_ = 0;    // calls
  size_t completed_ = 0;  // choices
  bool begun_ = false;    // the head of the stream is written
  bool said_first_ = false;
  bool finished_ = false;
  absl::Time last_write_;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_COMPLETION_STREAM_H_
