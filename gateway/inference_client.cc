#include "gateway/inference_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/lost_server.h"
#include "common/rpc/parse_mark.h"
#include "gateway/api_error.h"
#include "gateway/cut_answer.h"
#include "gateway/running_calls.h"
#include "proto/inference.grpc.pb.h"

namespace nacre::gateway {
namespace {

// Of further attempts without a new response, beyond the first one at each
// coordinator and but for full queues. A request that ends its coordinator must
// not be carried from each to the next.
constexpr int kMaxResumes = 3;

bool MayResume(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         MayMissTargets(status);
}

}  // namespace

class InferenceClient::State : public std::enable_shared_from_this<State> {
 public:
  State(Options options, EventLoop* loop)
      : options_(std::move(options)), loop_(loop) {
    // A Call begins anew or goes on by itself, so gRPC need not send it again.
    // Polls come again anyway.
    for (const std::string& address : options_.addresses) {
      coordinators_.push_back(
          {address, v1::Inference::NewStub(rpc::CreateChannel(
                        address, options_.security, {}, rpc::Retries::kNone))});
    }
    said_.resize(coordinators_.size());
  }

  const Options& options() const { return options_; }
  EventLoop* loop() const { return loop_; }
  v1::Inference::Stub* stub(size_t coordinator) {
    return coordinators_[coordinator].stub.get();
  }

  void PollAll() {
    for (size_t i = 0; i < coordinators_.size(); ++i) Poll(i);
  }

  // The next one in turn that is not among `tried`, one that answers if there
  // is one.
  std::optional<size_t> Pick(const std::set<size_t>& tried) {
    std::optional<size_t> any;
    for (size_t i = 0; i < coordinators_.size(); ++i) {
      const size_t candidate = (turn_ + i) % coordinators_.size();
      if (tried.contains(candidate)) continue;
      if (!any.has_value()) any = candidate;
      if (!coordinators_[candidate].ready) continue;
      any = candidate;
      break;
    }
    if (any.has_value()) turn_ = *any + 1;
    return any;
  }

  // The next in turn of those that answer.
  std::optional<size_t> PickReady() {
    const std::optional<size_t> next = Pick({});
    return next.has_value() && coordinators_[*next].ready ? next : std::nullopt;
  }
  // It takes no calls until it has answered again.
  void NoteGone(size_t coordinator) {
    coordinators_[coordinator].ready = false;
  }

  // Before a coordinator is tried once more: not all calls at once.
  absl::Duration RandomWait() {
    return options_.resume_period * absl::Uniform(random_, 0.5, 1.5);
  }

  RunningCalls& calls() { return calls_; }

