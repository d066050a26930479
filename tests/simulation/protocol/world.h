// The whole service in one thread under virtual time: the real dispatcher, the
// real engines of several targets and drafts, simulated connections between
// them and simulated clients. START HERE: RunSchedule(RandomSchedule(seed)).
//
// A worker's step takes virtual time. Its engine runs at the END of that time
// with a clock that shows its start until the forward begins; what arrived
// meanwhile is handed over in the forward, as if it had come during it. Used by
// one thread; a world runs once.

#ifndef TESTS_SIMULATION_PROTOCOL_WORLD_H_
#define TESTS_SIMULATION_PROTOCOL_WORLD_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/dispatcher.h"
#include "coordinator/signs_of_life.h"
#include "draft_worker/draft_engine.h"
#include "target_worker/target_engine.h"
#include "tests/simulation/protocol/checks.h"
#include "tests/simulation/protocol/outcome.h"
#include "tests/simulation/protocol/random.h"
#include "tests/simulation/protocol/schedule.h"
#include "tests/simulation/protocol/simulated_model.h"
#include "tests/simulation/protocol/trace.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"

namespace nacre::protocol {

Outcome RunSchedule(const Schedule& schedule, bool keep_trace = false);

class World {
 public:
  World(const Schedule& schedule, bool keep_trace);
  ~World();

  Outcome Run();

 private:
  // The dispatcher's links.
  template <typename Collecting>
  class Client;
  class TargetClient;
  class DraftClient;
  class Sink;     // coordinator::ResponseSink
  class Tensors;  // the channels for hidden states

  using Events = std::variant<wire::TargetEvents, wire::DraftEvents>;

  // One session stream between the coordinator and a worker: two queues, each
  // in order.
  struct Link {
    int index = 0;
    int worker = 0;
    uint64_t dispatcher_id = 0;  // 0 once the dispatcher was told of its loss
    bool carries_commands = true;
    bool carries_events = true;
    bool drained = false;  // gets no new sessions
    bool lost_at_worker = false;
    // The coordinator's own account of whether the worker lives, and the
    // world's. Kept while it is watched: before, all is well.
    coordinator::SignsOfLife life;
    int64_t heartbeat_ns = 0;
    int64_t answer_ns = 0;
    bool watched = false;
    int64_t last_command_ns = 0;
    int64_t last_event_ns = 0;
    std::deque<target_worker::TargetCommands> target_commands;
    std::deque<draft_worker::DraftCommands> draft_commands;
    struct Message {
      Events events;
      // Who says its verdicts or tails, and then its failures.
      std::vector<SessionOnWorker*> speakers;
    };
    std::deque<Message> events;
    std::vector<SessionOnWorker*> sessions;
  };

  struct Process {
    int index = 0;
    const WorkerOptions* options = nullptr;
    // Null while it is down. The model outlives the engine.
    std::unique_ptr<SimulatedModel> model;
    std::unique_ptr<target_worker::TargetEngine> target;
    std::unique_ptr<draft_worker::DraftEngine> draft;
    uint64_t incarnation = 0;  // old events of it are void
    int64_t clock_ns = 0;      // virtual; its own is shifted by its offset
    bool running = false;      // a RunOnce is due
    bool draining = false;
    bool device_broken = false;
    int64_t run_start_ns = 0;
    int64_t hung_until_ns = 0;
    int64_t deadline_ns = -1;
    uint64_t min_rejected = 0;  // injected messages that it must count
    int64_t events_sent = 0;
    int64_t failures_sent = 0;
    Link* link = nullptr;  // the one it believes in
    // Arrived while a step runs.
    std::vector<target_worker::TargetCommands> target_commands;
    std::vector<draft_worker::DraftCommands> draft_commands;
    // Opened, in the order in which the engine will make their sequences.
    std::deque<SessionOnWorker*> opening;

    bool alive() const { return model != nullptr; }
    bool is_target() const {
      return options->role == coordinator::WorkerRole::kTarget;
    }
    uint64_t rejected() const {
      return target != nullptr ? target->stats().rejected_messages
                               : draft->stats().rejected_messages;
    }
  };

  struct Event {
    enum class Kind : uint8_t {
      kArrive,            // request
      kCancel,            // request
      kRead,              // request
      kCommand,           // link
      kMessage,           // link: of its worker
      kRun,               // process, incarnation
      kDeadline,          // process, incarnation
      kAttach,            // process, incarnation
      kRestart,           // process
      kLostAtWorker,      // link
      kLostAtDispatcher,  // link
      kWatch,             // link
      kResume,            // link
      kTick,              // dispatcher
      kFault,             // fault
      kTensor,            // message of Tensors, incarnation of its draft
    };
    int64_t at_ns;
    uint64_t order;  // among equal times
    Kind kind;
    int subject;
    uint64_t incarnation;
    bool operator>(const Event& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };

