// The world of simulation/world.h under faults: every message, step and crash
// is decided by one seed and looked at by the checks. START HERE:
// RunSchedule(RandomSchedule(seed)).
//
// Used by one thread; a world runs once.

#ifndef TESTS_SIMULATION_PROTOCOL_WORLD_H_
#define TESTS_SIMULATION_PROTOCOL_WORLD_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/fleet/signs_of_life.h"
#include "simulation/world.h"
#include "tests/simulation/protocol/checks.h"
#include "tests/simulation/protocol/open_sessions.h"
#include "tests/simulation/protocol/outcome.h"
#include "tests/simulation/protocol/queue_order.h"
#include "tests/simulation/protocol/schedule.h"
#include "tests/simulation/protocol/simulated_drafter.h"
#include "tests/simulation/protocol/simulated_heads.h"
#include "tests/simulation/protocol/simulated_model.h"
#include "tests/simulation/protocol/trace.h"

namespace nacre::protocol {

Outcome RunSchedule(const Schedule& schedule, bool keep_trace = false);

class World final : public simulation::World {
 public:
  World(const Schedule& schedule, bool keep_trace);
  ~World() override;

  Outcome Run();

 private:
  class Sink;     // coordinator::ResponseSink
  class Tensors;  // the channels for hidden states

  // What the world knows of a connection, besides.
  struct Stream {
    bool drained = false;  // gets no new sessions
    // The coordinator's own account of whether the worker lives, and the
    // world's. Kept while it is watched: before, all is well.
    coordinator::SignsOfLife life;
    int64_t heartbeat_ns = 0;
    int64_t answer_ns = 0;
    bool watched = false;
    // What the coordinator has heard of its share.
    uint64_t grant_serial = 0;
    int64_t granted = 0;
    std::vector<SessionOnWorker*> sessions;
    OpenSessions at_worker;
    OpenSessions at_coordinator;
  };
  // Of a message: which say its verdicts or tails, and then its failures.
  using Speakers = std::vector<SessionOnWorker*>;

  // Of a coordinator.
  struct Service {
    bool had_target = false;
    bool stops = false;
    int64_t cut_off_until_ns = 0;  // from the workers
    QueueOrder queue;
  };

  // And of a process.
  struct Worker {
    const WorkerOptions* options = nullptr;
    bool device_broken = false;
    bool drains = false;        // and says so to each coordinator
    uint64_t min_rejected = 0;  // injected messages that it must count
    int64_t events_sent = 0;
    int64_t failures_sent = 0;
    std::unique_ptr<SimulatedHeads> heads;      // of a target; null: none
    std::unique_ptr<SimulatedDrafter> drafter;  // likewise
    // In a look. What arrives then is looked at when the step has told what it
    // found before.
    bool looks = false;
    std::vector<std::pair<Connection*, wire::TargetCommands>> arrived;
    SessionOnWorker* opened = nullptr;  // whose sequence was made last
    // Opened, in the order in which the engine will make their sequences.
    std::deque<SessionOnWorker*> opening;
  };

  Stream& StreamOf(const Connection& connection);
  Service& ServiceOf(int coordinator) {
    return services_[static_cast<size_t>(coordinator)];
  }
  Worker& WorkerOf(const Process& process) {
    return workers_[static_cast<size_t>(process.index)];
  }
  const WorkerOptions& OptionsOf(int worker) const {
    return schedule_.workers[static_cast<size_t>(worker)];
  }
  Process& ProcessOf(const Connection& connection) {
    return processes_[static_cast<size_t>(connection.worker)];
  }
  SimulatedModel& ModelOf(const Process& process) const {
    return static_cast<SimulatedModel&>(*process.model);
  }
  // `run` at that time, if the process lives on till then.
  void AtProcess(int64_t at_ns, Process& process, void (World::*run)(Process&));
  void CheckAtEnd();
  Outcome Finish();