  absl::StatusOr<ServedModel> model() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return model_;
  }
  absl::Status health() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return num_ready_ > 0 ? absl::OkStatus() : failure_;
  }
  void AwaitFirstAnswers(absl::Duration timeout) const
      ABSL_LOCKS_EXCLUDED(mu_) {
    const auto all = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return asked_.size() == options_.addresses.size();
    };
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&all), timeout);
  }

 private:
  struct Coordinator {
    std::string address;
    std::unique_ptr<v1::Inference::Stub> stub;
    bool ready = false;  // its last answer was a model
    // Of the last question, once it is answered.
    std::optional<absl::StatusCode> last_code = std::nullopt;
  };
  struct Question {
    grpc::ClientContext context;
    v1::GetModelRequest request;
    v1::Model answer;
  };

  void Poll(size_t coordinator) {
    const auto question = std::make_shared<Question>();
    if (!calls_.Begin(&question->context)) return;
    question->context.set_deadline(
        absl::ToChronoTime(absl::Now() + options_.poll_timeout));
    if (options_.token != nullptr) {
      AddToken(options_.token(), &question->context);
    }
    stub(coordinator)
        ->async()
        ->GetModel(&question->context, &question->request, &question->answer,
                   [self = shared_from_this(), coordinator,
                    question](const grpc::Status& status) {
                     self->loop_->Post([self, coordinator, question, status] {
                       self->OnPolled(coordinator, rpc::FromGrpcStatus(status),
                                      question->answer);
                     });
                     self->calls_.End(&question->context);
                   });
  }

  void OnPolled(size_t index, const absl::Status& status,
                const v1::Model& model) ABSL_LOCKS_EXCLUDED(mu_) {
    Coordinator& coordinator = coordinators_[index];
    coordinator.ready = status.ok();
    {
      if (calls_.closed()) return;
      LogChange(status, &coordinator);
      absl::MutexLock lock(&mu_);
      asked_.insert(index);
      if (status.ok()) said_[index].model = model;
      said_[index].is_away = !status.ok();
      if (auto served = ServedTogether(said_)) model_ = *std::move(served);
      if (!status.ok()) {
        failure_ = absl::UnavailableError(absl::StrCat(
            "coordinator ", coordinator.address, ": ", status.ToString()));
        if (!model_.ok()) model_ = failure_;
      }
      num_ready_ = static_cast<int>(
          std::count_if(coordinators_.begin(), coordinators_.end(),
                        [](const Coordinator& one) { return one.ready; }));
      loop_->PostAfter(options_.poll_period, [weak = weak_from_this(), index] {
        if (const auto self = weak.lock()) self->Poll(index);
      });
    }
  }

  static void LogChange(const absl::Status& status, Coordinator* coordinator) {
    if (coordinator->last_code == status.code()) return;
    coordinator->last_code = status.code();
    if (status.ok()) {
      spdlog::info("coordinator {} answers", coordinator->address);
    } else {
      spdlog::warn("coordinator {} takes no requests: {}", coordinator->address,
                   status.ToString());
    }
  }

  const Options options_;
  EventLoop* const loop_;
  std::vector<Coordinator> coordinators_;
  std::vector<Said> said_;  // by each
  size_t turn_ = 0;
  absl::BitGen random_;
  RunningCalls calls_;
  mutable absl::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_) =  // the last one
      absl::UnavailableError("no coordinator has answered yet");
  absl::StatusOr<ServedModel> model_ ABSL_GUARDED_BY(mu_) = failure_;
  int num_ready_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<size_t> asked_ ABSL_GUARDED_BY(mu_);  // that have answered or failed

 public:
  class Call;
  class Attempt;
};

// A Generate on one coordinator. gRPC's threads post what comes to the loop.
class InferenceClient::State::Attempt
    : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  struct Callbacks {
    std::function<void(v1::GenerateResponse)> on_message;
    std::function<void(const absl::Status&)> on_done;
  };

  // Null where no call may start.
  static std::shared_ptr<Attempt> Start(std::shared_ptr<State> state,
                                        size_t coordinator,
                                        const v1::GenerateRequest& request,
                                        const CallHeaders& headers,
                                        absl::Time deadline,
                                        Callbacks callbacks) {
    auto attempt =
        std::make_shared<Attempt>(std::move(state), std::move(callbacks));
    if (!attempt->state_->calls().Begin(&attempt->context_)) return nullptr;
    attempt->self_ = attempt;
    if (deadline < absl::InfiniteFuture()) {
      attempt->context_.set_deadline(absl::ToChronoTime(deadline));
    }
    AddToken(headers.token, &attempt->context_);
    if (!headers.traceparent.empty()) {
      attempt->context_.AddMetadata("traceparent", headers.traceparent);
    }
    attempt->state_->stub(coordinator)
        ->async()
        ->Generate(&attempt->context_, &request, attempt.get());
    attempt->AddHold();  // reads come from outside reactions
    attempt->StartCall();
    return attempt;
  }

  Attempt(std::shared_ptr<State> state, Callbacks callbacks)
      : state_(std::move(state)), callbacks_(std::move(callbacks)) {}

  void Read() {
    if (reading_ || ended_) return;
    reading_ = true;
    rpc::SetParseMark(&response_);
    StartRead(&response_);
  }

  void Cancel() {
    cancelled_ = true;
    context_.TryCancel();
    if (!reading_) EndReads();
  }

 private:
  void EndReads() {
    if (ended_) return;
    ended_ = true;
    RemoveHold();
  }

  void OnReadDone(bool ok) override {
    state_->loop()->Post([self = self_, ok] { self->OnRead(ok); });
  }

  // On the loop.
  void OnRead(bool ok) {
    reading_ = false;
    if (ended_) return;
    if (!ok) {
      malformed_ = !rpc::HasParseMark(response_);
      if (malformed_) context_.TryCancel();
      return EndReads();
    }
    // The message came before the end of the call; no read will tell that end.
    if (cancelled_) return EndReads();
    v1::GenerateResponse response;
    response.Swap(&response_);
    callbacks_.on_message(std::move(response));
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Attempt> self = std::move(self_);
    state_->loop()->Post([self, status] {
      const Callbacks callbacks = std::move(self->callbacks_);
      callbacks.on_done(
          self->malformed_
              ? absl::InternalError("the coordinator's answer is no message")
              : rpc::FromGrpcStatus(status));
    });
    state_->calls().End(&context_);
  }

  const std::shared_ptr<State> state_;
  Callbacks callbacks_;
  std::shared_ptr<Attempt> self_;  // until OnDone
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
  bool reading_ = false;
  bool cancelled_ = false;
  bool ended_ = false;
  bool malformed_ = false;
};

