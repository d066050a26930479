// WorkerClient over the worker's gRPC session stream. The only file of the
// coordinator that speaks DraftControl / TargetControl.
//
// Thread-safe. Owned by the worker's attachment (registry_service) and, while
// in service, by the dispatcher.

#ifndef COORDINATOR_GRPC_WORKER_CLIENT_H_
#define COORDINATOR_GRPC_WORKER_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/message_stream.h"
#include "common/rpc/security.h"
#include "coordinator/worker_client.h"
#include "coordinator/worker_info.h"
#include "proto/worker.grpc.pb.h"

namespace nacre::coordinator {

class GrpcWorkerClient final : public WorkerClient {
 public:
  // On gRPC threads, one at a time; on_lost is the last.
  struct Callbacks {
    // The worker has answered the first ping, as the one that was told this
    // number when it attached.
    std::function<void(uint64_t attachment)> on_ready;
    std::function<void(WorkerEvents)> on_events;
    std::function<void(const absl::Status&)> on_lost;
  };

  // Dials the worker and opens its session stream.
  static std::shared_ptr<GrpcWorkerClient> Connect(
      WorkerRole role, const std::string& address,
      const rpc::ChannelSecurity& security, Callbacks callbacks);

  void OpenTarget(const TargetOpening& opening) override;
  void RelayTail(uint64_t session_id, const speculation::Tail& tail) override;
  void UpdateTarget(uint64_t session_id,
                    const speculation::TargetPlan& plan) override;
  void AttachDraft(uint64_t session_id, uint32_t epoch,
                   int opened_length) override;
  void LoseDraft(uint64_t session_id) override;
  void Acknowledge(uint64_t session_id, int committed_length) override;
  void OpenDraft(const DraftOpening& opening) override;
  void RelayCommit(uint64_t session_id,
                   const speculation::Commit& commit) override;
  void UpdateDraft(uint64_t session_id,
                   const speculation::DraftPlan& plan) override;
  void Close(uint64_t session_id) override;
  void Keep(const std::vector<uint64_t>& session_ids) override;
  void Cut() override;
  void Flush() override;
  int64_t clock_offset_ns() const override { return clock_offset_ns_; }
  int64_t round_trip_ns() const override { return round_trip_ns_; }

  // Measures the clock offset; the answer with the shortest round trip counts.
  void Ping();
  // Ends the stream; on_lost follows.
  void Cancel();

 private:
  using DraftStream =
      rpc::ClientMessageStream<v1::DraftControl, v1::DraftEvent>;
  using TargetStream =
      rpc::ClientMessageStream<v1::TargetControl, v1::TargetEvent>;

  GrpcWorkerClient(WorkerRole role, Callbacks callbacks);
  template <typename Event>
  void OnMessage(const Event& event);
  void OnPong(const v1::Pong& pong);

  // A message; its openings are built when it is sent, since prompts are long.
  struct Message {
    v1::DraftControl draft;
    v1::TargetControl target;
    std::vector<DraftOpening> draft_openings;
    std::vector<TargetOpening> target_openings;
  };
  Message& Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    pending_ = true;
    return next_;
  }
  void Send(Message message) ABSL_LOCKS_EXCLUDED(mu_);

  const WorkerRole role_;
  const Callbacks callbacks_;
  std::atomic<int64_t> clock_offset_ns_{0};
  std::atomic<int64_t> round_trip_ns_{0};  // smoothed
  // Used by the stream's reading callback only.
  int64_t best_round_trip_ns_ = 0;

  absl::Mutex mu_;
  Message next_ ABSL_GUARDED_BY(mu_);          // since the last Cut
  bool pending_ ABSL_GUARDED_BY(mu_) = false;  // next_ says something
  std::deque<Message> outgoing_ ABSL_GUARDED_BY(mu_);
  bool sending_ ABSL_GUARDED_BY(mu_) = false;  // some thread is at it
  // One pair of the two, constant after Connect.
  std::unique_ptr<v1::DraftWorker::Stub> draft_stub_;
  std::shared_ptr<DraftStream> draft_stream_;
  std::unique_ptr<v1::TargetWorker::Stub> target_stub_;
  std::shared_ptr<TargetStream> target_stream_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_GRPC_WORKER_CLIENT_H_
