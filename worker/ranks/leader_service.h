// nacre.v1.Ranks: the leader's side of a model on several nodes. It is how its
// ranks reach those of the followers, and how these are told what to do.
//
// A follower that is lost, fails or sends what does not fit ends all nodes. The
// leader then learns of it at its next call, and who owns it at once.
//
// Thread-safe, but for what NodeLink says.

#ifndef WORKER_RANKS_LEADER_SERVICE_H_
#define WORKER_RANKS_LEADER_SERVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/rpc/message_stream.h"
#include "kernels/node_link.h"
#include "model/ranks/rank_command.h"
#include "proto/ranks.grpc.pb.h"
#include "worker/ranks/node_facts.h"
#include "worker/ranks/value_inbox.h"

namespace nacre::worker {

class LeaderService final : public v1::Ranks::CallbackService,
                            public kernels::NodeLink,
                            public model::RankCommandSink {
 public:
  // `facts`: what is known before anything is loaded. `is_encrypted`: it is
  // served with TLS.
  LeaderService(int nodes, NodeFacts facts, bool is_encrypted = false);
  // After the server has ended its calls.
  ~LeaderService() override;

  // Wait for all followers. The log names those that are missing now and then.
  // DEADLINE_EXCEEDED: not within `patience`. Else why they cannot be had.
  absl::Status AwaitJoined(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mu_);
  // Until they have loaded their ranks. FAILED_PRECONDITION: not what the
  // leader has.
  absl::Status AwaitLoaded(const NodeFacts& facts, absl::Duration patience)
      ABSL_LOCKS_EXCLUDED(mu_);

  // From now on a Receive for which nothing comes for so long has lost its
  // node. Before, it may be loading.
  void SetPatience(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mu_);
  // The first steps are done. From now on who says nothing for so long in one
  // hangs, at all nodes.
  void StartServing(absl::Duration hang_timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Heard on gRPC's threads; at once, if it has happened already.
  void SetOnFailure(const std::function<void(const absl::Status&)>& on_failure)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A follower was told to terminate.
  void SetOnLeave(const std::function<void()>& on_leave)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the followers: in order, or with a reason.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Until they have heard of it.
  void AwaitEnded(absl::Duration patience) ABSL_LOCKS_EXCLUDED(mu_);

  int node() const override { return 0; }
  int nodes() const override { return static_cast<int>(peers_.size()); }
  bool is_encrypted() const override { return is_encrypted_; }
  absl::Status Send(int to, const kernels::NodeCall& call,
                    const float* values) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Receive(int from, const kernels::NodeCall& call,
                       float* values) override ABSL_LOCKS_EXCLUDED(mu_);
  void Abort(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status failure() const override ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<kernels::NodeProgress> Progress() const override
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SendCommands(const std::vector<model::RankCommand>& commands)
      override ABSL_LOCKS_EXCLUDED(mu_);

  grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>* Follow(
      grpc::CallbackServerContext* context) override;

 private:
  using Stream =
      rpc::ServerMessageStream<v1::FollowerMessage, v1::LeaderMessage>;
  // Of one stream.
  struct Call {
    std::string address;
    std::shared_ptr<Stream> stream;
    int node = 0;  // 0: it has not joined
    bool refused = false;
  };
  // By node; that of the leader is empty.
  struct Peer {
    std::unique_ptr<ValueInbox> inbox;
    std::shared_ptr<Call> call;  // null: it has not joined
    bool gone = false;           // its stream has ended
    absl::optional<NodeFacts> loaded;
    std::vector<kernels::RankProgress> progress;  // as it said last, and when
    absl::Time progress_time = absl::InfinitePast();
  };

  void OnMessage(const std::shared_ptr<Call>& call,
                 const v1::FollowerMessage& message) ABSL_LOCKS_EXCLUDED(mu_);
  // What is wrong with one who joins.
  absl::Status Admit(const std::shared_ptr<Call>& call,
                     const v1::JoinRanks& join) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status OnProgress(int node, const v1::RanksProgress& message)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone(const Call& call) ABSL_LOCKS_EXCLUDED(mu_);
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for `has` of all followers.
  absl::Status AwaitAll(const std::function<bool(const Peer&)>& has,
                        const std::string& what, absl::Duration patience)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Why all nodes end; the first counts.
  absl::Status Fail(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Why nothing is sent any more; OK: it is.
  absl::Status Ending() const ABSL_LOCKS_EXCLUDED(mu_);
  bool in_steps() const ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<Stream> StreamTo(size_t node) const ABSL_LOCKS_EXCLUDED(mu_);

  const NodeFacts facts_;
  const bool is_encrypted_;
  mutable absl::Mutex mu_;
  absl::Duration patience_ ABSL_GUARDED_BY(mu_) = absl::InfiniteDuration();
  std::vector<Peer> peers_;  // its size and the inboxes never change
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool left_ ABSL_GUARDED_BY(mu_) = false;
  bool in_steps_ ABSL_GUARDED_BY(mu_) = false;  // all have loaded
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool in_order_ ABSL_GUARDED_BY(mu_) = false;  // failure_ is none
  std::function<void(const absl::Status&)> on_failure_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_leave_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::worker

#endif  // WORKER_RANKS_LEADER_SERVICE_H_
