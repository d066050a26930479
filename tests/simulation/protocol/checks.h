// The invariants (docs/testing.md), checked wherever the world can see them: in
// every forward, on every message that leaves a worker, on everything a client
// hears, between the steps of an engine.
//
// One for each schedule. The first violation is kept; the world stops at it.

#ifndef TESTS_SIMULATION_PROTOCOL_CHECKS_H_
#define TESTS_SIMULATION_PROTOCOL_CHECKS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "coordinator/dispatch/request.h"
#include "model/language_model.h"
#include "speculation/pipeline.h"
#include "tests/simulation/protocol/expected.h"
#include "tests/simulation/protocol/own_rows.h"
#include "tests/simulation/protocol/right_nodes.h"
#include "tests/simulation/protocol/row_watch.h"
#include "tests/simulation/protocol/schedule.h"
#include "tests/simulation/protocol/simulated_model.h"
#include "tests/simulation/protocol/table_sampler.h"
#include "tests/simulation/protocol/tree_watch.h"
#include "tests/simulation/protocol/tree_writer.h"
#include "wire/session_events.h"

namespace nacre::protocol {

struct SessionOnWorker;

// A request as its client and the checks see it.
struct RequestState {
  int index = 0;
  const RequestOptions* options = nullptr;
  int numerics = -1;    // of the targets that may serve it; -1: any
  int num_targets = 0;  // opened for it
  const LogitTable* table = nullptr;  // of these
  // Under the ratio test it grows with each verdict that reaches the
  // coordinator: what is lost on its way is drawn again, perhaps another.
  Expected expected;
  // Opened last, and neither closed nor known to have failed.
  const SessionOnWorker* target = nullptr;
  // The first since its last verdict; -1: none.
  int64_t refused_ns = -1;
  // Since its last verdict a target was lost with it, or has failed it.
  bool lost_target = false;
  int losses = 0;  // likewise, how often
  // What drafts really drew: prefix, token and epoch as one hash. Under the
  // ratio test also what from.
  absl::flat_hash_set<uint64_t> drafted;
  absl::flat_hash_map<uint64_t, speculation::DraftDistribution> drafted_from;
  bool perfect_drafts = true;  // all its drafts so far
  bool oracle_knows = false;   // its drafts discard what would be wrong
  bool tampered = false;       // a tail of it was changed on its way
  int num_drafts = 0;          // opened for it
  int verified = 0;            // generated tokens that some target has computed
  int compared = 0;  // draft tokens, by verdicts that targets have sent
  int accepted = 0;
  // Likewise, by verdicts that have reached the coordinator.
  int known_compared = 0;
  int known_accepted = 0;
  int64_t stale_messages = 0;  // as it was told
  int prefilled = 0;           // rows of its prompt that targets computed
  int cached = 0;              // tokens of its prompt, as it was told
  int64_t injected_stale = 0;  // counted by its schedule at least
  // Its client calls again where it has lost its call. Of the last call: its
  // number, its coordinator, when it began, what the client had by then and the
  // targets that were opened for it.
  int call = 0;
  int coordinator = 0;
  int64_t call_ns = 0;
  int resumed = 0;
  int call_targets = 0;
  int vain_calls = 0;  // in a row, which were not lost with their coordinator
  std::vector<std::string> call_ids;  // request ids of all its calls
  // The client's side.
  bool started = false;
  bool ended = false;
  bool cancelled = false;
  uint64_t session_id = 0;  // 0 when none runs
  int pending_chunks = 0;
  int64_t taken_chunks = 0;
  int emitted = 0;
  std::vector<uint32_t> received;  // the tokens
  std::string numerics_id;         // as it was told
  std::string text;
  std::vector<int32_t> answer;  // what it completed with
  absl::Status status;

