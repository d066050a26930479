#include "tools/generate/generation_client.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/listen_address.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/lost_server.h"
#include "common/status_macros.h"
#include "gateway/cut_answer.h"

namespace nacre::tools {

namespace {

// As the gateway does: tries without a new response after the first at each
// coordinator, and how long one that answers is waited for.
constexpr size_t kMaxTries = 3;
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kAskTimeout = absl::Seconds(5);

std::vector<std::string> SplitAddresses(const std::string& addresses) {
  return absl::StrSplit(addresses, ',', absl::SkipWhitespace());
}

// The tries of one answer after its first.
class FurtherTries {
 public:
  explicit FurtherTries(size_t coordinators) : others_(coordinators - 1) {}

  // A response came.
  void Progress() {
    made_ = others_;
    give_up_at_ = absl::InfiniteFuture();
  }
  // Whether there is another one after a failure.
  bool Begin(const absl::Status& failure) {
    if (give_up_at_ == absl::InfiniteFuture()) {
      give_up_at_ = absl::Now() + kPatience;
    }
    // A refusal harms no coordinator: time alone bounds it.
    if (made_ > others_ && (absl::IsResourceExhausted(failure) ||
                            gateway::MayMissTargets(failure))) {
      --made_;
    }
    return made_++ < others_ + kMaxTries && absl::Now() < give_up_at_;
  }
  // Whether it is the first at another coordinator.
  bool is_at_another() const { return made_ <= others_; }
  absl::Time give_up_at() const { return give_up_at_; }

 private:
  const size_t others_;
  size_t made_ = 0;  // without a new response
  absl::Time give_up_at_ = absl::InfiniteFuture();
};

}  // namespace

GenerationClient::GenerationClient(const std::string& addresses,
                                   ClientSecurity security)
    : security_(std::move(security)) {
  std::vector<std::string> each = SplitAddresses(addresses);
  if (each.empty()) each.push_back(addresses);  // each call says what is wrong
  for (const std::string& address : each) {
    stubs_.push_back(
        v1::Inference::NewStub(rpc::CreateChannel(address, security_.channel)));
  }
}

absl::Status GenerationClient::CheckAddresses(const std::string& addresses) {
  const std::vector<std::string> parts = SplitAddresses(addresses);
  if (parts.empty()) {
    return absl::InvalidArgumentError("--address has no address");
  }
  for (const std::string& address : parts) {
    if (!IsHostPort(address)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--address \"", address, "\" is not host:port"));
    }
  }
  return absl::OkStatus();
}

GenerationClient::Stub* GenerationClient::NextStub() {
  absl::MutexLock lock(&mu_);
  return stubs_[turn_++ % stubs_.size()].get();
}

absl::StatusOr<GenerationClient::Stub*> GenerationClient::AwaitStub(
    absl::Time deadline, absl::Time give_up_at, const absl::Status& failure) {
  absl::BitGen random;
  const absl::Time until = std::min(deadline, give_up_at);
  while (absl::Now() < until) {
    {
      // Not all clients at once.
      absl::MutexLock lock(&mu_);
      mu_.AwaitWithTimeout(absl::Condition(&cancelled_),
                           absl::Milliseconds(absl::Uniform(random, 100, 300)));
      if (cancelled_) return absl::CancelledError("cancelled");
    }
    for (size_t i = 0; i < stubs_.size(); ++i) {
      Stub* const stub = NextStub();
      v1::Model model;
      const auto ask = [&](Stub* one, grpc::ClientContext* context) {
        return one->GetModel(context, {}, &model);
      };
      const absl::Time latest = std::min(until, absl::Now() + kAskTimeout);
      if (CallOne(stub, latest, ask).ok()) return stub;
    }
  }
  if (until < deadline) return failure;
  return absl::DeadlineExceededError(absl::StrCat(
      "no coordinator took the request in time: ", failure.message()));
}

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

