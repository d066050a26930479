#include "tests/simulation/protocol/checks.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"

namespace nacre::protocol {
namespace {

using coordinator::Finish;
using speculation::FinishReason;
using speculation::Verdict;

SimulatedSequence& Sequence(const model::SequenceRows& rows) {
  return *static_cast<SimulatedSequence*>(rows.sequence);
}

Finish ToFinish(FinishReason reason) {
  return reason == FinishReason::kEos    ? Finish::kEos
         : reason == FinishReason::kStop ? Finish::kStop
                                         : Finish::kLength;
}

}  // namespace

// Invariant 2 over failovers: a worker goes on after what the coordinator has,
// all of it and nothing else.
void Checks::OnOpened(SessionOnWorker& session,
                      const std::vector<int32_t>& token_ids) {
  RequestState& request = *session.request;
  const int length = static_cast<int>(token_ids.size());
  if (request.is_ratio()) {
    if (length != request.known_length()) {
      Fail("invariant 2: request ", request.index, " has ",
           request.known_length(), " tokens, a worker is told ", length);
    }
    if (session.role == coordinator::WorkerRole::kTarget) {
      session.stream = token_ids;
    }
  }
  if (session.role == coordinator::WorkerRole::kTarget &&
      !session.is_abandoned()) {
    request.target = &session;
  }
  for (int i = 0; i < length; ++i) {
    if (token_ids[i] == request.token(i)) continue;
    Fail("invariant 2: a worker is told of another token at position ", i,
         " of request ", request.index);
  }
}

void Checks::CheckKv(const SimulatedSequence& sequence, const char* role) {
  const SessionOnWorker& session = *sequence.session;
  uint64_t hash = kEmptyHash;
  for (int i = 0; i < sequence.length(); ++i) {
    hash = ExtendHash(
        hash, i < sequence.divergence ? session.token(i) : sequence.token(i));
    if (sequence.hash(i + 1) == hash) continue;
    Fail("invariant 4: the ", role, "'s KV of request ", session.request->index,
         " at position ", i, " is that of other tokens");
    return;
  }
}

// Invariant 4 (the KV holds the committed tokens and nothing else) and what a
// step may verify: tokens of the current draft, drawn after exactly the tokens
// that they are verified after.
void Checks::OnTargetForward(absl::Span<const model::SequenceRows> batch) {
  for (const model::SequenceRows& rows : batch) {
    SimulatedSequence& sequence = Sequence(rows);
    SessionOnWorker& session = *sequence.session;
    RequestState& request = *session.request;
    CheckKv(sequence, "target");
    const int count = static_cast<int>(rows.token_ids.size());
    const int num_committed = count - std::max(0, rows.num_logits - 1);
    int position = sequence.length();
    if (position > session.own.fed_end && position < session.opened_length) {
      session.own.fed_from = position;
    }
    session.own.fed_end = position + num_committed;
    for (int i = 0; i < num_committed; ++i, ++position) {
      if (rows.token_ids[i] != session.token(position)) {
        Fail("invariant 4: the target feeds token ", rows.token_ids[i],
             " at position ", position, " of request ", request.index,
             ", which holds ", session.token(position));
      }
      if (position < request.prompt_length() - 1) ++request.prefilled;
    }
    if (rows.num_logits < 1) {
      Fail("the KV of request ", request.index, " up to position ", position,
           " is shared without a look at a row after it");
    }
    // A chunk of the prompt.
    if (rows.num_logits == 1 && position < session.committed) continue;
    session.verifies = true;
    if (session.told.has_value()) session.told->BeginStep();
    if (session.right.has_value()) session.right->BeginStep(session.committed);
    session.attached_in_step = session.holds = false;
    session.step_epoch = session.epoch;
    session.rows.assign(rows.token_ids.begin() + num_committed,
                        rows.token_ids.end());
    if (position != session.committed) {
      Fail("invariant 4: the step of request ", request.index,
           " begins after position ", position, " but ", session.committed,
           " tokens are committed");
    }
    if (request.options->spec.method == speculation::Method::kAr &&
        !session.rows.empty()) {
      Fail("request ", request.index, " is ar but verifies a tail");
    }
    uint64_t prefix = sequence.hash(sequence.length());
    for (int i = 0; i < num_committed; ++i) {
      prefix = ExtendHash(prefix, rows.token_ids[i]);
    }
    TakeRows(session, rows, position, prefix);
  }
}

void Checks::TakeRows(SessionOnWorker& session, const model::SequenceRows& rows,
                      int position, uint64_t prefix) {
  const RequestState& request = *session.request;
  const int num_rows = static_cast<int>(session.rows.size());
  const int on_path = num_rows - static_cast<int>(rows.nodes.size());
  // Of each row, the last committed token's first: the text that it ends.
  std::vector<uint64_t> texts = {prefix};
  std::vector<int> ends = {position};
  session.parents.clear();
  session.on_path = on_path;
  session.has_undrafted = false;
  for (int i = 0; i < num_rows; ++i) {
    int parent = i;
    if (i >= on_path) {
      const model::TreeNode& node =
          rows.nodes[static_cast<size_t>(i - on_path)];
      parent = node.position - position;
      if (node.parent != model::kNoSlot) {
        const auto filled = std::find_if(rows.nodes.begin(), rows.nodes.end(),
                                         [&](const model::TreeNode& one) {
                                           return one.slot == node.parent;
                                         });
        parent = on_path + 1 + static_cast<int>(filled - rows.nodes.begin());
      }
      if (parent < 0 || parent > i ||
          ends[static_cast<size_t>(parent)] != node.position) {
        Fail("the target feeds a node at position ", node.position,
             " of request ", request.index, " that is not below its parent");
        return;
      }
      ++num_branch_rows_;
    }
    const uint64_t text = texts[static_cast<size_t>(parent)];
    const int end = ends[static_cast<size_t>(parent)];
    const int32_t token_id = session.rows[static_cast<size_t>(i)];
    if (!request.drafted.contains(DraftedKey(text, token_id, session.epoch)) &&
        !request.tampered) {
      session.has_undrafted = true;
      if (!request.options->spec.suffixes.has_value()) {
        Fail("stale tail: the target verifies token ", token_id,
             " at position ", end, " of request ", request.index,
             ", which the draft of epoch ", session.epoch,
             " did not draw after these tokens");
      }
    }
    texts.push_back(ExtendHash(text, token_id));
    ends.push_back(end + 1);
    session.parents.push_back(parent);
    if (end + 1 >
        request.prompt_length() + request.options->spec.max_tokens - 1) {
      Fail("the target computes beyond max_tokens of request ", request.index);
    }
  }
  FollowTexts(session);
}

// Invariant 4 for the draft: its sequence is a prefix of the target's stream
// and after it what this draft drew there.
void Checks::OnDraftForward(absl::Span<const model::SequenceRows> batch) {
  for (const model::SequenceRows& rows : batch) {
    SimulatedSequence& sequence = Sequence(rows);
    SessionOnWorker& session = *sequence.session;
    const RequestState& request = *session.request;
    // A path that was kept is its own, too.
    const bool has_slots = sequence.num_slots() > 0;
    if (request.is_ratio() || has_slots) FindDivergence(sequence);
    CheckKv(sequence, "draft");
    const std::string seen =
        session.seen.OnForward(session, rows, &target_rows_);
    if (!seen.empty()) {
      Fail("the draft of request ", request.index, " ", seen);
    }
    if (has_slots) {
      const std::string wrong = session.watch.OnForward(session, rows);
      if (!wrong.empty()) {
        Fail("the draft of request ", request.index, " ", wrong);
      }
    }
    num_draft_branches_ += static_cast<int64_t>(rows.nodes.size());
    int position = sequence.length();
    uint64_t prefix = sequence.hash(position);
    const auto in_place =
        rows.token_ids.first(rows.token_ids.size() - rows.nodes.size());
    for (const int32_t token_id : in_place) {
      if (sequence.divergence == kNoDivergence &&
          token_id != request.token(position)) {
        sequence.divergence = position;
      }
      if (sequence.divergence != kNoDivergence &&
          !request.drafted.contains(
              DraftedKey(prefix, token_id, session.epoch))) {
        Fail("invariant 4: the draft feeds token ", token_id, " at position ",
             position, " of request ", request.index,
             ", neither committed nor drawn by it there");
      }
      prefix = ExtendHash(prefix, token_id);
      ++position;
    }
    // One of the tip, and one of each branch.
    if (rows.num_logits !=
        static_cast<int>(rows.nodes.size()) + (in_place.empty() ? 0 : 1)) {
      Fail("the draft of request ", request.index, " has ", rows.num_logits,
           " rows with logits in a step");
    }
    session.may_feed_again = session.drew ? -1 : session.last_fed;
    session.before_step = {session.drew, session.last_fed};
    session.last_fed = position - 1;
    session.drew = false;
  }
}

void Checks::OnAbandoned(absl::Span<const model::SequenceRows> batch) {
  for (const model::SequenceRows& rows : batch) {
    SimulatedSequence& sequence = Sequence(rows);
    SessionOnWorker& session = *sequence.session;
    if (sequence.num_slots() > 0) {
      const std::string wrong =
          session.watch.OnAbandoned(session, session.told_length);
      if (!wrong.empty() && !session.is_over) {
        Fail("the draft of request ", session.request->index, " ", wrong);
      }
    }
    // What the step was about to feed is not there, and not where others' KV
    // of committed tokens is taken over in its place either.
    if (sequence.divergence >= sequence.length()) {
      sequence.divergence = kNoDivergence;
    }
    std::tie(session.drew, session.last_fed) = session.before_step;
  }
}

void Checks::OnFedAgain(const SimulatedSequence& sequence, int position) {
  const SessionOnWorker& session = *sequence.session;
  // A draft may learn in the middle of a step that its token is not wanted.
  if (position == session.may_feed_again) return;
  Fail("invariant 4: a worker dropped the KV of position ", position,
       " of request ", session.request->index,
       " and feeds the same token there again");
}

// By exact match: up to the first row that is not the target's own token.
Checks::Commitment Checks::DueByMatch(const SessionOnWorker& session) const {
  const RequestState& request = *session.request;
  const int last = request.known_length();
  const int num_rows = static_cast<int>(session.rows.size());
  Commitment due;
  int position = session.committed;
  int row = 0;
  while (true) {
    int next = 0;
    bool is_compared = false;
    for (int i = 0; i < num_rows; ++i) {
      if (session.parents[static_cast<size_t>(i)] != row) continue;
      is_compared = true;
      if (position < last &&
          session.rows[static_cast<size_t>(i)] == request.token(position)) {
        next = i + 1;
      }
    }
    due.compared += is_compared ? 1 : 0;
    if (next == 0) break;
    row = due.last_row = next;
    ++due.matched;
    ++position;
  }
  position = std::min(position + 1, last);
  for (int i = session.committed; i < position; ++i) {
    due.token_ids.push_back(request.token(i));
  }
  if (position == last) {
    due.finish = FinishOf(request.options->spec, request.token(position - 1),
                          position - request.prompt_length());
  }
  return due;
}

void Checks::OnVerdict(SessionOnWorker& session, const Verdict& verdict) {
  RequestState& request = *session.request;
  const int index = request.index;
  if (!session.verifies) {
    Fail("a verdict on request ", index, " without a step");
    return;
  }
  session.verifies = false;
  if (verdict.base_length != session.committed) {
    Fail("invariant 2: a verdict on request ", index, " at ",
         verdict.base_length, " where ", session.committed, " are committed");
    return;
  }
  const int num_rows = static_cast<int>(session.rows.size());
  const Commitment due =
      request.is_ratio() ? DueByRatio(session, verdict) : DueByMatch(session);
  const int matched = due.matched;
  const int num_due = static_cast<int>(due.token_ids.size());
  if (due.last_row > session.on_path) ++num_branch_walks_;
  const int compared =
      request.is_ratio() ? std::min(matched + 1, num_rows) : due.compared;
  const int count = static_cast<int>(verdict.token_ids.size());
  if (count != num_due || verdict.matched != matched ||
      verdict.window != num_rows) {
    Fail("a step of request ", index, " verified ", num_rows,
         " tokens of which ", matched, " match, and must commit ", num_due,
         "; its verdict says ", verdict.window, ", ", verdict.matched, ", ",
         count);
    return;
  }
  for (int i = 0; i < count; ++i) {
    if (verdict.token_ids[i] != due.token_ids[i]) {
      Fail("invariant 1: request ", index, " at position ",
           session.committed + i, ": ", verdict.token_ids[i], " instead of ",
           due.token_ids[i]);
    }
  }
  if (request.is_ratio()) {
    session.stream.insert(session.stream.end(), verdict.token_ids.begin(),
                          verdict.token_ids.end());
  }
  const int position = session.committed + count;
  session.committed = position;
  request.verified =
      std::max(request.verified, position - request.prompt_length());
  const bool ends = due.finish.has_value();
  if ((verdict.finish != FinishReason::kNone) != ends ||
      (ends && ToFinish(verdict.finish) != *due.finish)) {
    Fail("invariant 3: request ", index, " at ", position,
         " positions has finish ", static_cast<int>(verdict.finish));
  }
  CheckSuffixes(session, verdict);
  // The account: every row that was compared is counted, and counted once.
  if (verdict.accepted < 0 || verdict.accepted > verdict.verified ||
      (!session.attached_in_step && verdict.suffix_proposed == 0 &&
       (verdict.accepted < matched ||
        verdict.verified < (ends ? matched : compared)))) {
    Fail("request ", index, " matched ", matched, " of ", num_rows,
         " but counts ", verdict.accepted, " accepted of ", verdict.verified,
         " verified");
  }
  if (verdict.holds_last_row()) {
    session.verifies = true;
    session.rows.clear();
  }
  // The last token may have been compared with nothing.
  const int num_due_places = position - (ends ? 1 : 0);
  if (session.told.has_value() &&
      session.told->OnVerdict(verdict.verified, num_due_places) > 0) {
    Fail(
        "request ", index, " at ", position,
        ": the target leaves nodes of its draft that came late out of account");
  }
  if (session.right.has_value()) {
    session.right->OnVerdict(verdict.accepted, num_due_places, &right_nodes_);
    if (right_nodes_.lost > 0) {
      Fail("request ", index, " at ", position, ": the target throws away ",
           right_nodes_.lost, " right nodes of its draft");
    }
  }
  request.accepted += verdict.accepted;
  request.compared += verdict.verified;
  if (request.num_drafts <= 1 && request.num_targets <= 1 &&
      request.accepted > request.verified) {
    Fail("request ", index, " has ", request.verified, " tokens but ",
         request.accepted, " were accepted");
  }
  // (Under the ratio test a target that draws for itself may differ from what
  // such a draft draws; of rows: DueByRatio.)
  if ((request.perfect_drafts || request.oracle_knows) && !request.tampered &&
      !request.is_ratio() && verdict.accepted != verdict.verified) {
    Fail("a draft that is never wrong: ", verdict.accepted, " accepted of ",
         verdict.verified, " verified of request ", index);
  }
}

void Checks::OnRanks(const SessionOnWorker& session,
                     const wire::SessionRanks& said) {
  // Of an earlier opening, which ended meanwhile: the coordinator drops them.
  if (said.epoch < session.epoch) return;
  const RequestState& request = *session.request;
  const auto wrong = std::count_if(said.ranks.begin(), said.ranks.end(),
                                   [](int rank) { return rank != 1; });
  if (said.epoch != session.epoch || said.ranks.empty() || request.is_ratio() ||
      said.prepared < 0 || said.prepared > wrong ||
      (session.perfect && wrong > 0)) {
    Fail("the draft of epoch ", session.epoch, " of request ", request.index,
         " tells ", said.ranks.size(), " ranks of epoch ", said.epoch, " with ",
         said.prepared, " prepared", wrong > 0 ? ", and was wrong" : "");
  }
}

void Checks::OnTail(SessionOnWorker& session, const speculation::Tail& tail) {
  RequestState& request = *session.request;
  const int index = request.index;
  if (tail.epoch != session.epoch || tail.base_length > tail.first_position) {
    Fail("a tail of epoch ", tail.epoch, " at ", tail.first_position,
         " after base ", tail.base_length, " of request ", index,
         ", whose draft has epoch ", session.epoch);
  }
  // In turns a draft waits where its policy ends a chunk, as that of a tree
  // does always. Under overlap it goes on, but for a token that it knows wrong.
  const bool waits =
      request.options->spec.method == speculation::Method::kSd ||
      (tail.is_tree() && request.options->spec.tree.may_have_policy());
  if ((tail.stop == speculation::StopMark::kChunk && waits) ||
      (tail.stop == speculation::StopMark::kPolicy && !waits &&
       !tail.token_ids.empty())) {
    Fail("the draft of request ", index, " ends a chunk at ",
         tail.first_position, " with mark ", static_cast<int>(tail.stop));
  }
  if (tail.token_ids.empty()) return;
  if (const std::string wrong = session.seen.OnTail(session, tail);
      !wrong.empty()) {
    Fail("the draft of request ", index, " ", wrong);
  }
  const SimulatedSequence* sequence = session.sequence;
  if (sequence != nullptr && sequence->num_slots() > 0) {
    session.drew = true;
    const std::string wrong = session.watch.OnTail(session, tail, redraws_);
    if (!wrong.empty()) Fail("the draft of request ", index, " ", wrong);
    return;
  }
  if (tail.token_ids.size() != 1 || sequence == nullptr ||
      sequence->length() != tail.first_position) {
    Fail("the tail at ", tail.first_position, " of request ", index,
         " was drawn after ", sequence == nullptr ? -1 : sequence->length(),
         " tokens");
    return;
  }
  session.drew = true;
  const int32_t token_id = tail.token_ids[0];
  const uint64_t key =
      DraftedKey(sequence->hash(tail.first_position), token_id, session.epoch);
  request.drafted.insert(key);
  OnDistribution(session, tail, key);
  if (tail.first_position >
      request.prompt_length() + request.options->spec.max_tokens - 2) {
    Fail("the draft of request ", index, " draws for position ",
         tail.first_position, ", beyond max_tokens");
  }
  if (redraws_) Redraw(session, tail);
  if (session.perfect && !request.is_ratio() &&
      token_id != request.token(tail.first_position)) {
    Fail("a draft that is never wrong draws ", token_id, " instead of ",
         request.token(tail.first_position), " at position ",
         tail.first_position, " of request ", index);
  }
}

// The token is the draft model's own after its sequence, drawn with the
// request's noise and penalties.
void Checks::Redraw(const SessionOnWorker& session,
                    const speculation::Tail& tail) {
  TableSampler sampler(session.table, session.request->options->spec);
  const SimulatedSequence& sequence = *session.sequence;
  for (int i = 0; i < sequence.length(); ++i) sampler.Push(sequence.token(i));
  if (session.request->is_ratio()) {
    RedrawByRatio(sampler, session, tail);
    return;
  }
  const int32_t drawn = sampler.Sample();
  if (drawn != tail.token_ids[0]) {
    Fail("the draft of request ", session.request->index, " draws ",
         tail.token_ids[0], " at position ", sequence.length(),
         ", its model says ", drawn);
  }
}

void Checks::BetweenSteps(SimulatedModel& model) {
  const int num_brought = model.TakeNumBrought();
  if (num_brought > model.blocks_brought_at_once()) {
    Fail("an engine copies ", num_brought, " blocks between two steps, ",
         model.blocks_brought_at_once(), " are the most");
  }
  for (const SimulatedSequence* sequence : model.sequences()) {
    SessionOnWorker& session = *sequence->session;
    if (session.role != coordinator::WorkerRole::kTarget) continue;
    if (session.verifies) {
      // What it accepted is told: the last row waits for the draft's next
      // token.
      const coordinator::RequestSpec& spec = session.request->options->spec;
      if (!session.request->is_ratio() ||
          spec.method != speculation::Method::kPearl ||
          sequence->length() !=
              session.committed + static_cast<int>(session.rows.size())) {
        Fail("a step of request ", session.request->index, " at ",
             session.committed, " outlasts its forward, with a KV of ",
             sequence->length());
      }
      if (!std::exchange(session.holds, true)) ++num_holds_;
      continue;
    }
    // Up to there before and during prefill.
    const bool prefilled = session.committed > session.opened_length;
    if (sequence->length() > session.committed - 1 ||
        (prefilled && sequence->length() < session.committed - 1)) {
      Fail("invariant 4: the target's KV of request ", session.request->index,
           " is ", sequence->length(), " between steps, ", session.committed,
           " tokens are committed");
    }
  }
}

void Checks::OnChunk(RequestState& request, const coordinator::Chunk& chunk) {
  if (request.ended) Fail("request ", request.index, " goes on after its end");
  if (chunk.first_index != request.emitted) {
    Fail("invariant 2: request ", request.index, " got a chunk at ",
         chunk.first_index, " after ", request.emitted, " tokens");
  }
  for (const int32_t token_id : chunk.token_ids) {
    const int32_t expected =
        request.token(request.prompt_length() + request.emitted);
    if (token_id != expected) {
      Fail("invariant 1: request ", request.index, " got token ", token_id,
           " instead of ", expected, " at ", request.emitted);
    }
    ++request.emitted;
    request.received.push_back(static_cast<uint32_t>(token_id));
  }
  if (!chunk.numerics_id.empty()) request.numerics_id = chunk.numerics_id;
  request.vain_calls = 0;
  request.text += chunk.text;
  if (request.emitted > request.verified) {
    Fail("invariant 3: request ", request.index, " got ", request.emitted,
         " tokens, ", request.verified, " are verified");
  }
  if (request.emitted > request.expected.num_shown) {
    Fail("invariant 3: request ", request.index, " got ", request.emitted,
         " tokens, it ends after ", request.expected.num_shown);
  }
  if (!absl::StartsWith(request.expected.text, request.text)) {
    Fail("request ", request.index, " got the text \"", request.text,
         "\" instead of \"", request.expected.text, "\"");
  }
}

void Checks::CheckEnd(RequestState& request) {
  if (request.ended) Fail("request ", request.index, " ends twice");
  request.ended = true;
}

void Checks::OnComplete(RequestState& request,
                        const coordinator::Completion& completion) {
  CheckEnd(request);
  const Expected& expected = request.expected;
  const int count = static_cast<int>(completion.token_ids.size());
  if (count != expected.num_shown ||
      !std::equal(completion.token_ids.begin(), completion.token_ids.end(),
                  expected.token_ids.begin()) ||
      completion.text != expected.text ||
      completion.finish != expected.finish) {
    Fail("invariant 1: request ", request.index, " completes with ", count,
         " tokens, \"", completion.text, "\", finish ",
         static_cast<int>(completion.finish), " instead of ",
         expected.num_shown, ", \"", expected.text, "\", finish ",
         expected.finish.has_value() ? static_cast<int>(*expected.finish) : -1);
  }
  request.answer = completion.token_ids;
  if (count > request.verified) {
    Fail("invariant 3: request ", request.index, " completes with ", count,
         " tokens, ", request.verified, " are verified");
  }
  if (request.options->spec.stream &&
      (request.emitted != count || request.text != completion.text)) {
    Fail("request ", request.index, " streamed ", request.emitted,
         " tokens and \"", request.text, "\", its completion has ", count,
         " and \"", completion.text, "\"");
  }
  // What was not computed for it was cached.
  request.cached = completion.cached_tokens;
  if (request.num_targets == 1 && request.call == 0 &&
      request.cached + request.prefilled != request.prompt_length() - 1) {
    Fail("request ", request.index, " of ", request.prompt_length(),
         " tokens says that ", request.cached, " were cached, but ",
         request.prefilled, " were computed");
  }
  CheckAccount(request, completion.stats, count - request.resumed);
}

void Checks::CheckAccount(RequestState& request,
                          const speculation::SpeculationStats& stats,
                          int count) {
  request.stale_messages = stats.stale_messages;
  if (stats.accepted > stats.verified || stats.committed != count ||
      stats.stale_messages < request.injected_stale) {
    Fail("the account of request ", request.index, ": ", stats.accepted,
         " accepted of ", stats.verified, ", ", stats.committed,
         " committed of ", count, ", ", stats.stale_messages,
         " stale messages where ", request.injected_stale, " were injected");
  }
  if (stats.verified > stats.drafted || stats.rounds > stats.committed) {
    Fail("the account of request ", request.index, ": ", stats.verified,
         " verified of ", stats.drafted, " drafted, ", stats.rounds,
         " rounds for ", stats.committed, " tokens");
  }
  if (stats.verified != request.known_compared ||
      stats.accepted != request.known_accepted) {
    Fail("the account of request ", request.index, ": ", stats.accepted,
         " accepted of ", stats.verified, " verified, its verdicts say ",
         request.known_accepted, " of ", request.known_compared);
  }
}

void Checks::OnError(RequestState& request, const absl::Status& status) {
  CheckEnd(request);
  request.status = status;
  if (status.ok()) Fail("request ", request.index, " ends with an OK error");
}

}  // namespace nacre::protocol
