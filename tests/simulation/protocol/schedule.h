// What one seed decides before anything runs: the fleet, the requests and the
// faults. What it decides later (every delay) comes from World's generator.
//
// Plain values. Times: virtual nanoseconds from the start.

#ifndef TESTS_SIMULATION_PROTOCOL_SCHEDULE_H_
#define TESTS_SIMULATION_PROTOCOL_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/worker_info.h"
#include "simulation/random.h"
#include "worker/engine/step_budget.h"

namespace nacre::protocol {

using simulation::Random;

inline constexpr int kVocabSize = 8;
inline constexpr int32_t kEos = kVocabSize - 1;
inline constexpr int64_t kMicrosecond = 1'000;
inline constexpr int64_t kMillisecond = 1'000'000;
// Far longer than all requests of a schedule take one after another.
inline constexpr int64_t kNoStarvation = 20'000 * kMillisecond;

// How far a draft's table is from its target's; see tests/testing/table_model.h
enum class DraftKind { kPerfect, kGood, kFair, kPoor, kAdversarial };
inline constexpr int kNumDraftKinds = 5;

// What drafts read of their targets.
enum class DraftReads { kNothing, kKeysValues, kFeatures };

// The fingerprints of the drafts, and of a draft that there is not.
inline constexpr char kDraftFingerprint[] = "draft";
inline constexpr char kAnotherDraft[] = "another draft";

// A draft of the targets' own (simulated_drafter.h).
struct OwnDrafter {
  bool reads_kv = false;  // and not features
  DraftKind kind = DraftKind::kPerfect;
  int max_depth = 1;
  int percent_full = 0;  // of its calls, where it might lack room
  int fails_at = 0;      // the call of a process that fails; 0: none does
};

struct WorkerOptions {
  coordinator::WorkerRole role = coordinator::WorkerRole::kTarget;
  DraftKind draft_kind = DraftKind::kPerfect;
  int numerics = 0;  // of a target: others say something else
  int64_t kv_capacity_tokens = 0;
  bool has_little_kv = false;  // perhaps too little
  int block_size = 2;          // of its KV, in tokens
  bool shares_prefixes = true;
  bool has_policy_files = false;  // of a draft
  int context_length = 1024;
  int64_t suffix_cache_bytes = 0;  // of a target
  bool is_interruptible = false;   // a forward may end early
  worker::StepBudget budget;
  int64_t step_ns = kMillisecond;  // at least; up to twice as long
  int64_t clock_offset_ns = 0;     // its clock minus the virtual time
};

struct RequestOptions {
  coordinator::RequestSpec spec;
  int64_t arrival_ns = 0;
  int64_t cancel_ns = -1;    // the client cancels, or is lost; -1: it does not
  int64_t deadline_ns = -1;  // -1: none
  int64_t read_ns = 0;       // the client takes this long for a chunk
  // Its connection breaks as its first call completes.
  bool loses_end = false;
  // Its oracle's recording is what targets of numerics 0 answer.
  bool oracle_is_right = false;
};

struct Fault {
  enum class Kind {
    kBreak,               // the connection is lost with all it carried
    kHang,                // the process stops for a while
    kHalfOpen,            // the connection loses one direction: none is told
    kSilence,             // the process stops for longer; its connection stands
    kCrash,               // the process dies; another incarnation comes back
    kDeviceError,         // the next forward fails: the process exits
    kDrain,               // no new sessions; those it has move or stay;
                          // perhaps it takes sessions again
    kInject,              // a stale, repeated or malformed message
    kRestartCoordinator,  // all its clients and connections are lost
    // Only of a service whose coordinators share their workers:
    kStopCoordinator,  // likewise, and it stays away for a while
    kPartition,        // it loses all workers, for a while
    kCutClients,       // it loses its clients, which go on elsewhere
    kLateHeartbeats,   // the worker says none for a while
  };
  Kind kind = Kind::kBreak;
  int64_t at_ns = 0;
  int worker = 0;
  // Whose connection to the worker it is.
  int coordinator = 0;
  // Of a hang or a silence; until a crashed process is back, or the worker
  // notices that its connection is half open; of a drain, 0: for ever.
  int64_t duration_ns = 0;

  // Else it is one of the coordinator.
  bool is_of_worker() const {
    switch (kind) {
      case Kind::kRestartCoordinator:
      case Kind::kStopCoordinator:
      case Kind::kPartition:
      case Kind::kCutClients:
        return false;
      default:
        return true;
    }
  }
};

struct Schedule {
  uint64_t seed = 0;
  int table = 0;         // which target model
  int64_t hop_ns = 0;    // most of a message's way takes up to this
  int slow_percent = 0;  // of the messages, which take up to 30 times as long
  int64_t coordinator_clock_ns = 0;
  int64_t failover_timeout_ns = 0;
  int64_t worker_timeout_ns = 0;  // a silent worker is out of service
  int64_t queue_timeout_ns = 60'000 * kMillisecond;
  bool hold_without_target = true;
  DraftReads drafts_read = DraftReads::kNothing;
  // Of features: the draft that the targets have some for; empty: none have.
  std::string features_of;
  int64_t feature_bytes = 0;  // of a target
  int max_lag = 1;            // of a draft
  // What the targets have heads from (simulated_heads.h); absent: none have.
  absl::optional<DraftKind> heads = {};
  absl::optional<OwnDrafter> drafter = {};  // absent: they have none
  // What a call of either takes, of what a target's step takes.
  int look_percent = 0;
  // A target drains under many requests, and nothing else goes wrong: none may
  // be lost.
  bool drains_many = false;
  int max_running = 0;  // sessions of a coordinator on each target; 0: any
  // Several coordinators may share the workers, each of which grants them parts
  // of its KV by heartbeats as often as this, and clients go on elsewhere where
  // they lose one. 0: there is one, which has all of the workers; a client that
  // loses it gives up.
  int num_coordinators = 1;
  int64_t heartbeat_ns = 0;
  bool is_shared() const { return heartbeat_ns > 0; }
  // A coordinator's clock minus the virtual time.
  int64_t ClockOf(int coordinator) const {
    return coordinator_clock_ns + coordinator * 7 * kMillisecond;
  }
  // What drafts say changes on its way: tokens, marks, distributions.
  bool tampers = false;
  // Whether a target's gate opens by time. Without, a stop mark that is missing
  // shows as a gate that never opens.
  bool gate_timeouts = true;
  // As of Dispatcher::Options.
  int draft_rows = 1;
  int tree_rows = 0;
  // Whether drafts have slots where there is room for them: then they grow
  // trees.
  bool drafts_have_slots = false;
  std::vector<WorkerOptions> workers;
  std::vector<RequestOptions> requests;
  std::vector<Fault> faults;

  // Whether the drafts of a request tell their chains as trees. Not under the
  // ratio test, and not where they grow trees.
  bool GrowsTree(int request) const;
};

Schedule RandomSchedule(uint64_t seed);

// Whether that schedule is one that drains_many.
bool DrainsMany(uint64_t seed);

// What targets of these numerics call them.
std::string NumericsId(int numerics);

// One or two lines for a failure report.
std::string Describe(const Schedule& schedule);

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_SCHEDULE_H_
