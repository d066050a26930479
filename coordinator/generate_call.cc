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

std::shared_ptr<GenerateCall> GenerateCall::Create(
    const Environment& environment) {
  return std::shared_ptr<GenerateCall>(new GenerateCall(environment));
}

void GenerateCall::SetRequestId(std::string request_id) {
  absl::MutexLock lock(&mu_);
  request_id_ = std::move(request_id);
}

void GenerateCall::Start(const RequestSpec& request) {
  if (!Begin()) return;
  SetTimer(kNever, [] {});  // the dispatcher keeps its time
  SetRequestId(request.request_id);
  {
    absl::MutexLock lock(&mu_);
    choices_.resize(request.num_choices);
  }
  int started = 0;
  while (started < request.num_choices && StartChoice(request, started)) {
    ++started;
  }
  // Who failed or cancelled while sessions started did not know of all.
  bool unwanted = cancelled();
  {
    absl::MutexLock lock(&mu_);
    unwanted = unwanted || failed_;
  }
  if (unwanted) CancelSessions();
  // The sessions say better why, where there are some.
  if (started < request.num_choices) {
    Fail(absl::CancelledError("cancelled by the client"));
  }
  Release();
}

bool GenerateCall::StartChoice(const RequestSpec& request, int index) {
  if (cancelled()) return false;
  {
    absl::MutexLock lock(&mu_);
    if (failed_) return false;
    ++num_open_;
  }
  const absl::StatusOr<uint64_t> session_id = environment_.dispatcher->Start(
      ChoiceOf(request, index), std::make_shared<Sink>(self(), index));
  if (!session_id.ok()) {
    Fail(session_id.status());
    Release();
    return false;
  }
  bool is_drained = false;
  {
    absl::MutexLock lock(&mu_);
    choices_[index].session_id = *session_id;
    is_drained = choices_[index].pending == 0;
  }
  // Chunks may have been taken before the session's number was known.
  if (is_drained) environment_.dispatcher->OnSinkDrained(*session_id);
  return true;
}

void GenerateCall::OnRefused(const absl::Status& status) {
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
        /*bytes=*/0, [call = self()] { call->CancelSessions(); });
  }
  Release();
}

void GenerateCall::Push(int index, v1::GenerateResponse response) {
  response.set_index(index);
  const v1::GenerateResponse* front = nullptr;
  {
    absl::MutexLock lock(&mu_);
    if (failed_) return;
    response.set_request_id(request_id_);
    ++choices_[index].pending;
    queue_.push_back(std::move(response));
    if (writing_) return;
    writing_ = true;
    front = &queue_.front();
  }
  StartWrite(front);
}

bool GenerateCall::Fail(const absl::Status& status) {
  const bool by_itself = !cancelled();
  absl::MutexLock lock(&mu_);
  if (failed_) return false;
  failed_ = true;
  failed_by_itself_ = by_itself;
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
  bool written = false;
  int64_t taken = 0;
  {
    absl::MutexLock lock(&mu_);
    if (--num_open_ > 0) return;
    written = !writing_;
    taken = num_taken_;
  }
  if (written) {
    Finish(status_);
  } else {
    AwaitReader(taken);
  }
}

void GenerateCall::AwaitReader(int64_t taken) {
  const int64_t timeout_ns = reception().client_timeout_ns;
  SetTimer(AddNs(reception().now_ns(), timeout_ns), [this, taken] {
    int64_t taken_now = 0;
    {
      absl::MutexLock lock(&mu_);
      if (!writing_) return;
      taken_now = num_taken_;
    }
    if (taken_now > taken) {
      AwaitReader(taken_now);
    } else {
      Abandon();
    }
  });
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

void GenerateCall::OnCancelled() { CancelSessions(); }

}  // namespace nacre::coordinator
