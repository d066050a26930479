#include "coordinator/api/inference_service.h"

#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/message_bytes.h"
#include "common/status_macros.h"
#include "coordinator/api/grpc_peer.h"
#include "coordinator/api/request_convert.h"
#include "coordinator/api/text_ids.h"

namespace nacre::coordinator {
namespace {

// Strings, messages and unknown fields of a request: a logit_bias of 1024
// entries, 16 stop strings, and what else a client may write apart.
constexpr int kMaxFields = 4096;
// GetModel's request has no field.
constexpr size_t kMaxModelRequestBytes = 4096;

absl::Status NoTarget() {
  return absl::UnavailableError("no target worker is ready");
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

InferenceService::InferenceService(Dispatcher* dispatcher,
                                   const tokenizer::Tokenizer* tokenizer,
                                   Observer* observer, InferenceLimits limits,
                                   const Authenticator* authenticator)
    : dispatcher_(dispatcher),
      tokenizer_(tokenizer),
      observer_(observer != nullptr ? observer : &unobserved_),
      authenticator_(authenticator != nullptr ? authenticator : &open_),
      limits_(std::move(limits)),
      streams_(limits_.max_streams_per_client),
      timers_(limits_.wake_at),
      receptions_(ReceivingOptions()),
      answers_(limits_.max_answer_bytes),
      parsing_(limits_.parsing) {
  Serve<v1::GenerateResponse>("/nacre.v1.Inference/Generate",
                              &InferenceService::Generate);
  Serve<v1::TokenizeResponse>("/nacre.v1.Inference/Tokenize",
                              &InferenceService::Tokenize);
  Serve<v1::Model>("/nacre.v1.Inference/GetModel", &InferenceService::GetModel);
}

Receptions::Options InferenceService::ReceivingOptions() {
  // As much as a fast network brings meanwhile stays far below the limit.
  constexpr int64_t kWeighEveryNs = 100'000'000;
  Receptions::Options options = limits_.receiving;
  if (options.received != nullptr && limits_.wake_at != nullptr) {
    options.weigh_soon = [this] {
      limits_.wake_at(dispatcher_->now_ns() + kWeighEveryNs);
    };
  }
  return options;
}

int64_t InferenceService::Tick() {
  receptions_.Weigh();
  return timers_.Tick(dispatcher_->now_ns());
}

template <typename Response, typename Call>
void InferenceService::Serve(const char* method,
                             Call* (InferenceService::*start)(Context*)) {
  AddMethod(new grpc::internal::RpcServiceMethod(
      method, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(
      num_methods_++,
      new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, Response>(
          [this, start](Context* context) { return (this->*start)(context); }));
}

template <typename Response>
absl::optional<Reception> InferenceService::Admit(const Context& context,
                                                  ClientCall<Response>* call) {
  absl::StatusOr<std::string> client =
      authenticator_->AuthenticateClient(PeerOf(context));
  absl::Status status = client.status();
  if (status.ok()) {
    call->lease = ClientStreams::Lease(&streams_, *client);
    status = call->lease.Resize(1);
  }
  if (!status.ok()) {
    call->ReceiveNothing(status);
    return absl::nullopt;
  }
  Reception reception;
  reception.timers = &timers_;
  reception.now_ns = [this] { return dispatcher_->now_ns(); };
  reception.arrival_ns = dispatcher_->now_ns();
  reception.deadline_ns = DeadlineNs(context, reception.arrival_ns);
  reception.client_timeout_ns = limits_.client_timeout_ns;
  reception.max_request_ns = limits_.max_request_ns;
  reception.receptions = &receptions_;
  reception.pool = &parsing_;
  reception.answers = &answers_;
  reception.client = *std::move(client);
  reception.peer = context.peer();
  return reception;
}

GenerateCall* InferenceService::Generate(Context* context) {
  const auto call = GenerateCall::Create(
      context, {.dispatcher = dispatcher_,
                .observer = observer_,
                .cancels = &cancels_,
                .now_ns = [this] { return dispatcher_->now_ns(); },
                .client_timeout_ns = limits_.client_timeout_ns});
  absl::optional<Reception> reception = Admit(*context, call.get());
  if (!reception.has_value()) return call.get();
  const speculation::TextOwner owner =
      authenticator_->TextOwnerOf(reception->client);
  const TraceHeaders trace{MetadataValue(*context, "traceparent"),
                           MetadataValue(*context, "tracestate")};
  reception->handle =
      [this, call, trace, owner, arrival_ns = reception->arrival_ns,
       deadline_ns = reception->deadline_ns](const grpc::ByteBuffer& bytes) {
        absl::StatusOr<RequestSpec> spec = Parse(bytes, call.get());
        if (!spec.ok()) {
          call->Refuse(spec.status());
          return;
        }
        spec->arrival_ns = arrival_ns;
        spec->deadline_ns = deadline_ns;
        spec->traceparent = trace.traceparent;
        spec->tracestate = trace.tracestate;
        if (spec->suffixes.has_value()) spec->suffixes = owner;
        call->Start(*spec);
      };
  call->Receive(*std::move(reception));
  return call.get();
}

absl::StatusOr<RequestSpec> InferenceService::Parse(
    const grpc::ByteBuffer& bytes, GenerateCall* call) {
  if (call->cancelled()) return absl::CancelledError("cancelled by the client");
  v1::GenerateRequest request;
  NACRE_RETURN_IF_ERROR(rpc::ParseMessage(bytes, kMaxFields, &request));
  if (request.request_id().size() <= kMaxRequestIdBytes) {
    call->answer().SetRequestId(request.request_id());
  }
  const GenerateFields fields = FieldsOf(request);
  NACRE_ASSIGN_OR_RETURN(const int choices, NumChoices(fields));
  NACRE_RETURN_IF_ERROR(call->lease.Resize(choices));
  const absl::optional<WorkerInfo> model = dispatcher_->expected_model();
  if (!model.has_value()) return NoTarget();
  return ParseRequest(fields, *tokenizer_, *model, limits_.default_policy);
}

UnaryCall<v1::TokenizeResponse>* InferenceService::Tokenize(Context* context) {
  const auto call = std::make_shared<UnaryCall<v1::TokenizeResponse>>(context);
  absl::optional<Reception> reception = Admit(*context, call.get());
  if (!reception.has_value()) return call.get();
  reception->handle = [this, call](const grpc::ByteBuffer& bytes) {
    call->Answer(TokenIds(bytes));
  };
  call->Receive(*std::move(reception));
  return call.get();
}

absl::StatusOr<v1::TokenizeResponse> InferenceService::TokenIds(
    const grpc::ByteBuffer& bytes) const {
  v1::TokenizeRequest request;
  NACRE_RETURN_IF_ERROR(rpc::ParseMessage(bytes, kMaxFields, &request));
  absl::optional<int> context_length;
  if (const absl::optional<WorkerInfo> model = dispatcher_->expected_model()) {
    context_length = model->context_length;
  }
  NACRE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                         AnswerIds(request.text(), !request.no_special_tokens(),
                                   *tokenizer_, context_length));
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(ids.begin(), ids.end());
  return response;
}

UnaryCall<v1::Model>* InferenceService::GetModel(Context* context) {
  const auto call = std::make_shared<UnaryCall<v1::Model>>(context);
  absl::optional<Reception> reception = Admit(*context, call.get());
  if (!reception.has_value()) return call.get();
  reception->pool = nullptr;  // answers at once, whatever is tokenized
  reception->handle = [this, call](const grpc::ByteBuffer& bytes) {
    call->Answer(Model(bytes));
  };
  call->Receive(*std::move(reception));
  return call.get();
}

absl::StatusOr<v1::Model> InferenceService::Model(
    const grpc::ByteBuffer& bytes) const {
  if (bytes.Length() > kMaxModelRequestBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request has ", bytes.Length(), " bytes, at most ",
                     kMaxModelRequestBytes));
  }
  v1::GetModelRequest request;
  NACRE_RETURN_IF_ERROR(rpc::ParseMessage(bytes, kMaxFields, &request));
  // Clients ask so to find one that takes requests.
  if (dispatcher_->draining()) {
    return absl::UnavailableError("the server is shutting down");
  }
  const absl::optional<WorkerInfo> model = dispatcher_->model();
  if (!model.has_value()) return NoTarget();
  v1::Model response;
  response.set_name(model->model_name);
  response.set_vocab_size(model->model_vocab_size);
  response.set_context_length(model->context_length);
  response.set_fingerprint(model->fingerprint);
  response.set_numerics_id(model->numerics_id);
  for (int32_t id : model->eos_token_ids) response.add_eos_token_ids(id);
  response.set_kv_capacity_tokens(
      static_cast<uint64_t>(model->kv_capacity_tokens));
  return response;
}

}  // namespace nacre::coordinator