absl::Status GenerationClient::Read(Stub* stub,
                                    const v1::GenerateRequest& request,
                                    absl::Time deadline,
                                    const OnResponse& on_response) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  security_.Apply(&context);
  if (!Register(&context)) return absl::CancelledError("cancelled");
  auto reader = stub->Generate(&context, request);
  bool is_wrong = false;
  v1::GenerateResponse response;
  while (!is_wrong && reader->Read(&response)) {
    is_wrong = !on_response(std::move(response));
  }
  if (is_wrong) context.TryCancel();
  absl::Status status =
      security_.Explain(rpc::FromGrpcStatus(reader->Finish()));
  Unregister(&context);
  if (!is_wrong) return status;
  return absl::InternalError("the answer goes on at another token");
}

absl::StatusOr<std::vector<v1::Complete>> GenerationClient::GenerateChoices(
    const v1::GenerateRequest& request, absl::Duration timeout,
    const std::function<void(uint32_t, const v1::Chunk&)>& on_chunk) {
  const absl::Time deadline = absl::Now() + timeout;
  v1::GenerateRequest whole = request;  // with the prompt's ids, once known
  gateway::CutAnswer came(&whole);
  std::map<uint32_t, v1::Complete> completes;  // by choice
  const bool has_others = stubs_.size() > 1;
  FurtherTries tries(stubs_.size());
  const auto take = [&](v1::GenerateResponse response) {
    if (has_others && !came.Follows(response)) return false;
    if (response.has_start() && !came.has_begun()) {
      *whole.mutable_token_ids()->mutable_ids() =
          response.start().prompt_token_ids();
    }
    came.Note(response);
    tries.Progress();
    if (response.has_chunk()) on_chunk(response.index(), response.chunk());
    if (response.has_complete()) {
      completes[response.index()] = std::move(*response.mutable_complete());
    }
    return true;
  };
  absl::Status status = Read(NextStub(), whole, deadline, take);
  const auto may_go_on = [&] {
    if (!has_others || status.ok() || came.is_whole()) return false;
    const absl::Status named = rpc::NameLostServer(status);
    if (!came.has_begun()) return absl::IsUnavailable(named);
    return came.can_go_on() &&
           (absl::IsUnavailable(named) || absl::IsResourceExhausted(named) ||
            gateway::MayMissTargets(named));
  };
  while (may_go_on() && tries.Begin(status)) {
    if (tries.is_at_another()) {
      status = Read(NextStub(), whole, deadline, take);
      continue;
    }
    const auto stub = AwaitStub(deadline, tries.give_up_at(), status);
    status =
        stub.ok() ? Read(*stub, came.Rest(), deadline, take) : stub.status();
    if (!stub.ok()) break;
  }
  // An old connection may close with its last call, before the status is read.
  const bool is_whole = came.has_begun() && came.is_whole();
  if (!is_whole) NACRE_RETURN_IF_ERROR(status);
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
absl::Status GenerationClient::CallOne(Stub* stub, absl::Time deadline,
                                       const Method& method) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  security_.Apply(&context);
  if (!Register(&context)) return absl::CancelledError("cancelled");
  absl::Status status =
      security_.Explain(rpc::FromGrpcStatus(method(stub, &context)));
  Unregister(&context);
  return status;
}

template <typename Method>
absl::Status GenerationClient::Call(absl::Duration timeout,
                                    const Method& method) {
  const absl::Time deadline = absl::Now() + timeout;
  absl::Status status;
  for (size_t i = 0; i < stubs_.size(); ++i) {
    status = CallOne(NextStub(), deadline, method);
    if (!absl::IsUnavailable(status)) break;
  }
  return status;
}

absl::StatusOr<v1::Model> GenerationClient::GetModel(absl::Duration timeout) {
  v1::Model model;
  NACRE_RETURN_IF_ERROR(
      Call(timeout, [&](Stub* stub, grpc::ClientContext* context) {
        return stub->GetModel(context, {}, &model);
      }));
  return model;
}

absl::StatusOr<v1::TokenIds> GenerationClient::Tokenize(
    const std::string& text, absl::Duration timeout) {
  v1::TokenizeRequest request;
  request.set_text(text);
  request.set_no_special_tokens(true);
  v1::TokenizeResponse response;
  NACRE_RETURN_IF_ERROR(
      Call(timeout, [&](Stub* stub, grpc::ClientContext* context) {
        return stub->Tokenize(context, request, &response);
      }));
  v1::TokenIds ids;
  ids.mutable_ids()->Swap(response.mutable_token_ids());
  return ids;
}

}  // namespace nacre::tools
