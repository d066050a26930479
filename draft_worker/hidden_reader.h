// How the target's hidden states get to the length policies that read them:
// which sessions are subscribed, and what came for each.
//
// Owned by the engine, used by its thread. What the transport's threads bring
// goes through the engine's inbox (tensor_inbox.h).

#ifndef DRAFT_WORKER_HIDDEN_READER_H_
#define DRAFT_WORKER_HIDDEN_READER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "draft_worker/draft_messages.h"
#include "draft_worker/tensor_inbox.h"
#include "worker/engine/clock.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/session_accounts.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::draft_worker {

struct EngineSession;  // engine_session.h

class HiddenReader {
 public:
  using Session = EngineSession;
  // All outlive it. Null `tensors`: no session gets any.
  struct Parts {
    worker::TensorReader* tensors = nullptr;
    worker::SessionAccounts* accounts = nullptr;
    worker::EventOutbox<DraftEvents>* events = nullptr;
    worker::Clock now_ns;
  };
  HiddenReader(Parts parts, TensorInbox::Push push);
  ~HiddenReader() { inbox_->Detach(); }
  HiddenReader(const HiddenReader&) = delete;
  HiddenReader& operator=(const HiddenReader&) = delete;

  // Whether a session opened like this could be given any.
  bool CanRead(const OpenDraft& open) const;
  // Reads them if the session's length policy does.
  void Subscribe(Session& session, OpenDraft& open);
  // The session is being closed.
  void Unsubscribe(Session& session);

  void OnArrived(worker::ReceivedTensor received);
  void OnLost(const LostChannel& lost);
  // After a commit, of a session that reads them: the policy's state is of the
  // past.
  void Renew(Session& session);

  // Of its life. Any thread may ask.
  worker::TensorUse use() const { return {used_, stale_, lag_ns_}; }

 private:
  void Give(Session& session);
  void CountStale(int64_t states);

  const Parts parts_;
  absl::flat_hash_map<uint64_t, Session*> by_channel_;
  std::vector<float> copy_;  // of a state, where it is a device's
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> stale_{0};
  std::atomic<int64_t> lag_ns_{0};
  const std::shared_ptr<TensorInbox> inbox_;  // outlives this in calls to it
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_HIDDEN_READER_H_