  // world_clients.cc
  void Arrive(RequestState& request);
  void Cancel(RequestState& request);
  void Read(RequestState& request);
  // The client calls that coordinator.
  void Call(RequestState& request, int coordinator);
  // The call has ended so. That has a reason, and the client calls again if it
  // may.
  void OnFailed(RequestState& request, const absl::Status& status,
                bool has_reason = false);
  bool HasReason(const RequestState& request, const absl::Status& status);
  bool HasTimeToGoOn(const RequestState& request);
  bool LacksKind(const RequestState& request);
  bool LacksRoom(const RequestState& request);
  // Whether what is free on these targets is for another that has run.
  bool IsKept(const RequestState& request, int numerics) const;
  // Whether a target that takes sessions has room for it that is not reserved,
  // nor kept, and a place.
  bool HasFreeRoom(const RequestState& request);
  // Whether a target of the coordinator takes sessions; of one kind, unless
  // that is empty.
  bool HasReadyTarget(int coordinator, const std::string& numerics_id);
  // Whether the request could go on on a target of its coordinator that has not
  // died.
  bool HasOtherTarget(const RequestState& request);
  // The call begins to wait at its coordinator, and starts on a target: whether
  // it may is looked at when the coordinator has done what it does now.
  void JoinQueue(const RequestState& request,
                 const coordinator::RequestSpec& spec);
  void CheckTurn(const SessionOnWorker& session, const Connection& connection);
  // It is opened on a target of these numerics.
  void OnOpened(const SessionOnWorker& session, int numerics);
  const LogitTable& TargetTable(int numerics) const;
  RequestState* FindRequest(const coordinator::RequestSpec& spec);
  void Restart(int coordinator);

  // world_coordinators.cc
  // The client calls the next coordinator in turn that is there.
  void CallAgain(RequestState& request);
  void CallAgainLater(RequestState& request);
  bool MayCallAgain(const RequestState& request,
                    const absl::Status& status) const;
  bool LosesEnd(RequestState& request);
  // What such a call says.
  absl::Status GoOn(const RequestState& request,
                    coordinator::RequestSpec* spec);
  void LoseClients(int coordinator);
  void StopService(const Fault& fault);
  void CutOff(const Fault& fault);
  void CutClients(int coordinator);
  bool CanReach(const Process& process, int coordinator);
  void CheckShares(const Process& process);
  void CheckGrantsAtEnd(const Process& process);
  // Where there is always room in what was granted.
  void CheckRefusals(const Connection& connection,
                     const wire::SessionEvents& events);
  // No session fails for a path that its sequence cannot keep.
  void CheckFailures(const wire::SessionEvents& events);
  int64_t SharedKvOf(const Process& process) const override;
  int64_t HeartbeatPeriodNs() const override;
  void OnGranted(Connection& connection,
                 const coordinator::KvGrant& grant) override;

  // world_workers.cc
  // To all coordinators that it lacks.
  void AttachWorker(Process& process);
  void AttachTo(Process& process, int coordinator);
  void StartAndAttach(Process& process);
  absl::Status OnForward(Process& process,
                         absl::Span<const model::SequenceRows> batch);
  void EquipToDraft(Process& process,
                    target_worker::TargetEngine::Options* options);
  // A look of so many rows: its time passes.
  absl::Status Look(Process& process, int rows);
  std::unique_ptr<model::LanguageModel> NewModel(Process& process) override;
  bool DrawsTokens(const Process& process) const;
  static int KeptBlocks(const Process& process);
  coordinator::WorkerInfo InfoOf(const Process& process) override;
  simulation::LinkDelay HopOf(const Process& process) const override;
  int64_t ClockOffsetOf(const Process& process) const override;
  int64_t DelayToLook(const Process& process) override;
  bool HangsIdle(const Process&) override { return random_.Percent(20); }
  void Equip(const Process& process,
             target_worker::TargetEngine::Options* options) override;
  void Equip(const Process& process,
             draft_worker::DraftEngine::Options* options) override;
  void OnRan(Process& process) override;
  void OnGateTimeout(Process& process) override;
  void OnDeviceError(Process& process) override;

