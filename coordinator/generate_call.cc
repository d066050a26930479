#include "coordinator/generate_call.h"

#include <utility>

#include "common/rpc/grpc_status.h"
#include "coordinator/response_convert.h"

namespace nacre::coordinator {

std::shared_ptr<GenerateCall> GenerateCall::Create(
    grpc::CallbackServerContext* context, Dispatcher* dispatcher,
    Observer* observer, std::function<void()> on_done) {
  std::shared_ptr<GenerateCall> call(
      new GenerateCall(context, dispatcher, observer, std::move(on_done)));
  call->self_ = call;
  return call;
}

void GenerateCall::SetSession(uint64_t session_id) {
  bool cancelled = false;
  {
    absl::MutexLock lock(&mu_);
    session_id_ = session_id;
    cancelled = cancelled_;
  }
  if (cancelled) dispatcher_->Cancel(session_id);
}

void GenerateCall::Push(v1::GenerateResponse response, bool last) {
  const v1::GenerateResponse* front = nullptr;
  {
    absl::MutexLock lock(&mu_);
    if (finishing_) return;
    finishing_ = last;
    queue_.push_back(std::move(response));
    if (writing_) return;
    writing_ = true;
    front = &queue_.front();
  }
  StartWrite(front);
}

void GenerateCall::OnChunk(const Chunk& chunk) {
  // A step may commit tokens whose text is held back: the ids go out at once.
  v1::GenerateResponse response;
  response.set_request_id(request_id_);
  *response.mutable_chunk() = ToProto(chunk);
  Push(std::move(response), /*last=*/false);
}

void GenerateCall::OnComplete(const RequestSpec& request,
                              const Completion& completion) {
  v1::GenerateResponse response;
  response.set_request_id(request.request_id);
  *response.mutable_complete() = ToProto(request, completion);
  observer_->OnAnswered(request_id_, absl::OkStatus(), completion.finish);
  Push(std::move(response), /*last=*/true);
}

void GenerateCall::OnError(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (finishing_) return;
    finishing_ = true;
    status_ = rpc::ToGrpcStatus(status);
    observer_->OnAnswered(request_id_, status, absl::nullopt);
    if (writing_) return;
  }
  Finish(status_);
}

int GenerateCall::pending_chunks() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int>(queue_.size());
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
    queue_.pop_front();
    if (!ok) queue_.clear();
    if (queue_.empty()) {
      writing_ = false;
      finish = finishing_;
      if (!finish) drained_session = session_id_;
    } else {
      front = &queue_.front();
    }
  }
  if (front != nullptr) StartWrite(front);
  if (finish) Finish(status_);
  if (drained_session != 0) dispatcher_->OnSinkDrained(drained_session);
}

void GenerateCall::OnCancel() {
  uint64_t session_id = 0;
  {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
    session_id = session_id_;
  }
  if (session_id != 0) dispatcher_->Cancel(session_id);
}

void GenerateCall::OnDone() {
  std::shared_ptr<GenerateCall> last = std::move(self_);
  on_done_();
}

}  // namespace nacre::coordinator
