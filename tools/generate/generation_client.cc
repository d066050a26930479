#include "tools/generate/generation_client.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
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

void GenerationClient::AllowCalls() {
  absl::MutexLock lock(&mu_);
  cancelled_ = false;
}

absl::StatusOr<std::vector<v1::Complete>> GenerationClient::GenerateChoices(
    const v1::GenerateRequest& request, absl::Duration timeout,
    const std::function<void(uint32_t, const v1::Chunk&)>& on_chunk) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  security_.Apply(&context);
  if (!Register(&context)) return absl::CancelledError("cancelled");
  auto reader = stub_->Generate(&context, request);
  std::map<uint32_t, v1::Complete> completes;  // by choice
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.has_chunk()) on_chunk(response.index(), response.chunk());
    if (response.has_complete()) {
      completes[response.index()] = std::move(*response.mutable_complete());
    }
  }
  const absl::Status status =
      security_.Explain(rpc::FromGrpcStatus(reader->Finish()));
  Unregister(&context);
  NACRE_RETURN_IF_ERROR(status);
  const uint32_t n = request.has_n() ? request.n() : 1;
  std::vector<v1::Complete> choices;
  for (auto& [index, complete] : completes) {
    if (index != choices.size()) break;
    choices.push_back(std::move(complete));
  }
  if (choices.size() != n) {
    return absl::InternalError(absl::StrCat("the server's answer completes ",
                                            choices.size(), " of ", n,
                                            " choices"));
  }
  return choices;
}

absl::StatusOr<v1::Complete> GenerationClient::Generate(
    const v1::GenerateRequest& request, absl::Duration timeout,
    const std::function<void(const v1::Chunk&)>& on_chunk) {
  NACRE_ASSIGN_OR_RETURN(
      std::vector<v1::Complete> choices,
      GenerateChoices(request, timeout, [&](uint32_t, const v1::Chunk& chunk) {
        on_chunk(chunk);
      }));
  return std::move(choices.front());
}

template <typename Method>
absl::Status GenerationClient::Call(absl::Duration timeout,
                                    const Method& method) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  security_.Apply(&context);
  if (!Register(&context)) return absl::CancelledError("cancelled");
  const absl::Status status =
      security_.Explain(rpc::FromGrpcStatus(method(&context)));
  Unregister(&context);
  return status;
}

absl::StatusOr<v1::Model> GenerationClient::GetModel(absl::Duration timeout) {
  v1::Model model;
  NACRE_RETURN_IF_ERROR(Call(timeout, [&](grpc::ClientContext* context) {
    return stub_->GetModel(context, {}, &model);
  }));
  return model;
}

absl::StatusOr<v1::TokenIds> GenerationClient::Tokenize(
    const std::string& text, absl::Duration timeout) {
  v1::TokenizeRequest request;
  request.set_text(text);
  request.set_no_special_tokens(true);
  v1::TokenizeResponse response;
  NACRE_RETURN_IF_ERROR(Call(timeout, [&](grpc::ClientContext* context) {
    return stub_->Tokenize(context, request, &response);
  }));
  v1::TokenIds ids;
  ids.mutable_ids()->Swap(response.mutable_token_ids());
  return ids;
}

}  // namespace nacre::tools