  // world_messages.cc
  SessionOnWorker& Opened(Connection& connection, uint64_t session_id,
                          const coordinator::RequestSpec& request, int length,
                          uint32_t epoch);
  void OnOpening(Connection& connection,
                 const coordinator::TargetOpening& opening) override;
  void OnOpening(Connection& connection,
                 const coordinator::DraftOpening& opening) override;
  void OnClosing(Connection& connection, uint64_t session_id) override;
  void OnCommands(Connection&, wire::TargetCommands*) override {
    ++commands_sent_;
  }
  void OnCommands(Connection&, wire::DraftCommands*) override {
    ++commands_sent_;
  }
  void OnArrived(Connection& connection,
                 const wire::TargetCommands& commands) override;
  void OnArrived(Connection& connection,
                 const wire::DraftCommands& commands) override;
  // Where the session's draft grows a tree.
  void GrowTree(SessionOnWorker& session, speculation::Tail* tail);
  void OnSaid(Connection& connection, wire::TargetEvents* events) override;
  void OnSaid(Connection& connection, wire::DraftEvents* events) override;
  std::shared_ptr<const void> NoteOf(Connection& connection,
                                     const wire::TargetEvents& events) override;
  std::shared_ptr<const void> NoteOf(Connection& connection,
                                     const wire::DraftEvents& events) override;
  void OnHeard(Connection& connection, const void* note,
               const wire::TargetEvents& events) override;
  void OnHeard(Connection& connection, const void* note,
               const wire::DraftEvents& events) override;
  // A tail that was tampered with may hold what is not equal to itself.
  bool ChecksCodec() const override { return !schedule_.tampers; }
  void OnCodecError(Connection& connection) override;
  void OnLosing(Connection& connection) override;
  template <typename Said>
  std::shared_ptr<const void> SpeakersOf(Connection& connection,
                                         const Said& said,
                                         const wire::SessionEvents& common);
  void HearFailure(SessionOnWorker& session, absl::StatusCode code);
  // What a worker knows by that id: the last opening that has reached it.
  SessionOnWorker* Find(Connection& connection, uint64_t session_id);
  // The next opening of that id reaches the worker.
  SessionOnWorker* Reach(Connection& connection, uint64_t session_id);

  // world_faults.cc
  void Inflict(const Fault& fault);
  void Inflict(const Fault& fault, Process& process);
  void Break(Connection& connection, bool loses_events);
  void Crash(Process& process, bool loses_events, int64_t down_ns);
  void LoseAtWorkerSoon(Connection& connection, int64_t at_ns);
  void LoseAtDispatcherSoon(Connection& connection);
  void OnLostAtWorker(Connection& connection);
  void Drain(Connection& connection);
  void DrainSoon(Connection& connection, int64_t most_ns);
  void DrainProcess(Process& process, Connection* told);
  void ResumeProcess(Connection& told);
  void Resume(Connection& connection);
  void OpenHalf(Connection& connection, int64_t noticed_ns);
  // From now on the coordinator's rule for silent workers is applied to it.
  void Watch(Connection& connection);
  void WatchAll(Process& process);
  void CheckLife(Connection& connection);
  void Inject(Process& process, Connection* connection);
  void InjectEvents(Connection& connection, SessionOnWorker* session);
  void InjectCommands(Process& process, Connection& connection,
                      SessionOnWorker* session);
  void Tamper(wire::DraftEvents* events, Connection& connection);

  const Schedule& schedule_;
  const bool keeps_trace_;
  Trace trace_;
  Checks checks_;
  Counts counts_;
  bool broke_device_ = false;
  int64_t commands_sent_ = 0;

  std::vector<RequestState> requests_;
  std::vector<Service> services_;
  int turn_ = 0;  // of the coordinators: which is called next
  std::vector<Worker> workers_;
  std::deque<Stream> streams_;
  std::deque<SessionOnWorker> sessions_;
  const LetterTokenizer& tokenizer_;
  std::unique_ptr<Tensors> tensors_;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_WORLD_H_