class InferenceClient::State::Call : public GenerationCall,
                                     public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<State> state, v1::GenerateRequest request,
       CallHeaders headers, Events events)
      : state_(std::move(state)),
        request_(std::move(request)),
        headers_(std::move(headers)),
        events_(std::move(events)),
        came_(&request_) {}

  void Next() override {
    wants_next_ = true;
    if (!begun_ && !done_) {
      begun_ = true;
      const absl::Duration timeout = state_->options().request_timeout;
      if (timeout > absl::ZeroDuration()) deadline_ = absl::Now() + timeout;
      if (!TryAnother(request_)) {
        return End(absl::UnavailableError("the gateway is shutting down"));
      }
    }
    if (attempt_ != nullptr) attempt_->Read();
  }

  void Cancel() override {
    cancelled_ = true;
    if (attempt_ != nullptr) {
      attempt_->Cancel();
    } else {
      End(absl::CancelledError("cancelled"));
    }
  }

 private:
  bool TryAnother(const v1::GenerateRequest& request) {
    const std::optional<size_t> coordinator = state_->Pick(tried_);
    if (!coordinator.has_value()) return false;
    tried_.insert(*coordinator);
    return Try(*coordinator, request);
  }

  bool Try(size_t coordinator, const v1::GenerateRequest& request) {
    attempt_ = Attempt::Start(
        state_, coordinator, request, headers_, deadline_,
        {[self = shared_from_this()](v1::GenerateResponse response) {
           self->OnMessage(std::move(response));
         },
         [self = shared_from_this(), coordinator](const absl::Status& status) {
           self->OnDone(coordinator, status);
         }});
    return attempt_ != nullptr;
  }

  void OnMessage(v1::GenerateResponse response) {
    if (!came_.Follows(response)) {
      attempt_->Cancel();
      return End(absl::InternalError(
          "the answer leaves out tokens, or says some twice"));
    }
    came_.Note(response);
    cut_since_ = absl::InfiniteFuture();
    wants_next_ = false;
    if (events_.on_response != nullptr) {
      events_.on_response(std::move(response));
    }
  }

  void OnDone(size_t coordinator, absl::Status status) {
    attempt_ = nullptr;
    if (done_) return;
    if (!cancelled_ && !state_->calls().closed()) {
      status = rpc::NameLostServer(status);
    }
    if (absl::IsUnavailable(status)) {
      state_->NoteGone(coordinator);
      lost_one_ = true;
    }
    if (came_.has_begun() && came_.is_whole()) status = absl::OkStatus();
    if (status.ok() || cancelled_ || state_->calls().closed()) {
      return End(status);
    }
    if (came_.has_begun()) {
      if (!MayResume(status) || !came_.can_go_on()) return End(status);
      // The first try is at once only where the coordinator has gone.
      return absl::IsUnavailable(status) ? Resume(status) : AwaitRoom(status);
    }
    // It may have had a place in the queue of the one that has gone.
    if (lost_one_ && (IsFullQueue(status) || MayMissTargets(status))) {
      return AwaitRoom(status);
    }
    if (!absl::IsUnavailable(status)) return End(status);
    // Those that have not been asked, whether they answered lately or not.
    if (TryAnother(request_)) return ReadNext(FurtherCall::kRetry);
    Resume(status);
  }

  // A refusal harms no coordinator: `resume_timeout` alone bounds it.
  void AwaitRoom(const absl::Status& status) {
    if (resumes_ > 0) --resumes_;
    ResumeLater(status);
  }

  void ReadNext(FurtherCall kind) {
    const auto& on_further_call = state_->options().on_further_call;
    if (on_further_call != nullptr) on_further_call(kind);
    if (wants_next_) attempt_->Read();
  }

  // Goes on with what was cut off, or begins anew where nothing came, at a
  // coordinator that answers, or will.
  void Resume(const absl::Status& status) {
    const absl::Time now = absl::Now();
    if (cut_since_ == absl::InfiniteFuture()) {
      cut_since_ = now;
      resumes_ = 0;
    }
    if (now >= deadline_) {
      return End(absl::DeadlineExceededError(absl::StrCat(
          "no coordinator took the request in time: ", status.message())));
    }
    if (state_->calls().closed() || resumes_ == kMaxResumes ||
        now - cut_since_ >= state_->options().resume_timeout) {
      return End(status);
    }
    const std::optional<size_t> coordinator = state_->PickReady();
    if (!coordinator.has_value()) return ResumeLater(status);
    rest_ = came_.Rest();
    ++resumes_;
    if (!Try(*coordinator, rest_)) return End(status);
    ReadNext(came_.has_begun() ? FurtherCall::kResume : FurtherCall::kRetry);
  }

  void ResumeLater(const absl::Status& status) {
    const absl::Duration left =
        std::max(deadline_ - absl::Now(), absl::ZeroDuration());
    state_->loop()->PostAfter(std::min(state_->RandomWait(), left),
                              [self = shared_from_this(), status] {
                                if (!self->done_) self->Resume(status);
                              });
  }

  void End(const absl::Status& status) {
    if (std::exchange(done_, true)) return;
    const Events events = std::exchange(events_, {});
    if (events.on_done != nullptr) events.on_done(status);
  }

  const std::shared_ptr<State> state_;
  const v1::GenerateRequest request_;
  const CallHeaders headers_;
  Events events_;
  absl::Time deadline_ = absl::InfiniteFuture();  // of all attempts together
  std::set<size_t> tried_;
  std::shared_ptr<Attempt> attempt_;
  CutAnswer came_;
  v1::GenerateRequest rest_;  // that the attempt goes on with
  int resumes_ = 0;           // attempts since the last response
  // Since the last response, or the first failure at all coordinators, where
  // there are further attempts.
  absl::Time cut_since_ = absl::InfiniteFuture();
  bool begun_ = false;
  bool wants_next_ = false;
  bool lost_one_ = false;  // a coordinator that it had asked has gone
  bool cancelled_ = false;
  bool done_ = false;
};

InferenceClient::InferenceClient(Options options, EventLoop* loop)
    : state_(std::make_shared<State>(std::move(options), loop)) {
  loop->Post([state = state_] { state->PollAll(); });
}

InferenceClient::~InferenceClient() { Close(); }

void InferenceClient::Close() { state_->calls().Close(); }

absl::StatusOr<ServedModel> InferenceClient::model() const {
  return state_->model();
}

void InferenceClient::AwaitFirstAnswers(absl::Duration timeout) const {
  state_->AwaitFirstAnswers(timeout);
}

absl::Status InferenceClient::health() const { return state_->health(); }

std::shared_ptr<GenerationCall> InferenceClient::Generate(
    v1::GenerateRequest request, CallHeaders headers, Events events) {
  return std::make_shared<State::Call>(state_, std::move(request),
                                       std::move(headers), std::move(events));
}

}  // namespace nacre::gateway
