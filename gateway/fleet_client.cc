#include "gateway/fleet_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <utility>

#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "gateway/running_calls.h"
#include "proto/admin.grpc.pb.h"

namespace nacre::gateway {

class FleetClient::State : public std::enable_shared_from_this<State> {
 public:
  State(Options options, EventLoop* loop)
      : options_(std::move(options)), loop_(loop) {
    for (const std::string& address : options_.addresses) {
      stubs_.push_back(
          v1::Admin::NewStub(rpc::CreateChannel(address, options_.security)));
    }
  }

  RunningCalls& calls() { return calls_; }

  bool Ask(const std::string& token, OnAnswer on_answer) {
    if (open_ == kMaxOpen) return false;
    ++open_;
    const auto question = std::make_shared<Question>();
    question->on_answer = std::move(on_answer);
    question->token = token;
    question->deadline = absl::Now() + options_.timeout;
    question->views.resize(stubs_.size());
    question->pending = 1;
    for (size_t i = 0; i < stubs_.size(); ++i) {
      CoordinatorView& view = question->views[i];
      view.address = options_.addresses[i];
      auto* const admin = stubs_[i]->async();
      Start<v1::GetServerInfoRequest>(
          question, i, &view.info,
          [admin](auto... args) { admin->GetServerInfo(args...); });
      Start<v1::ListWorkersRequest>(
          question, i, &view.workers,
          [admin](auto... args) { admin->ListWorkers(args...); });
      Start<v1::ListSessionsRequest>(
          question, i, &view.sessions,
          [admin](auto... args) { admin->ListSessions(args...); });
    }
    OnDone(question, 0, absl::OkStatus());  // of none: all have been started
    return true;
  }

 private:
  struct Question {
    std::string token;
    absl::Time deadline;
    OnAnswer on_answer;
    std::vector<CoordinatorView> views;
    int pending = 0;  // calls, and the start of them
  };
  template <typename Request>
  struct Call {
    grpc::ClientContext context;
    Request request;
  };

  // One call, whose answer goes into `response`, a part of the question.
  template <typename Request, typename Response, typename Method>
  void Start(const std::shared_ptr<Question>& question, size_t coordinator,
             Response* response, const Method& method) {
    const auto call = std::make_shared<Call<Request>>();
    if (!calls_.Begin(&call->context)) {
      question->views[coordinator].status =
          absl::UnavailableError("the gateway is shutting down");
      return;
    }
    ++question->pending;
    call->context.set_deadline(absl::ToChronoTime(question->deadline));
    AddToken(question->token, &call->context);
    method(&call->context, &call->request, response,
           // Only the loop holds the question from then on: its answer is of a
           // connection, which must end there.
           [self = shared_from_this(), question = question, coordinator,
            call](const grpc::Status& status) mutable {
             self->loop_->Post([self, question = std::move(question),
                                coordinator, status] {
               self->OnDone(question, coordinator, rpc::FromGrpcStatus(status));
             });
             self->calls_.End(&call->context);
           });
  }

  void OnDone(const std::shared_ptr<Question>& question, size_t coordinator,
              const absl::Status& status) {
    if (!status.ok()) question->views[coordinator].status.Update(status);
    if (--question->pending > 0) return;
    for (CoordinatorView& view : question->views) {
      if (!view.status.ok()) view = {view.address, view.status, {}, {}, {}};
    }
    --open_;
    question->on_answer(std::move(question->views));
  }

  const Options options_;
  EventLoop* const loop_;
  std::vector<std::unique_ptr<v1::Admin::Stub>> stubs_;
  RunningCalls calls_;
  int open_ = 0;  // questions
};

FleetClient::FleetClient(Options options, EventLoop* loop)
    : state_(std::make_shared<State>(std::move(options), loop)) {}

FleetClient::~FleetClient() { Close(); }

void FleetClient::Close() { state_->calls().Close(); }

bool FleetClient::Ask(const std::string& token, OnAnswer on_answer) {
  return state_->Ask(token, std::move(on_answer));
}

}  // namespace nacre::gateway
