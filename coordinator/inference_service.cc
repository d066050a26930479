#include "coordinator/inference_service.h"

#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "coordinator/request_convert.h"

namespace nacre::coordinator {
namespace {

absl::Status NoTarget() {
  return absl::UnavailableError("no target worker is ready");
}

absl::Status Busy() {
  return absl::ResourceExhaustedError(
      "too many prompts wait to be tokenized: try again later");
}

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context,
                                 const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpcStatus(status));
  return reactor;
}

// The call's deadline, `now_ns` being now.
int64_t DeadlineNs(const grpc::CallbackServerContext& context, int64_t now_ns) {
  // An infinite one is so far away that its nanoseconds overflow.
  constexpr auto kFar = std::chrono::hours(24 * 365);
  const auto left = context.deadline() - std::chrono::system_clock::now();
  if (left > kFar) return kNever;
  return now_ns +
         std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
}

// At most one, of a sane length; "" otherwise.
std::string MetadataValue(const grpc::CallbackServerContext& context,
                          const std::string& key) {
  constexpr size_t kMaxBytes = 512;
  const auto& metadata = context.client_metadata();
  const auto [first, last] = metadata.equal_range(key);
  if (first == last || std::next(first) != last ||
      first->second.size() > kMaxBytes) {
    return "";
  }
  return std::string(first->second.data(), first->second.size());
}

struct TraceHeaders {
  std::string traceparent;
  std::string tracestate;
};

}  // namespace

absl::StatusOr<RequestSpec> InferenceService::Parse(
    const v1::GenerateRequest& request, const GenerateCall& call) const {
  if (call.cancelled()) return absl::CancelledError("cancelled by the client");
  const absl::optional<WorkerInfo> model = dispatcher_->model();
  if (!model.has_value()) return NoTarget();
  return ParseRequest(request, *tokenizer_, *model, default_policy_);
}

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  const int64_t arrival_ns = dispatcher_->now_ns();
  const int64_t deadline_ns = DeadlineNs(*context, arrival_ns);
  TraceHeaders trace{MetadataValue(*context, "traceparent"),
                     MetadataValue(*context, "tracestate")};
  const absl::StatusOr<std::string> client =
      authenticator_->AuthenticateClient(*context);
  const absl::StatusOr<int> choices = NumChoices(*request);
  absl::Status status = client.ok() ? choices.status() : client.status();
  if (status.ok()) status = streams_.Acquire(*client, *choices);
  const auto on_done = [this, client, choices, has_streams = status.ok()] {
    if (has_streams) streams_.Release(*client, *choices);
  };
  std::shared_ptr<GenerateCall> call = GenerateCall::Create(
      {context, dispatcher_, observer_, &cancels_, on_done},
      request->request_id());
  if (!status.ok()) {
    call->Refuse(status);
    return call.get();
  }
  // The request lives until the call is done, which none is before its task has
  // run. Tokenizing here would hold up all other calls, health checks included.
  const bool submitted = parsing_.TrySubmit(
      static_cast<int64_t>(request->ByteSizeLong()),
      [this, call, request, trace = std::move(trace), arrival_ns, deadline_ns] {
        absl::StatusOr<RequestSpec> spec = Parse(*request, *call);
        if (!spec.ok()) {
          call->Refuse(spec.status());
          return;
        }
        spec->arrival_ns = arrival_ns;
        spec->deadline_ns = deadline_ns;
        spec->traceparent = trace.traceparent;
        spec->tracestate = trace.tracestate;
        call->Start(*spec);
      });
  if (!submitted) call->Refuse(Busy());
  return call.get();
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(
    grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
    v1::TokenizeResponse* response) {
  const auto client = authenticator_->AuthenticateClient(*context);
  if (!client.ok()) return Refuse(context, client.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool submitted = parsing_.TrySubmit(
      static_cast<int64_t>(request->ByteSizeLong()),
      [this, reactor, request, response] {
        tokenizer::EncodeOptions options;
        options.add_special_tokens = !request->no_special_tokens();
        const absl::StatusOr<std::vector<int32_t>> ids =
            tokenizer_->Encode(request->text(), options);
        if (ids.ok()) {
          for (int32_t id : *ids) response->add_token_ids(id);
        }
        reactor->Finish(rpc::ToGrpcStatus(ids.status()));
      });
  if (!submitted) reactor->Finish(rpc::ToGrpcStatus(Busy()));
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::GetModel(
    grpc::CallbackServerContext* context, const v1::GetModelRequest*,
    v1::Model* response) {
  const auto client = authenticator_->AuthenticateClient(*context);
  if (!client.ok()) return Refuse(context, client.status());
  const absl::optional<WorkerInfo> model = dispatcher_->model();
  if (!model.has_value()) return Refuse(context, NoTarget());
  response->set_name(model->model_name);
  response->set_vocab_size(model->model_vocab_size);
  response->set_context_length(model->context_length);
  response->set_fingerprint(model->fingerprint);
  response->set_numerics_id(model->numerics_id);
  for (int32_t id : model->eos_token_ids) response->add_eos_token_ids(id);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace nacre::coordinator
