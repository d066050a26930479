#include "coordinator/generate_call.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/request_convert.h"
#include "coordinator/response_convert.h"

namespace nacre::coordinator {

class GenerateCall::Sink final : public ResponseSink {
 public:
  Sink(std::shared_ptr<GenerateCall> call, int index)
      : call_(std::move(call)), index_(index) {}

  void OnChunk(const Chunk& chunk) override { call_->OnChunk(index_, chunk); }
  void OnComplete(const RequestSpec& request,
                  const Completion& completion) override {
    call_->OnComplete(index_, request, completion);
  }
  void OnError(const absl::Status& status) override {
    call_->OnError(index_, status);
  }
  int pending_chunks() const override { return call_->PendingChunks(index_); }
  int64_t taken_chunks() const override { return call_->TakenChunks(); }
  void Abandon() override { call_->Abandon(); }

 private:
  const std::shared_ptr<GenerateCall> call_;
  const int index_;
};

std::shared_ptr<GenerateCall> GenerateCall::Create(Environment environment,
                                                   std::string request_id) {
  std::shared_ptr<GenerateCall> call(
      new GenerateCall(std::move(environment), std::move(request_id)));
  call->self_ = call;
  return call;
}

void GenerateCall::Start(const RequestSpec& request) {
  request_id_ = request.request_id;
  {
    absl::MutexLock lock(&mu_);
    choices_.resize(request.num_choices);
  }
  int started = 0;
  while (started < request.num_choices && StartChoice(request, started)) {
    ++started;
  }
  // Who failed or cancelled while sessions started did not know of all.
  bool unwanted = false;
  {
    absl::MutexLock lock(&mu_);
    unwanted = failed_ || cancelled_;
  }
  if (unwanted) CancelSessions();
  // The sessions say better why, where there are some.
  if (started < request.num_choices) {
    Fail(absl::CancelledError("cancelled by the client"));
  }
  Release();
}

bool GenerateCall::StartChoice(const RequestSpec& request, int index) {
  {
    absl::MutexLock lock(&mu_);
    if (failed_ || cancelled_) return false;
    ++num_open_;
  }
  const absl::StatusOr<uint64_t> session_id = environment_.dispatcher->Start(
      ChoiceOf(request, index), std::make_shared<Sink>(self_, index));
  if (!session_id.ok()) {
    Fail(session_id.status());
    Release();
    return false;
  }
  absl::MutexLock lock(&mu_);
  choices_[index].session_id = *session_id;
  return true;
}

void GenerateCall::Refuse(const absl::Status& status) {
  Fail(status);
  Release();
}

void GenerateCall::OnChunk(int index, const Chunk& chunk) {
  // A step may commit tokens whose text is held back: the ids go out at once.
  v1::GenerateResponse response;
  *response.mutable_chunk() = ToProto(chunk);
  Push(index, std::move(response));
}

void GenerateCall::OnComplete(int index, const RequestSpec& request,
                              const Completion& completion) {
  v1::GenerateResponse response;
  *response.mutable_complete() = ToProto(request, completion);
  {
    absl::MutexLock lock(&mu_);
    choices_[index].ended = true;
    if (index == 0) first_finish_ = completion.finish;
    if (++num_completed_ == static_cast<int>(choices_.size())) {
      environment_.observer->OnAnswered(request_id_, absl::OkStatus(),
                                        first_finish_);
    }
  }
  Push(index, std::move(response));
  Release();
}

void GenerateCall::OnError(int index, const absl::Status& status) {
  bool has_others = false;
  {
    absl::MutexLock lock(&mu_);
    choices_[index].ended = true;
    has_others = choices_.size() > 1;
  }
  if (Fail(status) && has_others) {
    environment_.cancels->TrySubmit(
        /*bytes=*/0, [call = self_] { call->CancelSessions(); });
  }
  Release();
}

void GenerateCall::Push(int index, v1::GenerateResponse response) {
  response.set_request_id(request_id_);
  response.set_index(index);
  const v1::GenerateResponse* front = nullptr;
  {
    absl::MutexLock lock(&mu_);
    if (failed_) return;
    ++choices_[index].pending;
    queue_.push_back(std::move(response));
    if (writing_) return;
    writing_ = true;
    front = &queue_.front();
  }
  StartWrite(front);
}

bool GenerateCall::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (failed_) return false;
  failed_ = true;
  failed_by_itself_ = !cancelled_;
  status_ = rpc::ToGrpcStatus(status);
  environment_.observer->OnAnswered(request_id_, status, absl::nullopt);
  return true;
}

void GenerateCall::CancelSessions() {
  std::vector<uint64_t> session_ids;
  absl::string_view reason = "cancelled by the client";
  {
    absl::MutexLock lock(&mu_);
    if (failed_by_itself_) {
      reason = "cancelled: another choice of the request failed";
    }
    for (const Choice& choice : choices_) {
      if (choice.session_id != 0 && !choice.ended) {
        session_ids.push_back(choice.session_id);
      }
    }
  }
  for (uint64_t session_id : session_ids) {
    environment_.dispatcher->Cancel(session_id, reason);
  }
}

void GenerateCall::Release() {
  {
    absl::MutexLock lock(&mu_);
    if (--num_open_ > 0 || writing_) return;
  }
  Finish(status_);
}

// Of this choice only: each is paced as if it were alone.
int GenerateCall::PendingChunks(int index) const {
  absl::MutexLock lock(&mu_);
  return choices_[index].pending;
}

int64_t GenerateCall::TakenChunks() const {
  absl::MutexLock lock(&mu_);
  return num_taken_;
}

bool GenerateCall::cancelled() const {
  absl::MutexLock lock(&mu_);
  return cancelled_;
}

void GenerateCall::OnWriteDone(bool ok) {
  const v1::GenerateResponse* front = nullptr;
  bool finish = false;
  uint64_t drained_session = 0;
  {
    absl::MutexLock lock(&mu_);
    Choice& choice = choices_[queue_.front().index()];
    queue_.pop_front();
    --choice.pending;
    ++num_taken_;
    if (!ok) {
      // The client is gone: its cancel ends the sessions.
      queue_.clear();
      for (Choice& each : choices_) each.pending = 0;
    }
    if (choice.pending == 0 && !choice.ended) {
      drained_session = choice.session_id;
    }
    if (queue_.empty()) {
      writing_ = false;
      finish = num_open_ == 0;
    } else {
      front = &queue_.front();
    }
  }
  // gRPC is not done with this call before this reaction has returned.
  if (front != nullptr) StartWrite(front);
  if (finish) Finish(status_);
  if (drained_session != 0) {
    environment_.dispatcher->OnSinkDrained(drained_session);
  }
}

void GenerateCall::OnCancel() {
  {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
  }
  CancelSessions();
}

void GenerateCall::OnDone() {
  std::shared_ptr<GenerateCall> last = std::move(self_);
  environment_.on_done();
}

}  // namespace nacre::coordinator
