// How the target's rows get to a drafter that reads them: which sessions have
// asked for them, and what came for each. The text that a session is opened
// with is fed when the target's rows of it are there. After that no proposal
// waits for keys and values (GliDe). Of features (EAGLE) a session drafts only
// as far beyond the newest as its drafter can, and tells its target so.
//
// Owned by the engine, used by its thread. What the transport's threads bring
// goes through the engine's inbox (tensor_inbox.h).

#ifndef DRAFT_WORKER_ROW_RECEIVER_H_
#define DRAFT_WORKER_ROW_RECEIVER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "draft_worker/draft_messages.h"
#include "draft_worker/tensor_inbox.h"
#include "model/drafter.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::draft_worker {

struct EngineSession;  // engine_session.h

// What a session sees of its target.
struct SeenTarget {
  uint64_t channel = 0;
  int max_lag = model::RowReader::kAnyLag;
  std::unique_ptr<model::TargetSequence> rows;
  int asked = 0;         // up to there
  int most = 0;          // that it has room for
  int heard_length = 0;  // of the committed text when some came last
  // The text that it was opened with is fed as its rows come; from then on, and
  // where none will come, it waits for none.
  int opened_length = 0;
  bool waits = true;
  // Rows after those, of tokens that the draft does not know to be text yet:
  // only of a drafter with a lag.
  std::vector<float> early;
  int num_early = 0;
  // Positions that the draft was fed when it saw all of the target's below
  // them, from 0 on: what other sessions may share of its own keys.
  int whole_length = 0;

  // It is fed so many positions after `length`.
  void OnFed(int length, int count);
  // How many of the next positions may be fed, of a sequence that long. A
  // position sees those below it.
  int MayFeed(int length) const;
  // The first position that it has nothing to say of.
  int horizon() const;
};

class RowReceiver {
 public:
  using Session = EngineSession;
  // Rows that are asked for beyond those that are there.
  static constexpr int kAhead = 1024;
  // Tokens that are committed while no row comes of those that a session waits
  // for.
  static constexpr int kPatience = 64;

  // Both outlive it. Null `tensors`: no session gets any.
  RowReceiver(worker::TensorReader* tensors, model::Drafter* drafter,
              TensorInbox::Push push);
  ~RowReceiver() { inbox_->Detach(); }
  RowReceiver(const RowReceiver&) = delete;
  RowReceiver& operator=(const RowReceiver&) = delete;

  // Asks for a session's rows, if the drafter reads any.
  void Subscribe(Session& session, const OpenDraft& open);
  // The session is being closed.
  void Unsubscribe(Session& session);

  // False: the channel is none of this.
  bool OnArrived(const worker::ReceivedTensor& received);
  bool OnLost(const LostChannel& lost);
  // After a commit.
  void OnCommit(Session& session);
  // After a step of it.
  void OnStep(Session& session);

  // Any thread may ask.
  worker::TensorUse use() const;

 private:
  // Of the rows that came, those that belong to the session's text.
  void Settle(Session* session);
  void AskOn(const Session& session, SeenTarget* seen);
  // Nothing more is to come.
  static void EndRows(Session* session);
  // ... and the log says why, and a metric counts it.
  void GiveUp(Session* session, const char* why);

  worker::TensorReader* const tensors_;
  model::Drafter* const drafter_;
  absl::flat_hash_map<uint64_t, Session*> by_channel_;
  std::atomic<uint64_t> num_used_{0};  // runs
  std::atomic<uint64_t> num_stale_{0};
  std::atomic<uint64_t> num_rows_{0};
  std::atomic<uint64_t> num_commits_{0};
  std::atomic<uint64_t> num_missing_{0};
  std::atomic<uint64_t> num_malformed_{0};
  std::atomic<uint64_t> num_lost_{0};
  std::atomic<uint64_t> num_given_up_{0};
  bool has_logged_room_ = false;
  const std::shared_ptr<TensorInbox> inbox_;  // outlives this in calls to it
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_ROW_RECEIVER_H_
