// The coordinator's end of a simulated connection. Only for the world's own
// sources.

#ifndef TESTS_SIMULATION_PROTOCOL_WORLD_CLIENT_H_
#define TESTS_SIMULATION_PROTOCOL_WORLD_CLIENT_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "coordinator/collecting_links.h"
#include "tests/simulation/protocol/world.h"
#include "wire/session_codec.h"

namespace nacre::protocol {

// Puts messages through the codec onto the connection, as StreamLink does.
// `Collecting` is a CollectingTargetLink or a CollectingDraftLink.
template <typename Collecting>
class World::Client : public Collecting {
 public:
  Client(World* world, Link* link) : world_(world), link_(link) {}

  void Close(uint64_t session_id) override {
    Collecting::Close(session_id);
    // What a target says of a session that was taken from it is void.
    for (const SessionOnWorker* session : link_->sessions) {
      if (session->session_id == session_id &&
          session->request->target == session) {
        session->request->target = nullptr;
      }
    }
  }
  // There is one thread: what is cut goes out.
  void Flush() override {}
  int64_t clock_offset_ns() const override {
    return options().clock_offset_ns - world_->schedule_.coordinator_clock_ns;
  }
  int64_t round_trip_ns() const override { return world_->schedule_.hop_ns; }

 protected:
  const WorkerOptions& options() const {
    return *world_->processes_[static_cast<size_t>(link_->worker)].options;
  }
  SessionOnWorker& Opened(uint64_t session_id, coordinator::WorkerRole role,
                          const coordinator::RequestSpec& request, int length,
                          uint32_t epoch) {
    world_->counts_.returned +=
        std::any_of(link_->sessions.begin(), link_->sessions.end(),
                    [session_id](const SessionOnWorker* session) {
                      return session->session_id == session_id;
                    });
    SessionOnWorker& session = world_->sessions_.emplace_back();
    session.request = world_->FindRequest(request);
    session.session_id = session_id;
    session.role = role;
    session.epoch = epoch;
    session.opened_length = session.committed = length;
    link_->sessions.push_back(&session);
    return session;
  }
  template <typename FromStream, typename Commands>
  void Put(const Commands& sent, std::deque<FromStream>* queue) {
    ++world_->commands_sent_;
    if (!link_->carries_commands) return;
    FromStream& arrives = queue->emplace_back();
    Commands& decoded = arrives;
    decoded = wire::Decode(wire::Encode(sent));
    // A tail that was tampered with may hold what is not equal to itself.
    if (!world_->schedule_.tampers && decoded != sent) {
      world_->checks_.Fail("the wire changes commands");
    }
    arrives.stream = static_cast<uint64_t>(link_->index) + 1;
    link_->last_command_ns =
        std::max(link_->last_command_ns, world_->now_ns_ + world_->Delay());
    world_->At(link_->last_command_ns, Event::Kind::kCommand, link_->index);
  }

  World* const world_;
  Link* const link_;
};

class World::TargetClient final
    : public Client<coordinator::CollectingTargetLink> {
 public:
  using Client::Client;
  void OpenTarget(const coordinator::TargetOpening& opening) override;

 private:
  void Queue(coordinator::TargetMessage message) override {
    Put(std::move(message).Take(), &link_->target_commands);
  }
};

class World::DraftClient final
    : public Client<coordinator::CollectingDraftLink> {
 public:
  using Client::Client;
  void OpenDraft(const coordinator::DraftOpening& opening) override;

 private:
  void Queue(coordinator::DraftMessage message) override {
    Put(std::move(message).Take(), &link_->draft_commands);
  }
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_WORLD_CLIENT_H_
