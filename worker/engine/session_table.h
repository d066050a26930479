// The sessions of an engine, from their opening to their removal: in the order
// opened, and by stream and id.
//
// A session that is closed is found no more, but stays until RemoveClosed: its
// step may be running.
//
// Owned by an engine, used by its thread.

#ifndef WORKER_ENGINE_SESSION_TABLE_H_
#define WORKER_ENGINE_SESSION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "worker/engine/engine_session.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/session_accounts.h"
#include "worker/engine/streams.h"

namespace nacre::worker {

class SessionTable {
 public:
  using OnClosing = std::function<void(EngineSession&)>;

  // `outbox` and `accounts` outlive it. `on_closing` is called with each
  // session that closes, while it is still there.
  SessionTable(SessionOutbox* outbox, SessionAccounts* accounts,
               OnClosing on_closing)
      : outbox_(outbox),
        accounts_(accounts),
        on_closing_(std::move(on_closing)) {}

  // ALREADY_EXISTS: a session with this key is open.
  absl::Status CheckNew(SessionKey key) const;
  // A session that was opened with so many tokens.
  void Add(std::unique_ptr<EngineSession> session, size_t num_tokens);

  // nullptr when there is no such session.
  EngineSession* Find(SessionKey key) const {
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : it->second;
  }
  const std::vector<std::unique_ptr<EngineSession>>& all() const {
    return sessions_;
  }
  // Visits the sessions, first the one that the last turn had no room for.
  // visit(session) returns whether this turn has room.
  template <typename Visit>
  void VisitInTurn(const Visit& visit) {
    const size_t count = sessions_.size();
    const size_t first = count == 0 ? 0 : first_ % count;
    left_out_ = false;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = (first + i) % count;
      if (!visit(*sessions_[at]) && !std::exchange(left_out_, true)) {
        first_ = at;
      }
    }
  }
  // Whether there was a session that the last turn had no room for.
  bool left_out() const { return left_out_; }

  // Closes the stream's sessions that are not among `kept`.
  void Reap(StreamId stream, const std::vector<uint64_t>& kept);
  // Closes what a command names, and tells so.
  void CloseAsTold(EngineSession& session);
  void EndStream(StreamId stream);
  // Closes it, and tells why.
  void Fail(EngineSession& session, absl::Status status);

  void RemoveClosed();
  // Closes nothing: for an engine that ends.
  void RemoveAll() { sessions_.clear(); }

 private:
  void Close(EngineSession& session);

  SessionOutbox* const outbox_;
  SessionAccounts* const accounts_;
  const OnClosing on_closing_;
  std::vector<std::unique_ptr<EngineSession>> sessions_;  // in the order opened
  absl::flat_hash_map<SessionKey, EngineSession*> by_key_;
  size_t first_ = 0;       // whose turn it is when there is not room for all
  bool left_out_ = false;  // of the last turn
  bool closing_ = false;   // some session waits for RemoveClosed
};

// A table's sessions as the type that its engine has made them. References
// stay valid until sessions are removed.
template <typename Session>
class TypedSessions {
 public:
  struct Iterator {
    std::vector<std::unique_ptr<EngineSession>>::const_iterator at;
    Session& operator*() const { return static_cast<Session&>(**at); }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at != other.at; }
  };

  // `table` outlives it.
  explicit TypedSessions(SessionTable* table) : table_(table) {}

  Iterator begin() const { return {table_->all().begin()}; }
  Iterator end() const { return {table_->all().end()}; }
  size_t size() const { return table_->all().size(); }
  bool empty() const { return size() == 0; }

  // nullptr when there is no such session.
  Session* Find(SessionKey key) const {
    return static_cast<Session*>(table_->Find(key));
  }
  // See SessionTable.
  template <typename Visit>
  void VisitInTurn(const Visit& visit) const {
    table_->VisitInTurn([&visit](EngineSession& session) {
      return visit(static_cast<Session&>(session));
    });
  }

 private:
  SessionTable* table_;
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_SESSION_TABLE_H_
