// The connections of a world: the dispatchers' links, the codec, and what gets
// lost.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatch/collecting_links.h"
#include "simulation/world.h"
#include "simulation/world_heartbeats.h"
#include "wire/session_codec.h"

namespace nacre::simulation {

// The coordinator's end of a connection, as StreamLink is over gRPC.
// `Collecting` is a CollectingTargetLink or a CollectingDraftLink.
template <typename Collecting>
class World::Client : public Collecting {
 public:
  Client(World* world, Connection* connection)
      : world_(world), connection_(connection) {}

  void Close(uint64_t session_id) override {
    Collecting::Close(session_id);
    world_->OnClosing(*connection_, session_id);
  }
  // There is one thread: what is cut goes out.
  void Flush() override {}
  int64_t clock_offset_ns() const override {
    return world_->ClockOffsetOf(process()) -
           world_->coordinators_[static_cast<size_t>(connection_->coordinator)]
               .clock_ns;
  }
  // As it would be measured, which is never 0: that is "not known".
  int64_t round_trip_ns() const override {
    return std::max<int64_t>(
        1, static_cast<int64_t>(2 * world_->HopOf(process()).mean_ns()));
  }

 protected:
  const Process& process() const {
    return world_->processes_[static_cast<size_t>(connection_->worker)];
  }
  template <typename FromStream, typename Commands>
  void Put(Commands commands, std::deque<FromStream>* queue) {
    world_->OnCommands(*connection_, &commands);
    if (!connection_->carries_commands) return;
    FromStream& arrives = queue->emplace_back();
    Commands& decoded = arrives;
    decoded = wire::Decode(wire::Encode(commands));
    if (world_->ChecksCodec() && decoded != commands) {
      world_->OnCodecError(*connection_);
    }
    arrives.stream = static_cast<uint64_t>(connection_->index) + 1;
    connection_->to_worker.Send([world = world_, connection = connection_] {
      world->DeliverCommand(connection);
    });
  }

  World* const world_;
  Connection* const connection_;
};

class World::TargetClient final
    : public Client<coordinator::CollectingTargetLink> {
 public:
  using Client::Client;
  void OpenTarget(const coordinator::TargetOpening& opening) override {
    world_->OnOpening(*connection_, opening);
    CollectingTargetLink::OpenTarget(opening);
  }

 private:
  void Queue(coordinator::TargetMessage message) override {
    Put(std::move(message).Take(), &connection_->target_commands);
  }
};

class World::DraftClient final
    : public Client<coordinator::CollectingDraftLink> {
 public:
  using Client::Client;
  void OpenDraft(const coordinator::DraftOpening& opening) override {
    world_->OnOpening(*connection_, opening);
    CollectingDraftLink::OpenDraft(opening);
  }

 private:
  void Queue(coordinator::DraftMessage message) override {
    Put(std::move(message).Take(), &connection_->draft_commands);
  }
};

absl::StatusOr<World::Connection*> World::Attach(Process& process,
                                                 int coordinator) {
  Coordinator& to = coordinators_[static_cast<size_t>(coordinator)];
  Connection& connection = connections_.emplace_back(
      static_cast<int>(connections_.size()), process.index, to, &queue_,
      &random_, HopOf(process));
  process.connections.resize(coordinators_.size());
  process.connections[static_cast<size_t>(coordinator)] = &connection;
  coordinator::WorkerInfo info = InfoOf(process);
  info.grants_kv = process.grants.has_value();
  info.role = process.role;
  info.address = AddressOf(process.index);
  info.incarnation = absl::StrCat(process.incarnation);
  const absl::StatusOr<uint64_t> id =
      process.is_target()
          ? to.dispatcher->AddTarget(
                std::move(info),
                std::make_shared<TargetClient>(this, &connection))
          : to.dispatcher->AddDraft(
                std::move(info),
                std::make_shared<DraftClient>(this, &connection));
  if (!id.ok()) return id.status();
  connection.dispatcher_id = *id;
  heartbeats_->Begin(connection);
  return &connection;
}

void World::Cut(Connection& connection, bool loses_events) {
  connection.carries_commands = connection.carries_events = false;
  connection.target_commands.clear();
  connection.draft_commands.clear();
  if (loses_events) connection.events.clear();
}

void World::LoseAtDispatcher(Connection& connection) {
  if (connection.dispatcher_id == 0) return;
  OnLosing(connection);
  dispatcher(connection.coordinator)
      ->RemoveWorker(std::exchange(connection.dispatcher_id, 0));
}

void World::LoseAtWorker(Connection& connection) {
  Process& process = processes_[static_cast<size_t>(connection.worker)];
  connection.lost_at_worker = true;
  connection.carries_commands = connection.carries_events = false;
  connection.target_commands.clear();
  connection.draft_commands.clear();
  const bool believed =
      process.connection(connection.coordinator) == &connection;
  if (believed) {
    process.connections[static_cast<size_t>(connection.coordinator)] = nullptr;
  }
  if (process.is_target()) {
    target_worker::TargetCommands commands;
    commands.stream = static_cast<uint64_t>(connection.index) + 1;
    commands.stream_ended = true;
    process.Push(std::move(commands));
  } else {
    draft_worker::DraftCommands commands;
    commands.stream = static_cast<uint64_t>(connection.index) + 1;
    commands.stream_ended = true;
    process.Push(std::move(commands));
  }
  if (believed) heartbeats_->OnLost(connection);
  Stir(process);
}

// What was cleared meanwhile is not there; what was sent since takes its place,
// which is all the same: order and times of arrival are.
void World::DeliverCommand(Connection* connection) {
  Process& process = processes_[static_cast<size_t>(connection->worker)];
  if (!connection->target_commands.empty()) {
    target_worker::TargetCommands commands =
        std::move(connection->target_commands.front());
    connection->target_commands.pop_front();
    OnArrived(*connection, commands);
    heartbeats_->OnReport(*connection, commands.kv_report);
    process.Push(std::move(commands));
  } else if (!connection->draft_commands.empty()) {
    draft_worker::DraftCommands commands =
        std::move(connection->draft_commands.front());
    connection->draft_commands.pop_front();
    OnArrived(*connection, commands);
    heartbeats_->OnReport(*connection, commands.kv_report);
    process.Push(std::move(commands));
  } else {
    return;
  }
  Stir(process);
}

template <typename Message>
void World::Say(Process& process, worker::StreamId stream, Message said) {
  if (process.stopping) return;
  Connection& connection = connections_[stream - 1];
  OnSaid(connection, &said);
  if (!connection.carries_events) return;
  Message arrives = wire::Decode(wire::Encode(said));
  if (ChecksCodec() && arrives != said) OnCodecError(connection);
  std::shared_ptr<const void> note = NoteOf(connection, arrives);
  connection.events.push_back({std::move(arrives), std::move(note)});
  connection.to_dispatcher.Send(
      [this, &connection] { DeliverEvents(&connection); });
}

template void World::Say(Process&, worker::StreamId, wire::TargetEvents);
template void World::Say(Process&, worker::StreamId, wire::DraftEvents);

void World::DeliverEvents(Connection* connection) {
  if (connection->events.empty()) return;
  Connection::Message message = std::move(connection->events.front());
  connection->events.pop_front();
  if (connection->dispatcher_id == 0) return;
  std::visit(
      [&](auto& said) {
        OnHeard(*connection, message.note.get(), said);
        dispatcher(connection->coordinator)
            ->OnEvents(connection->dispatcher_id, std::move(said));
      },
      message.events);
}

}  // namespace nacre::simulation
