#include "coordinator/dispatch/placer.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/quoted.h"
#include "common/refusal.h"
#include "common/some_of.h"
#include "coordinator/dispatch/draft_needs.h"

namespace nacre::coordinator {
namespace {

constexpr size_t kMostGone = 64;
// Of calls that differ in choices or length. Rarely do more wait.
constexpr size_t kMostWideKinds = 4096;

bool IsOfKind(const std::string& numerics_id, const RequestSpec& request) {
  const std::string& wanted = Placer::KindOf(request);
  return wanted.empty() || wanted == numerics_id;
}

bool IsReadyTarget(const FleetWorker& worker) {
  return worker.info.role == WorkerRole::kTarget && worker.ready;
}

// The least KV with which the worker takes it.
int64_t LeastNeed(const WorkerInfo& worker, const RequestSpec& request,
                  int64_t length) {
  const int64_t need = Placer::TextNeed(worker, request);
  return worker.role == WorkerRole::kDraft
             ? std::min(need, LeastDraftNeed(request, length))
             : need;
}

}  // namespace

const std::string& Placer::KindOf(const RequestSpec& request) {
  return request.numerics_id.empty() && request.call != nullptr
             ? request.call->numerics_id
             : request.numerics_id;
}

std::string Placer::ClassOf(const RequestSpec& request) {
  // Where the first choice of a call runs binds the others as it starts.
  const void* const call =
      request.numerics_id.empty() ? request.call.get() : nullptr;
  return absl::StrCat(TargetNeed(request), " ",
                      absl::Hex(reinterpret_cast<uintptr_t>(call)), " ",
                      request.numerics_id);
}

int64_t Placer::TargetNeed(const RequestSpec& request) {
  return KvLedger::Need(static_cast<int64_t>(request.prompt_ids.size()) +
                        request.max_tokens);
}

int64_t Placer::TextNeed(const WorkerInfo& worker, const RequestSpec& request) {
  const int64_t need = TargetNeed(request);
  // A draft may stop short of the target's length.
  return worker.role == WorkerRole::kDraft
             ? std::min(need, KvLedger::Need(worker.context_length))
             : need;
}

Placer::Share Placer::ShareOf(uint64_t worker_id, const RequestSpec& request,
                              int64_t length) const {
  // Nodes stay at a draft until the verdict on their text: those of as many
  // steps. A target needs them while its step runs.
  constexpr int kStepsKept = 16;
  constexpr int kMostDraftSlots = 128;
  const FleetWorker& worker = *fleet_.Find(worker_id);
  int64_t text = TextNeed(worker.info, request);
  if (const int64_t room = fleet_.ledger().room_tokens(worker_id);
      room < text) {
    const int64_t half =
        room / 2 / KvLedger::kBlockTokens * KvLedger::kBlockTokens;
    text =
        std::min(text, std::max(LeastNeed(worker.info, request, length), half));
  }
  // Sessions of a worker share the rows (MakePlan): one more of a crowd drafts
  // a chain.
  const int rows = request.draft_rows / (1 + static_cast<int>(worker.load()));
  if (rows <= 1 || worker.info.drafts_chains) return {0, text, text};
  const int slots = worker.info.role == WorkerRole::kTarget
                        ? request.tree_rows
                        : std::min(kStepsKept * (rows - 1), kMostDraftSlots);
  const int64_t need = text + KvLedger::Need(slots);
  const int64_t spare = fleet_.ledger().capacity_tokens(worker_id) / 4;
  return fleet_.ledger().HasRoom(worker_id, need + spare)
             ? Share{slots, need, text}
             : Share{0, text, text};
}

void Placer::OnTargetAdded(const WorkerInfo& target) {
  if (last_target_.has_value() &&
      last_target_->fingerprint != target.fingerprint) {
    gone_.clear();
  }
  last_target_ = target;
}

void Placer::OnTargetGone(const WorkerInfo& target, int64_t now_ns) {
  const auto is_over = [&](const Gone& gone) {
    return gone.until_ns <= now_ns ||
           (gone.numerics_id == target.numerics_id &&
            gone.kv_capacity_tokens == target.kv_capacity_tokens);
  };
  gone_.erase(std::remove_if(gone_.begin(), gone_.end(), is_over), gone_.end());
  if (gone_.size() == kMostGone) gone_.erase(gone_.begin());
  gone_.push_back({target.numerics_id, target.kv_capacity_tokens,
                   After(now_ns, patience_ns_)});
}

bool Placer::CanTake(uint64_t worker_id, WorkerRole role,
                     const RequestSpec& request, const WorkerIds& except,
                     int64_t length) const {
  const FleetWorker* const worker = fleet_.Find(worker_id);
  if (worker == nullptr || except.contains(worker_id)) return false;
  if (worker->role != role || !worker->ready) return false;
  const bool suits = role == WorkerRole::kDraft
                         ? CouldDraft(worker->info, request, length)
                         : IsOfKind(worker->info.numerics_id, request);
  return suits && fleet_.ledger().HasRoom(
                      worker_id, LeastNeed(worker->info, request, length));
}

uint64_t Placer::LeastLoaded(WorkerRole role, const RequestSpec& request,
                             const WorkerIds& except, int64_t length) const {
  ++scans_;
  for (const auto& [load, id] : fleet_.by_load(role)) {
    if (CanTake(id, role, request, except, length)) return id;
  }
  return 0;
}

int Placer::NumToPlace(const RequestSpec& request) {
  return request.call != nullptr && KindOf(request).empty()
             ? request.call->num_started
             : 1;
}

Placer::Places Placer::PlacesFor(const RequestSpec& request,
                                 bool only_ready) const {
  Places places;
  ++scans_;
  for (const auto& [id, worker] : fleet_.workers()) {
    if (only_ready && !IsReadyTarget(worker)) continue;
    if (!CouldTake(id, worker, request)) continue;
    places[worker.info.numerics_id] +=
        fleet_.ledger().MostSessions(id, TargetNeed(request));
  }
  return places;
}

int64_t Placer::MostOf(const Places& places) {
  int64_t most = 0;
  for (const auto& [kind, of_kind] : places) most = std::max(most, of_kind);
  return most;
}

const std::vector<std::string>& Placer::WideKinds(
    int choices, const RequestSpec& request) const {
  if (wide_version_ != fleet_.version()) {
    wide_kinds_.clear();
    wide_version_ = fleet_.version();
  }
  const std::pair<int, int64_t> key = {choices, TargetNeed(request)};
  if (const auto it = wide_kinds_.find(key); it != wide_kinds_.end()) {
    return it->second;
  }
  if (wide_kinds_.size() == kMostWideKinds) wide_kinds_.clear();
  std::vector<std::string>& wide = wide_kinds_[key];
  Places places = PlacesFor(request, /*only_ready=*/true);
  const int64_t enough = std::min<int64_t>(choices, MostOf(places));
  for (const auto& [id, worker] : fleet_.workers()) {
    if (IsReadyTarget(worker)) places.try_emplace(worker.info.numerics_id, 0);
  }
  for (const auto& [kind, of_kind] : places) {
    if (of_kind >= enough) wide.push_back(kind);
  }
  return wide;
}

absl::Span<const std::string> Placer::KindsFor(
    const RequestSpec& request) const {
  const int choices = NumToPlace(request);
  if (choices > 1) return WideKinds(choices, request);
  return absl::MakeConstSpan(&KindOf(request), 1);
}

WorkerIds Placer::TooNarrow(const RequestSpec& request) const {
  WorkerIds narrow;
  const int choices = NumToPlace(request);
  if (choices <= 1) return narrow;
  const std::vector<std::string>& wide = WideKinds(choices, request);
  ++scans_;
  for (const auto& [id, worker] : fleet_.workers()) {
    if (IsReadyTarget(worker) &&
        std::find(wide.begin(), wide.end(), worker.info.numerics_id) ==
            wide.end()) {
      narrow.insert(id);
    }
  }
  return narrow;
}

int64_t Placer::MostRoom(const std::string& kind,
                         const WorkerIds& except) const {
  int64_t most = -1;
  ++scans_;
  for (const auto& [id, worker] : fleet_.workers()) {
    if (!IsReadyTarget(worker) || except.contains(id)) continue;
    if (!kind.empty() && worker.info.numerics_id != kind) continue;
    most = std::max(most, fleet_.ledger().room_tokens(id));
  }
  return most;
}

int64_t Placer::MostCapacity(const std::string& kind,
                             const WorkerIds& except) const {
  int64_t most = -1;
  ++scans_;
  for (const auto& [id, worker] : fleet_.workers()) {
    if (worker.info.role != WorkerRole::kTarget || except.contains(id))
      continue;
    if (!kind.empty() && worker.info.numerics_id != kind) continue;
    const int64_t capacity = fleet_.ledger().capacity_tokens(id);
    most = std::max(most, capacity == 0 ? KvLedger::kAnyNeed : capacity);
  }
  return most;
}

uint64_t Placer::TargetFor(const RequestSpec& request,
                           const WorkerIds& except) const {
  WorkerIds others = TooNarrow(request);
  if (others.empty()) return BestTarget(request, except);
  others.insert(except.begin(), except.end());
  return BestTarget(request, others);
}

uint64_t Placer::BestTarget(const RequestSpec& request,
                            const WorkerIds& except) const {
  const uint64_t least = LeastLoaded(WorkerRole::kTarget, request, except);
  if (least == 0) return 0;
  const size_t load = fleet_.Find(least)->load();
  const auto may_take = [&](uint64_t id, int tokens) {
    return CanTake(id, WorkerRole::kTarget, request, except, 0) &&
           fleet_.Find(id)->load() <=
               load + PrefixHolders::ExtraSessions(tokens);
  };
  return holders_.Find(request.prefixes, may_take).value_or(least);
}

bool Placer::CouldTake(uint64_t worker_id, const FleetWorker& worker,
                       const RequestSpec& request) const {
  return worker.info.role == WorkerRole::kTarget &&
         IsOfKind(worker.info.numerics_id, request) &&
         fleet_.ledger().CouldHold(worker_id, TargetNeed(request));
}

absl::Status Placer::CheckReady(const RequestSpec& request) const {
  bool is_ready = false;
  int64_t largest = 0;
  std::set<std::string> others;
  for (const auto& [id, worker] : fleet_.workers()) {
    if (!IsReadyTarget(worker)) continue;
    if (CouldTake(id, worker, request)) return absl::OkStatus();
    if (!IsOfKind(worker.info.numerics_id, request)) {
      others.insert(worker.info.numerics_id);
      continue;
    }
    is_ready = true;
    largest = std::max(largest, fleet_.ledger().capacity_tokens(id));
  }
  if (is_ready) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a prompt of ", request.prompt_ids.size(), " tokens and max_tokens ",
        request.max_tokens, " need KV for ", TargetNeed(request),
        " tokens, the largest target has it for ", largest));
  }
  if (others.empty()) {
    return absl::UnavailableError("no target worker is ready");
  }
  const std::string message = absl::StrCat(
      "no target worker with numerics_id ", Quoted(KindOf(request)),
      " is ready; those that are ready have ", SomeOf(others, ", "));
  // Its client asked for that one, or other choices of its call run there.
  if (request.numerics_id.empty()) return absl::UnavailableError(message);
  return WithField(
      absl::FailedPreconditionError(message),
      request.resume == nullptr ? "numerics_id" : "resume.numerics_id");
}