  void LoseCall() {
    ++call;
    session_id = 0;
    target = nullptr;
    call_targets = pending_chunks = 0;
    refused_ns = -1;
    lost_target = false;
    losses = 0;
    known_compared = known_accepted = 0;
    injected_stale = 0;
  }
  bool is_ratio() const {
    return options->spec.verification == speculation::Verification::kRatio;
  }
  int prompt_length() const {
    return static_cast<int>(options->spec.prompt_ids.size());
  }
  int known_length() const {
    return prompt_length() + static_cast<int>(expected.token_ids.size());
  }
  // The token at an absolute position; -1 beyond the end.
  int32_t token(int position) const {
    const int generated = position - prompt_length();
    if (generated < 0) {
      return options->spec.prompt_ids[static_cast<size_t>(position)];
    }
    return generated < static_cast<int>(expected.token_ids.size())
               ? expected.token_ids[static_cast<size_t>(generated)]
               : -1;
  }
};

// A session as one stream of one worker knows it.
struct SessionOnWorker {
  RequestState* request = nullptr;
  uint64_t session_id = 0;
  int call = 0;          // of the request; the client may have lost it since
  bool reached = false;  // the worker has got its opening
  coordinator::WorkerRole role = coordinator::WorkerRole::kTarget;
  uint32_t epoch = 0;  // of the draft whose tails are current
  int opened_length = 0;
  int committed = 0;     // target: told in verdicts, or opened with
  bool perfect = false;  // draft: its table is the target's
  const LogitTable* table = nullptr;      // draft: what it draws from
  SimulatedSequence* sequence = nullptr;  // null before it is opened and after
  // The last that the dispatcher got of it.
  speculation::Verdict last_verdict;
  speculation::Tail last_tail;
  absl::optional<TreeWriter> tree;  // draft: it tells its chain as a tree
  DraftWatch watch;                 // draft: where it grows one
  RowWatch seen;                    // draft: of its target
  int told_length = 0;              // ... of the text, if so late
  bool is_over = false;  // ... and that it is closed, or its stream lost
  // Target: of the draft that it was opened with, by exact match.
  absl::optional<ToldPlaces> told;
  absl::optional<RightNodes> right;
  // Draft: the last position it fed, whether it drew a token after it, and if
  // not, that position, in its next step.
  int last_fed = -1;
  bool drew = true;
  int may_feed_again = -1;
  std::pair<bool, int> before_step = {false, -1};  // drew, last_fed
  // Target: the step being run.
  bool verifies = false;
  bool attached_in_step = false;
  std::vector<int32_t> rows;   // tail tokens
  std::vector<int> parents;    // of each the row below which it stands
  bool has_undrafted = false;  // some are not the draft's
  // All are what followed suffixes of the text, in it or in answers of the same
  // client, or what heads or a draft say; some only one of these.
  bool follows_texts = false, is_remembered = false;
  bool is_of_heads = false, is_of_drafter = false;
  OwnDrafts own;
  int on_path = 0;  // so many of the first are a chain
  // Target, under the ratio test: what it was opened with and has told in
  // verdicts, the epoch whose tokens the step verifies, and whether the step
  // has outlasted its forward.
  std::vector<int32_t> stream;
  uint32_t step_epoch = 0;
  bool holds = false;

  bool is_abandoned() const { return call != request->call; }
  // The token that must be at an absolute position here.
  int32_t token(int position) const {
    if (stream.empty()) return request->token(position);
    return position < static_cast<int>(stream.size())
               ? stream[static_cast<size_t>(position)]
               : -1;
  }
};

class Checks {
 public:
  // `redraws`: draws every token of a draft once more, which takes time.
  Checks(bool redraws, const OwnTables& own) : redraws_(redraws), own_(own) {}

  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  template <typename... Parts>
  void Fail(const Parts&... parts) {
    if (failure_.empty()) failure_ = absl::StrCat(parts...);
  }