  void At(int64_t at_ns, Event::Kind kind, int subject,
          uint64_t incarnation = 0);
  void Handle(const Event& event);
  int64_t Delay();
  void CheckAtEnd();
  Outcome Finish();

  // world_clients.cc
  void Arrive(RequestState& request);
  void Cancel(RequestState& request);
  void Read(RequestState& request);
  void OnEnded(RequestState& request);
  // Whether one takes sessions; of one kind, unless that is empty.
  bool HasReadyTarget(const std::string& numerics_id) const;
  // Whether the request could go on on a target that has not died.
  bool HasOtherTarget(const RequestState& request) const;
  // The request is opened on a target of these numerics.
  void OnOpened(RequestState& request, int numerics);
  const LogitTable& TargetTable(int numerics) const;
  RequestState* FindRequest(const coordinator::RequestSpec& spec);
  void NewDispatcher();
  void Tick();
  void TickAt(int64_t at_ns);  // on the dispatcher's clock

  // world_workers.cc
  static std::string Address(int worker);
  void StartProcess(Process& process);
  void StopProcess(Process& process);
  void Attach(Process& process);
  void StartRun(Process& process);
  void RunProcess(Process& process);
  absl::StatusOr<worker::StepOutcome> RunOnce(Process& process);
  absl::Status OnForward(Process& process,
                         absl::Span<const model::SequenceRows> batch);
  void Push(Process& process, target_worker::TargetCommands commands);
  void Push(Process& process, draft_worker::DraftCommands commands);
  void HandOver(Process& process);
  void Send(Process& process, worker::StreamId stream,
            target_worker::TargetEvents events);
  void Send(Process& process, worker::StreamId stream,
            draft_worker::DraftEvents events);
  // Sends the message on its way, through the codec.
  template <typename Message>
  void Queue(Process& process, Link& link, Message events);
  // Of the message that the worker has just sent.
  template <typename Said>
  std::vector<SessionOnWorker*> Speakers(Link& link, const Said& said,
                                         const wire::SessionEvents& common);
  void DeliverCommand(Link& link);
  void DeliverMessage(Link& link);
  void Deliver(Link& link, const std::vector<SessionOnWorker*>& speakers,
               wire::TargetEvents events);
  void Deliver(Link& link, const std::vector<SessionOnWorker*>& speakers,
               wire::DraftEvents events);
  void HearFailure(SessionOnWorker& session, absl::StatusCode code);
  // What a worker knows by that id: the last opening that has reached it.
  SessionOnWorker* Find(Link& link, uint64_t session_id);
  // The next opening of that id reaches the worker.
  SessionOnWorker* Reach(Link& link, uint64_t session_id);

  // world_faults.cc
  void Inflict(const Fault& fault);
  void Break(Link& link, bool loses_events);
  void Crash(Process& process, bool loses_events, int64_t down_ns);
  void LoseAtWorker(Link& link);
  void LoseAtDispatcher(Link& link);
  void Drain(Link& link);
  void Resume(Link& link);
  void OpenHalf(Link& link, int64_t noticed_ns);
  // From now on the coordinator's rule for silent workers is applied to it.
  void Watch(Link& link);
  void CheckLife(Link& link);
  void Inject(Process& process);
  void InjectEvents(Link& link, SessionOnWorker* session);
  void InjectCommands(Process& process, Link& link, SessionOnWorker* session);
  void RestartCoordinator();
  void Tamper(wire::TargetEvents&, Link&) {}
  void Tamper(wire::DraftEvents& events, Link& link);

  const Schedule& schedule_;
  Random random_;
  Trace trace_;
  Checks checks_;
  Counts counts_;
  int64_t now_ns_ = 1;
  uint64_t next_order_ = 0;
  std::vector<Event> events_;  // a heap
  bool had_target_ = false;    // this dispatcher
  bool broke_device_ = false;
  int64_t commands_sent_ = 0;

  std::vector<RequestState> requests_;
  std::vector<Process> processes_;
  std::deque<Link> links_;
  std::deque<SessionOnWorker> sessions_;
  const LetterTokenizer& tokenizer_;
  std::unique_ptr<coordinator::Dispatcher> dispatcher_;
  std::unique_ptr<Tensors> tensors_;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_WORLD_H_