absl::Status Placer::CheckServable(const RequestSpec& request,
                                   int64_t now_ns) const {
  if (last_target_.has_value() && !request.fingerprint.empty() &&
      request.fingerprint != last_target_->fingerprint) {
    return absl::UnavailableError(
        "the served model changed while the request waited");
  }
  if (MayComeBack(request, now_ns)) return absl::OkStatus();
  absl::Status status = CheckReady(request);
  return absl::IsResourceExhausted(status)
             ? WithRefusal(std::move(status), {kNeverFits})
             : status;
}

absl::Status Placer::CheckTogether(const RequestSpec& request, int64_t count,
                                   int max_queue, int64_t now_ns) const {
  if (count <= max_queue) return absl::OkStatus();
  const bool is_ready = std::any_of(
      fleet_.workers().begin(), fleet_.workers().end(),
      [](const auto& entry) { return IsReadyTarget(entry.second); });
  const int64_t most = MostOf(PlacesFor(request, /*only_ready=*/false));
  // Of the next target nothing is known.
  if (!is_ready || count <= most + max_queue || HasJustLeft(request, now_ns)) {
    return absl::OkStatus();
  }
  const absl::Status status = absl::ResourceExhaustedError(
      absl::StrCat(count, " choices come at once, the targets have places for ",
                   most, " like them and the queue for ", max_queue));
  return WithField(WithRefusal(status, {kNeverFits}), "n");
}

bool Placer::MayComeBack(const RequestSpec& request, int64_t now_ns) const {
  bool is_ready = false;
  for (const auto& [id, worker] : fleet_.workers()) {
    if (CouldTake(id, worker, request)) return true;
    is_ready = is_ready || IsReadyTarget(worker);
  }
  return is_ready ? HasJustLeft(request, now_ns) : last_target_.has_value();
}

bool Placer::HasJustLeft(const RequestSpec& request, int64_t now_ns) const {
  const int64_t need = TargetNeed(request);
  return std::any_of(gone_.begin(), gone_.end(), [&](const Gone& gone) {
    return gone.until_ns > now_ns && IsOfKind(gone.numerics_id, request) &&
           (gone.kv_capacity_tokens == 0 || need <= gone.kv_capacity_tokens);
  });
}

}  // namespace nacre::coordinator
