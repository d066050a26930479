#include "coordinator/api/generate_call.h"

#include <string>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "coordinator/api/response_convert.h"

namespace nacre::coordinator {

std::shared_ptr<GenerateCall> GenerateCall::Create(
    grpc::CallbackServerContext* context,
    const CallAnswer::Environment& environment) {
  std::shared_ptr<GenerateCall> call(new GenerateCall(context));
  call->answer_ = CallAnswer::Create(environment, call);
  return call;
}

void GenerateCall::Start(const RequestSpec& request) {
  if (!Begin()) return;
  SetTimer(kNever, [] {});  // the dispatcher keeps its time
  {
    absl::MutexLock lock(&mu_);
    start_ = StartOf(request);
  }
  answer_->Start(request);
}

void GenerateCall::Write(const AnswerPart& part) {
  v1::GenerateResponse response;
  response.set_index(part.choice);
  response.set_request_id(std::string(part.request_id));
  if (part.chunk != nullptr) {
    *response.mutable_chunk() = ToProto(*part.chunk);
  } else {
    *response.mutable_complete() = ToProto(*part.request, *part.completion);
  }
  const v1::GenerateResponse* front = nullptr;
  {
    absl::MutexLock lock(&mu_);
    if (start_.has_value()) {
      // What comes first, of any choice, names them.
      start_->set_numerics_id(part.chunk != nullptr
                                  ? part.chunk->numerics_id
                                  : part.completion->numerics_id);
      *response.mutable_start() = *std::exchange(start_, absl::nullopt);
    }
    queue_.push_back(std::move(response));
    if (queue_.size() > 1) return;
    front = &queue_.front();
  }
  StartWrite(front);
}

void GenerateCall::Finish(const absl::Status& status) {
  ClientCall::Finish(rpc::ToGrpcStatus(status));
}

void GenerateCall::OnWriteDone(bool ok) {
  std::deque<v1::GenerateResponse> taken;
  const v1::GenerateResponse* front = nullptr;
  {
    absl::MutexLock lock(&mu_);
    if (ok) {
      taken.push_back(std::move(queue_.front()));
      queue_.pop_front();
    } else {
      // The client is gone: its cancel ends the sessions.
      taken.swap(queue_);
    }
    if (!queue_.empty()) front = &queue_.front();
  }
  // gRPC is not done with this call before this reaction has returned.
  if (front != nullptr) StartWrite(front);
  const std::shared_ptr<CallAnswer> answer = answer_;
  for (const v1::GenerateResponse& response : taken) {
    answer->OnTaken(static_cast<int>(response.index()));
  }
}

}  // namespace nacre::coordinator
