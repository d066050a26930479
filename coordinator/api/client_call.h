// A call on the clients' port, from its metadata to its request.
//
// gRPC hands over a unary request only after it has received and parsed all of
// it on one of its few threads. These calls are streams to gRPC's server (on
// the wire there is no difference). The service sees the metadata first and
// refuses a stranger before anything of the request is read. The request comes
// as bytes, which the tokenizers' threads parse.

#ifndef COORDINATOR_API_CLIENT_CALL_H_
#define COORDINATOR_API_CLIENT_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/api/client_streams.h"
#include "coordinator/api/held_answers.h"
#include "coordinator/api/receptions.h"
#include "coordinator/dispatch/call_timers.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/work_pool.h"

namespace nacre::coordinator {

// How a call's request is received.
struct Reception {
  CallTimers* timers = nullptr;
  Clock now_ns;
  int64_t arrival_ns = 0;
  int64_t deadline_ns = kNever;        // the client's
  int64_t client_timeout_ns = kNever;  // for the request to come
  int64_t max_request_ns = kNever;     // from the arrival
  // Which requests may be received; null: any.
  Receptions* receptions = nullptr;
  // Of unary calls; null: any number of bytes may wait for their clients.
  HeldAnswers* answers = nullptr;
  // Where `handle` runs, in `client`'s turn; null: where gRPC calls.
  WorkPool* pool = nullptr;
  std::string client;
  std::string peer;  // its connection
  // Owns the call by what it captures until it has run or never will.
  std::function<void(const grpc::ByteBuffer& request)> handle;
};

// Thread-safe. Keeps itself alive from Receive until gRPC is done with it.
template <typename Response>
class ClientCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, Response>,
                   public std::enable_shared_from_this<ClientCall<Response>> {
 public:
  // Reads the request and has it handled, or refuses the call: its client is
  // too slow, goes away, or would take more than its share. Once.
  void Receive(Reception reception) {
    self_ = this->shared_from_this();
    reception_ = std::move(reception);
    const bool may_come = Enter();
    const int64_t timeout_ns =
        std::min(reception_.client_timeout_ns, reception_.max_request_ns);
    SetTimer(After(timeout_ns), [this] {
      Refuse(absl::DeadlineExceededError(absl::StrCat(
          "the request had not come ",
          absl::FormatDuration(absl::Nanoseconds(std::min(
              reception_.client_timeout_ns, reception_.max_request_ns))),
          " after its call")));
    });
    if (may_come) {
      this->StartRead(&request_);
    } else {
      RefuseReception();
    }
  }
  // Ends a call that is not to be read.
  void ReceiveNothing(const absl::Status& status) {
    self_ = this->shared_from_this();
    Refuse(status);
  }

  // Ends the call with an error, unless it was ended or begun before.
  void Refuse(const absl::Status& status) ABSL_LOCKS_EXCLUDED(stage_mu_) {
    if (Begin()) OnRefused(status);
  }
  // Of its client's streams: one, or one for each choice. For the thread that
  // handles the request, once it is received.
  ClientStreams::Lease lease;

  // By its client, or by its deadline.
  bool cancelled() const ABSL_LOCKS_EXCLUDED(stage_mu_) {
    absl::MutexLock lock(&stage_mu_);
    return cancelled_;
  }

 protected:
  // The first caller answers the call: true once.
  bool Begin() ABSL_LOCKS_EXCLUDED(stage_mu_) {
    absl::MutexLock lock(&stage_mu_);
    return !std::exchange(begun_, true);
  }
  // What Refuse does, once.
  virtual void OnRefused(const absl::Status& status) = 0;
  virtual void OnCancelled() {}

  // One timer a call: at `at_ns` this one, in place of what was set before.
  template <typename OnTime>
  void SetTimer(int64_t at_ns, OnTime on_time) ABSL_LOCKS_EXCLUDED(done_mu_) {
    absl::MutexLock lock(&done_mu_);
    if (done_ || reception_.timers == nullptr) return;
    reception_.timers->Set(this, at_ns,
                           [call = this->shared_from_this(),
                            on_time = std::move(on_time)] { on_time(); });
  }
  // Ends the call whatever still waits for its client.
  void TryCancel(grpc::CallbackServerContext* context)
      ABSL_LOCKS_EXCLUDED(done_mu_) {
    absl::MutexLock lock(&done_mu_);
    if (!done_) context->TryCancel();  // it goes when gRPC is done
  }
  int64_t After(int64_t duration_ns) const {
    return AddNs(reception_.arrival_ns, duration_ns);
  }
  static int64_t AddNs(int64_t at_ns, int64_t duration_ns) {
    return duration_ns > kNever - at_ns ? kNever : at_ns + duration_ns;
  }
  const Reception& reception() const { return reception_; }

 private:
  absl::Status EndedByClient() const {
    if (reception_.deadline_ns <= reception_.now_ns()) {
      return absl::DeadlineExceededError(
          "the deadline passed before the request was read");
    }
    return absl::CancelledError("cancelled by the client");
  }

  bool Enter() {
    return reception_.receptions == nullptr ||
           reception_.receptions->Enter({this, reception_.client,
                                         reception_.peer,
                                         [call = this->shared_from_this()] {
                                           call->RefuseReception();
                                         }});
  }
  void RefuseReception() {
    Refuse(absl::ResourceExhaustedError(
        "too much of too many requests is on its way: try again later"));
  }
  void Leave(int64_t bytes) {
    if (reception_.receptions != nullptr) {
      reception_.receptions->Leave(this, bytes);
    }
  }

  void OnReadDone(bool ok) final {
    Leave(ok ? static_cast<int64_t>(request_.Length()) : 0);
    if (!ok) {
      Refuse(cancelled() ? EndedByClient()
                         : absl::InvalidArgumentError(
                               "the call ends without a request"));
      return;
    }
    SetTimer(After(reception_.max_request_ns), [this] {
      if (reception_.pool != nullptr) reception_.pool->Withdraw(this);
      Refuse(absl::DeadlineExceededError(absl::StrCat(
          "the request waited to be tokenized for --max-request-duration, ",
          absl::FormatDuration(absl::Nanoseconds(reception_.max_request_ns)))));
    });
    Submit();
  }

  void Submit() {
    const auto call = this->shared_from_this();
    const int64_t bytes = static_cast<int64_t>(request_.Length());
    auto run = [call, handle = std::move(reception_.handle),
                request = request_] {
      // A call that has ended wants no work done.
      if (call->IsOpen()) handle(request);
    };
    request_.Clear();
    reception_.handle = nullptr;
    if (reception_.pool == nullptr) {
      run();
      return;
    }
    const auto refuse = [call] {
      call->Refuse(absl::ResourceExhaustedError(
          "too many prompts wait to be tokenized: try again later"));
    };
    if (!reception_.pool->TrySubmit(
            {reception_.client, bytes, std::move(run), refuse, this})) {
      refuse();
    }
    // A cancel that came before could not withdraw it.
    if (cancelled()) Withdraw();
  }

  void Withdraw() {
    if (reception_.pool != nullptr && reception_.pool->Withdraw(this)) {
      Refuse(EndedByClient());
    }
  }

  bool IsOpen() const ABSL_LOCKS_EXCLUDED(stage_mu_) {
    absl::MutexLock lock(&stage_mu_);
    return !begun_;
  }

  void OnCancel() final {
    {
      absl::MutexLock lock(&stage_mu_);
      cancelled_ = true;
    }
    Withdraw();
    OnCancelled();
  }

  void OnDone() final {
    {
      absl::MutexLock lock(&done_mu_);
      done_ = true;
    }
    const std::shared_ptr<ClientCall> last = std::move(self_);
    if (reception_.timers != nullptr) reception_.timers->Clear(this);
    reception_.handle = nullptr;
  }

  Reception reception_;  // set before gRPC's first reaction
  std::shared_ptr<ClientCall> self_;
  grpc::ByteBuffer request_;
  absl::Mutex done_mu_;
  bool done_ ABSL_GUARDED_BY(done_mu_) = false;  // gRPC is, with all of it
  mutable absl::Mutex stage_mu_;
  bool begun_ ABSL_GUARDED_BY(stage_mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(stage_mu_) = false;
};

// A call with one answer.
template <typename Response>
class UnaryCall final : public ClientCall<Response> {
 public:
  explicit UnaryCall(grpc::CallbackServerContext* context)
      : context_(context) {}
  ~UnaryCall() override {
    if (HeldAnswers* held = this->reception().answers) held->Leave(this);
  }

  // The answer or the error, unless the call has ended before. The client has
  // its timeout to take it. RESOURCE_EXHAUSTED: too much waits for clients.
  void Answer(absl::StatusOr<Response> response) {
    if (!response.ok()) return this->Refuse(response.status());
    const absl::Status held = Hold(*response);
    if (!held.ok()) return this->Refuse(held);
    if (!this->Begin()) return;
    response_ = *std::move(response);
    const Reception& reception = this->reception();
    this->SetTimer(this->AddNs(reception.now_ns(), reception.client_timeout_ns),
                   [this] { this->TryCancel(context_); });
    this->StartWriteAndFinish(&response_, grpc::WriteOptions(),
                              grpc::Status::OK);
  }

 private:
  // Until gRPC is done with the call: the message, and its bytes at gRPC.
  absl::Status Hold(const Response& response) {
    HeldAnswers* const held = this->reception().answers;
    if (held == nullptr) return absl::OkStatus();
    const size_t bytes = response.SpaceUsedLong() + response.ByteSizeLong();
    return held->Enter({this, this->reception().client,
                        static_cast<int64_t>(bytes),
                        [this, call = this->weak_from_this()] {
                          const auto alive = call.lock();
                          if (alive != nullptr) this->TryCancel(context_);
                        }});
  }

  void OnRefused(const absl::Status& status) override {
    this->Finish(rpc::ToGrpcStatus(status));
  }

  grpc::CallbackServerContext* const context_;  // gone once gRPC is done
  Response response_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_CLIENT_CALL_H_