  // The coordinator opens it with these tokens.
  void OnOpened(SessionOnWorker& session,
                const std::vector<int32_t>& token_ids);
  void OnTargetForward(absl::Span<const model::SequenceRows> batch);
  void OnDraftForward(absl::Span<const model::SequenceRows> batch);
  // It ended early: nothing was fed.
  void OnAbandoned(absl::Span<const model::SequenceRows> batch);
  void OnFedAgain(const SimulatedSequence& sequence, int position);
  // Messages that leave a worker.
  void OnVerdict(SessionOnWorker& session, const speculation::Verdict& verdict);
  void OnTail(SessionOnWorker& session, const speculation::Tail& tail);
  void OnRanks(const SessionOnWorker& session, const wire::SessionRanks& said);
  // A verdict of the request's target that reaches the coordinator.
  void OnDelivered(const SessionOnWorker& session,
                   const speculation::Verdict& verdict);
  // All of the schedule; they outlive this.
  void KnowRequests(const std::vector<RequestState>* requests) {
    requests_ = requests;
  }
  // After each RunOnce.
  void BetweenSteps(SimulatedModel& model);
  int64_t num_holds() const { return num_holds_; }
  int64_t num_branch_rows() const { return num_branch_rows_; }
  int64_t num_branch_walks() const { return num_branch_walks_; }
  int64_t num_draft_branches() const { return num_draft_branches_; }
  const OwnCounts& own_counts() const { return own_counts_; }
  const RightNodes::Counts& right_nodes() const { return right_nodes_; }
  const RowWatch::Counts& target_rows() const { return target_rows_; }

  // What the client hears.
  void OnChunk(RequestState& request, const coordinator::Chunk& chunk);
  void OnComplete(RequestState& request,
                  const coordinator::Completion& completion);
  void OnError(RequestState& request, const absl::Status& status);

 private:
  // What a step commits.
  struct Commitment {
    std::vector<int32_t> token_ids;
    int matched = 0;
    int compared = 0;  // places at which some row stood
    int last_row = 0;  // of those that matched
    absl::optional<coordinator::Finish> finish;
  };

  // Invariant 4, in the KV itself: a position's is that of the session's tokens
  // up to it, whichever computed it.
  void CheckKv(const SimulatedSequence& sequence, const char* role);
  // The tail tokens of a step after `position`, and the text, `prefix`, there.
  void TakeRows(SessionOnWorker& session, const model::SequenceRows& rows,
                int position, uint64_t prefix);
  Commitment DueByMatch(const SessionOnWorker& session) const;
  void CheckEnd(RequestState& request);
  // What it is told of its drafts, having completed with `count` tokens.
  void CheckAccount(RequestState& request,
                    const speculation::SpeculationStats& stats, int count);
  void Redraw(const SessionOnWorker& session, const speculation::Tail& tail);

  // checks_suffixes.cc
  void FollowTexts(SessionOnWorker& session);
  // Whether the target's draft says that row after the text.
  bool IsSaidByDrafter(const SessionOnWorker& session,
                       absl::Span<const int32_t> text, int row);
  void CheckSuffixes(const SessionOnWorker& session,
                     const speculation::Verdict& verdict);

  // checks_ratio.cc
  // Finds where a draft's sequence leaves what is known of the stream: from
  // there on it is what this draft drew.
  void FindDivergence(SimulatedSequence& sequence);
  Commitment DueByRatio(const SessionOnWorker& session,
                        const speculation::Verdict& verdict);
  void OnDistribution(SessionOnWorker& session, const speculation::Tail& tail,
                      uint64_t drafted_key);
  void RedrawByRatio(TableSampler& sampler, const SessionOnWorker& session,
                     const speculation::Tail& tail);

  const bool redraws_;
  const OwnTables own_;
  int64_t num_holds_ = 0;
  int64_t num_branch_rows_ = 0;
  int64_t num_branch_walks_ = 0;  // steps that committed some of them
  int64_t num_draft_branches_ = 0;
  OwnCounts own_counts_;
  RightNodes::Counts right_nodes_;
  RowWatch::Counts target_rows_;
  const std::vector<RequestState>* requests_ = nullptr;
  std::string failure_;
};

// The key of RequestState::drafted.
inline uint64_t DraftedKey(uint64_t prefix, int32_t token_id, uint32_t epoch) {
  return ExtendHash(ExtendHash(prefix, token_id),
                    static_cast<int32_t>(epoch) + 1000);
}

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_CHECKS_H_
