// A link to a worker of either kind that writes down every call as a line. The
// dispatcher's lock guards all calls but Flush; the test looks between them.

#ifndef TESTS_COORDINATOR_RECORDING_CLIENT_H_
#define TESTS_COORDINATOR_RECORDING_CLIENT_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/dispatch/worker_link.h"

namespace nacre::coordinator {

class RecordingClient final : public TargetLink, public DraftLink {
 public:
  void OpenTarget(const TargetOpening& opening) override {
    last_target_plan = opened_target_plan = opening.plan;
    last_hidden_channel = opening.channels.hidden;
    last_kv_channel = opening.channels.kv;
    last_num_slots = opening.num_slots;
    last_prompt_logprobs = opening.prompt_logprobs;
    NoteOpen(opening.session_id);
    Add("open ", opening.session_id, " epoch ", opening.epoch, " draft ",
        opening.has_draft, " tokens ", absl::StrJoin(opening.token_ids(), ","));
  }
  void RelayTail(uint64_t session_id, const speculation::Tail& tail) override {
    Add("tail ", session_id, " epoch ", tail.epoch, " base ", tail.base_length,
        " at ", tail.first_position, ": ", absl::StrJoin(tail.token_ids, ","));
  }
  void UpdateTarget(uint64_t session_id,
                    const speculation::TargetPlan& plan) override {
    last_target_plan = plan;
    Add("plan ", session_id);
  }
  void AttachDraft(uint64_t session_id, uint32_t epoch,
                   int opened_length) override {
    Add("attach ", session_id, " epoch ", epoch, " length ", opened_length);
  }
  void LoseDraft(uint64_t session_id) override { Add("lost ", session_id); }
  void Acknowledge(uint64_t session_id, int committed_length) override {
    Add("acknowledge ", session_id, " length ", committed_length);
  }
  void OpenDraft(const DraftOpening& opening) override {
    last_draft_plan = opened_draft_plan = opening.plan;
    last_hidden_channel = opening.channels.hidden;
    last_kv_channel = opening.channels.kv;
    last_hidden_address = opening.hidden_address;
    last_num_slots = opening.num_slots;
    NoteOpen(opening.session_id);
    last_end_ids = opening.end_ids;
    last_vocab_limit = opening.vocab_limit;
    Add("open ", opening.session_id, " epoch ", opening.epoch, " tokens ",
        absl::StrJoin(opening.token_ids(), ","));
  }
  void RelayCommit(uint64_t session_id,
                   const speculation::Commit& commit) override {
    Add("commit ", session_id, " at ", commit.first_position, ": ",
        absl::StrJoin(commit.token_ids, ","));
  }
  void UpdateDraft(uint64_t session_id,
                   const speculation::DraftPlan& plan) override {
    last_draft_plan = plan;
    Add("plan ", session_id);
  }
  void Close(uint64_t session_id) override {
    closed_unsent_.push_back(session_id);
    Add("close ", session_id);
  }
  void Keep(const std::vector<uint64_t>& session_ids) override {
    Add("keep ", absl::StrJoin(session_ids, ","));
  }
  void ReportKv(const wire::KvReport& report) override {
    kv_reports.push_back(report);
  }
  void Cut() override {
    closed_unsent_.clear();
    num_uncut_ = 0;
  }
  void Flush() override {
    num_unsent_ = num_uncut_.load();
    if (const auto then = std::exchange(on_next_flush, nullptr)) then();
  }
  int64_t clock_offset_ns() const override { return 77; }
  int64_t round_trip_ns() const override { return round_trip; }

  // What was called since the last time, plans left out (their numbers are
  // speculation's).
  std::vector<std::string> Take() {
    std::vector<std::string> calls;
    for (std::string& call : std::exchange(calls_, {})) {
      if (call.rfind("plan", 0) != 0) calls.push_back(std::move(call));
    }
    return calls;
  }
  // Calls that no Flush has followed.
  int num_unsent() const { return num_unsent_; }
  int num_plans() const { return num_plans_; }
  // Sessions opened in the message that closes their predecessor: workers open
  // before they close.
  int num_opened_too_early() const { return num_opened_too_early_; }

  int64_t round_trip = 0;  // what it has measured
  std::function<void()> on_next_flush;
  speculation::TargetPlan last_target_plan;
  speculation::DraftPlan last_draft_plan;
  speculation::TargetPlan opened_target_plan;  // of the last opening
  speculation::DraftPlan opened_draft_plan;
  std::vector<int32_t> last_end_ids;
  int last_vocab_limit = 0;
  int last_num_slots = 0;
  std::vector<wire::KvReport> kv_reports;
  int last_prompt_logprobs = 0;  // that were there when it was opened
  uint64_t last_hidden_channel = 0;
  uint64_t last_kv_channel = 0;
  std::string last_hidden_address;

 private:
  void NoteOpen(uint64_t session_id) {
    num_opened_too_early_ += static_cast<int>(
        std::count(closed_unsent_.begin(), closed_unsent_.end(), session_id));
  }
  template <typename... Args>
  void Add(const Args&... args) {
    calls_.push_back(absl::StrCat(args...));
    if (calls_.back().rfind("plan", 0) == 0) ++num_plans_;
    ++num_unsent_;
    ++num_uncut_;
  }

  std::vector<std::string> calls_;
  std::atomic<int> num_unsent_ = 0;
  std::atomic<int> num_uncut_ = 0;
  int num_plans_ = 0;
  std::vector<uint64_t> closed_unsent_;
  int num_opened_too_early_ = 0;
};

// Into service with a link that is of either kind, as what the worker is.
template <typename Link>
absl::StatusOr<uint64_t> AddWorker(Dispatcher* dispatcher, WorkerInfo info,
                                   std::shared_ptr<Link> link) {
  return info.role == WorkerRole::kTarget
             ? dispatcher->AddTarget(std::move(info), std::move(link))
             : dispatcher->AddDraft(std::move(info), std::move(link));
}

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_RECORDING_CLIENT_H_
