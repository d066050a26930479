// The worker processes of the world: what their models compute and how long it
// takes.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/protocol/policies.h"
#include "tests/simulation/protocol/world.h"
#include "tests/simulation/protocol/world_tensors.h"

namespace nacre::protocol {
namespace {

absl::optional<RowReading> ReadingOf(const Schedule& schedule) {
  switch (schedule.drafts_read) {
    case DraftReads::kNothing:
      return absl::nullopt;
    case DraftReads::kKeysValues:
      return RowReading{.shape = kKeysValuesShape};
    case DraftReads::kFeatures:
      return RowReading{kFeaturesShape, kDraftFingerprint, schedule.max_lag};
  }
  return absl::nullopt;
}

}  // namespace

std::unique_ptr<model::LanguageModel> World::NewModel(Process& process) {
  Worker& worker = WorkerOf(process);
  const WorkerOptions& options = *worker.options;
  worker.device_broken = worker.drains = false;
  worker.min_rejected = 0;
  worker.failures_sent = 0;
  worker.opening.clear();
  worker.arrived.clear();
  return std::make_unique<SimulatedModel>(SimulatedModel::Options{
      .table = process.is_target()
                   ? &TargetTable(options.numerics)
                   : &LogitTable::Draft(schedule_.table, options.draft_kind),
      .kv_capacity_tokens = options.kv_capacity_tokens,
      .block_size = options.block_size,
      .shares_prefixes = options.shares_prefixes,
      .kept_blocks = KeptBlocks(process),
      .draws_tokens = DrawsTokens(process),
      .context_length = options.context_length,
      .is_interruptible = options.is_interruptible,
      // What other drafts say is made a tree elsewhere (tree_writer.h).
      .has_slots = process.is_target() || schedule_.drafts_have_slots,
      .reads = process.is_target() ? absl::nullopt : ReadingOf(schedule_),
      .features_of = process.is_target() ? schedule_.features_of : "",
      .next_session = [this, &process, &worker]() -> SessionOnWorker* {
        if (worker.opening.empty()) {
          checks_.Fail("worker ", process.index,
                       " makes a sequence that nobody opened");
          return &sessions_.emplace_back();
        }
        SessionOnWorker* session = worker.opening.front();
        worker.opening.pop_front();
        worker.opened = session;
        return session;
      },
      .on_sequence =
          [](SimulatedSequence* sequence, bool lives) {
            sequence->session->sequence = lives ? sequence : nullptr;
          },
      .on_forward =
          [this, &process](absl::Span<const model::SequenceRows> batch) {
            return OnForward(process, batch);
          },
      .on_interrupted =
          [this](absl::Span<const model::SequenceRows> batch) {
            checks_.OnAbandoned(batch);
          },
      .on_fed_again =
          [this](const SimulatedSequence& sequence, int position) {
            checks_.OnFedAgain(sequence, position);
          },
      .on_kept =
          [this](const SimulatedSequence& sequence, int count) {
            const bool is_draft =
                sequence.session->role == coordinator::WorkerRole::kDraft;
            counts_.kept_slots += is_draft ? count : 0;
          }});
}

// Some do; one that comes back may have changed its mind. Those that grow trees
// do less often: theirs are the chains that this is about.
bool World::DrawsTokens(const Process& process) const {
  const uint64_t draw =
      static_cast<uint64_t>(process.index) + process.incarnation;
  const bool may_grow = !process.is_target() && schedule_.drafts_have_slots;
  return draw % (may_grow ? 6 : 2) == 0;
}

// None, few or some; another number after a restart.
int World::KeptBlocks(const Process& process) {
  return static_cast<int>((process.index + process.incarnation) % 4) * 3;
}

int64_t World::ClockOffsetOf(const Process& process) const {
  return OptionsOf(process.index).clock_offset_ns;
}

int64_t World::DelayToLook(const Process& process) {
  const int64_t step_ns = OptionsOf(process.index).step_ns;
  return random_.Percent(50) ? 0 : random_.Between(0, 2 * step_ns);
}

simulation::LinkDelay World::HopOf(const Process&) const {
  return {0, schedule_.hop_ns, schedule_.slow_percent};
}

void World::Equip(const Process& process,
                  target_worker::TargetEngine::Options* options) {
  options->budget = OptionsOf(process.index).budget;
  options->gate_timeouts = schedule_.gate_timeouts;
  options->suffix_cache_bytes = OptionsOf(process.index).suffix_cache_bytes;
  options->tensors = tensors_->PublisherOf(process.index);
  options->rows = &ModelOf(process);
  options->feature_source = ModelOf(process).feature_source();
  options->feature_bytes = schedule_.feature_bytes;
  EquipToDraft(processes_[static_cast<size_t>(process.index)], options);
}

void World::EquipToDraft(Process& process,
                         target_worker::TargetEngine::Options* options) {
  Worker& worker = WorkerOf(process);
  if (schedule_.heads.has_value()) {
    worker.heads = std::make_unique<SimulatedHeads>(
        &TargetTable(OptionsOf(process.index).numerics),
        &LogitTable::Draft(schedule_.table, *schedule_.heads),
        [this, &process](int rows) {
          counts_.timed_head_looks += schedule_.look_percent > 0 ? rows : 0;
          // Should the process die, nothing of it is heard any more.
          static_cast<void>(Look(process, rows));
        });
    options->heads = worker.heads.get();
  }
  if (schedule_.drafter.has_value()) {
    worker
        .drafter = std::make_unique<SimulatedDrafter>(SimulatedDrafter::Options{
        .kind = *schedule_.drafter,
        .table = &LogitTable::Draft(schedule_.table, schedule_.drafter->kind),
        .model = &ModelOf(process),
        .seed = schedule_.seed * 64 + process.incarnation,
        .next_session = [&worker] { return worker.opened; },
        .on_forward = [this,
                       &process](int rows) { return Look(process, rows); },
        .on_wrong = [this](const std::string& wrong) { checks_.Fail(wrong); },
        .counts = &counts_});
    options->feature_drafter = worker.drafter.get();
  }
}

absl::Status World::Look(Process& process, int rows) {
  const int64_t least_ns =
      OptionsOf(process.index).step_ns * schedule_.look_percent / 100;
  if (least_ns == 0) return absl::OkStatus();
  // A large one takes twice as long.
  const int64_t duration_ns =
      random_.Between(least_ns, 2 * least_ns) + least_ns * rows / 256;
  trace_.Add(now_ns(), "worker # looks with # rows until # us", process.index,
             rows, (now_ns() + duration_ns) / 1000);
  WorkerOf(process).looks = true;
  const absl::Status status = Compute(process, duration_ns);
  WorkerOf(process).looks = false;
  return status;
}

void World::Equip(const Process& process,
                  draft_worker::DraftEngine::Options* options) {
  options->budget = OptionsOf(process.index).budget;
  options->policies = &Library(OptionsOf(process.index).has_policy_files);
  options->tensors = tensors_->ReaderOf(process.index);
}

coordinator::WorkerInfo World::InfoOf(const Process& process) {
  const WorkerOptions& options = OptionsOf(process.index);
  coordinator::WorkerInfo info;
  info.fingerprint = process.is_target() ? "target" : kDraftFingerprint;
  info.numerics_id = NumericsId(options.numerics);
  info.model_vocab_size = info.tokenizer_vocab_size = kVocabSize;
  info.context_length = options.context_length;
  info.abandons_steps = !process.is_target() && options.is_interruptible;
  info.eos_token_ids = {kEos};
  info.kv_capacity_tokens = options.kv_capacity_tokens;
  info.policy_files = Library(options.has_policy_files).files();
  if (random_.Percent(50)) info.step_times_ns = {{1, options.step_ns}};
  return info;
}

void World::AttachWorker(Process& process) {
  std::vector<int> lacking;
  for (int i = 0; i < schedule_.num_coordinators; ++i) {
    if (process.connection(i) == nullptr) lacking.push_back(i);
  }
  if (lacking.empty()) return;
  if (now_ns() < process.hung_until_ns) {
    AtProcess(process.hung_until_ns, process, &World::AttachWorker);
    return;
  }
  bool again = false;
  for (const int coordinator : lacking) {
    if (CanReach(process, coordinator)) {
      AttachTo(process, coordinator);
    } else {
      again = true;
    }
  }
  if (again) {
    AtProcess(now_ns() + random_.Between(kMillisecond, 10 * kMillisecond),
              process, &World::AttachWorker);
  }
}

void World::AttachTo(Process& process, int coordinator) {
  // The registry ends an older attachment of the same address first.
  for (Connection& connection : connections_) {
    if (connection.worker == process.index &&
        connection.coordinator == coordinator) {
      LoseAtDispatcher(connection);
    }
  }
  trace_.Add(now_ns(), "worker # attaches, incarnation #, stream #",
             process.index, static_cast<int64_t>(process.incarnation),
             static_cast<int64_t>(connections_.size()) + 1);
  const absl::StatusOr<Connection*> attached = Attach(process, coordinator);
  if (!attached.ok()) {
    checks_.Fail("worker ", process.index,
                 " is refused: ", attached.status().ToString());
    return;
  }
  ServiceOf(coordinator).had_target |= process.is_target();
  StreamOf(**attached).life.OnAttached(now_ns());
  if (schedule_.is_shared() && WorkerOf(process).drains) {
    DrainSoon(**attached, schedule_.hop_ns);
  }
}

void World::StartAndAttach(Process& process) {
  StartProcess(process);
  AttachWorker(process);
}

void World::OnRan(Process& process) {
  for (const auto& [connection, commands] :
       std::exchange(WorkerOf(process).arrived, {})) {
    OnArrived(*connection, commands);
  }
  checks_.BetweenSteps(ModelOf(process));
  // Rows of an opening come in order, keys and values without gaps.
  if (process.draft != nullptr &&
      process.draft->tensor_use().malformed_rows > 0) {
    checks_.Fail("draft ", process.index,
                 " is sent rows that its target has, and takes no more");
  }
}

void World::OnGateTimeout(Process& process) {
  if (schedule_.gate_timeouts) return;
  checks_.Fail("target ", process.index,
               " waits for a draft that neither drafts nor says so");
}

void World::OnDeviceError(Process& process) {
  if (!WorkerOf(process).device_broken) {
    checks_.Fail("worker ", process.index,
                 " feeds what its model refuses, or cannot go on");
  }
  Crash(process, /*loses_events=*/false, 20 * kMillisecond);
}

absl::Status World::OnForward(Process& process,
                              absl::Span<const model::SequenceRows> batch) {
  const int64_t step_ns = OptionsOf(process.index).step_ns;
  const int64_t duration_ns = random_.Between(step_ns, 2 * step_ns);
  trace_.Add(now_ns(), "worker # steps # sessions until # us", process.index,
             static_cast<int64_t>(batch.size()),
             (now_ns() + duration_ns) / 1000);
  if (process.is_target()) {
    ++counts_.steps;
    checks_.OnTargetForward(batch);
  } else {
    checks_.OnDraftForward(batch);
  }
  if (absl::Status status = Compute(process, duration_ns); !status.ok()) {
    return status;
  }
  if (WorkerOf(process).device_broken) {
    return absl::InternalError("the device is gone");
  }
  return absl::OkStatus();
}

}  // namespace nacre::protocol
