#include "tools/generation_client.h"

#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/status_macros.h"

namespace nacre::tools {

GenerationClient::GenerationClient(const std::string& address,
                                   ClientSecurity security)
    : security_(std::move(security)),
      stub_(v1::Inference::NewStub(
          rpc::CreateChannel(address, security_.channel))) {}

bool GenerationClient::Register(grpc::ClientContext* context) {
  absl::MutexLock lock(&mu_);
  if (cancelled_) return false;
  running_.insert(context);
  return true;
}

void GenerationClient::Unregister(grpc::ClientContext* context) {
  absl::MutexLock lock(&mu_);
  running_.erase(context);
}

void GenerationClient::CancelAll() {
  absl::MutexLock lock(&mu_);
  cancelled_ = true;
  for (grpc::ClientContext* context : running_) context->TryCancel();
}

absl::StatusOr<v1::Complete> GenerationClient::Generate(
    const v1::GenerateRequest& request, absl::Duration timeout,
    const std::function<void(const v1::Chunk&)>& on_chunk) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  security_.Apply(&context);
  if (!Register(&context)) return absl::CancelledError("cancelled");
  auto reader = stub_->Generate(&context, request);
  std::optional<v1::Complete> complete;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.has_chunk()) on_chunk(response.chunk());
    if (response.has_complete()) {
      complete = std::move(*response.mutable_complete());
    }
  }
  const absl::Status status = rpc::FromGrpcStatus(reader->Finish());
  Unregister(&context);
  NACRE_RETURN_IF_ERROR(status);
  if (!complete.has_value()) {
    return absl::InternalError("the server's answer has no Complete");
  }
  return *std::move(complete);
}

absl::StatusOr<v1::Model> GenerationClient::GetModel(absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  security_.Apply(&context);
  if (!Register(&context)) return absl::CancelledError("cancelled");
  v1::Model model;
  const absl::Status status =
      rpc::FromGrpcStatus(stub_->GetModel(&context, {}, &model));
  Unregister(&context);
  NACRE_RETURN_IF_ERROR(status);
  return model;
}

}  // namespace nacre::tools
