#include "tests/simulation/protocol/checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "model/sampler.h"

namespace nacre::protocol {
namespace {

using coordinator::Finish;
using speculation::FinishReason;
using speculation::Verdict;

constexpr int kNoDivergence = 1 << 30;

SimulatedSequence& Sequence(const model::SequenceRows& rows) {
  return *static_cast<SimulatedSequence*>(rows.sequence);
}

uint64_t DraftedKey(uint64_t prefix, int32_t token_id, uint32_t epoch) {
  return ExtendHash(ExtendHash(prefix, token_id),
                    static_cast<int32_t>(epoch) + 1000);
}

Finish ToFinish(FinishReason reason) {
  return reason == FinishReason::kEos    ? Finish::kEos
         : reason == FinishReason::kStop ? Finish::kStop
                                         : Finish::kLength;
}

}  // namespace

void Checks::CheckKv(const SimulatedSequence& sequence, const char* role) {
  const RequestState& request = *sequence.session->request;
  uint64_t hash = kEmptyHash;
  for (int i = 0; i < sequence.length(); ++i) {
    hash = ExtendHash(
        hash, i < sequence.divergence ? request.token(i) : sequence.token(i));
    if (sequence.hash(i + 1) == hash) continue;
    Fail("invariant 4: the ", role, "'s KV of request ", request.index,
         " at position ", i, " is that of other tokens");
    return;
  }
}

// Invariant 4 (the KV holds the committed tokens and nothing else) and what a
// step may verify: tokens of the current draft, drawn behind exactly the tokens
// that they are verified behind.
void Checks::OnTargetForward(absl::Span<const model::SequenceRows> batch) {
  for (const model::SequenceRows& rows : batch) {
    SimulatedSequence& sequence = Sequence(rows);
    SessionOnWorker& session = *sequence.session;
    RequestState& request = *session.request;
    CheckKv(sequence, "target");
    const int count = static_cast<int>(rows.token_ids.size());
    const int num_committed = count - std::max(0, rows.num_logits - 1);
    int position = sequence.length();
    for (int i = 0; i < num_committed; ++i, ++position) {
      if (rows.token_ids[i] != request.token(position)) {
        Fail("invariant 4: the target feeds token ", rows.token_ids[i],
             " at position ", position, " of request ", request.index,
             ", which holds ", request.token(position));
      }
      if (position < request.prompt_length() - 1) ++request.prefilled;
    }
    if (rows.num_logits == 0) continue;
    session.verifies = true;
    session.attached_in_step = false;
    session.rows.assign(rows.token_ids.begin() + num_committed,
                        rows.token_ids.end());
    if (position != session.committed) {
      Fail("invariant 4: the step of request ", request.index,
           " begins behind position ", position, " but ", session.committed,
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
    for (const int32_t token_id : session.rows) {
      if (!request.drafted.contains(
              DraftedKey(prefix, token_id, session.epoch)) &&
          !request.tampered) {
        Fail("stale tail: the target verifies token ", token_id,
             " at position ", position, " of request ", request.index,
             ", which the draft of epoch ", session.epoch,
             " did not draw behind these tokens");
      }
      prefix = ExtendHash(prefix, token_id);
      ++position;
    }
    if (position >
        request.prompt_length() + request.options->spec.max_tokens - 1) {
      Fail("the target computes beyond max_tokens of request ", request.index);
    }
  }
}

// Invariant 4 for the draft: its sequence is a prefix of the target's stream
// and behind it what this draft drew there.
void Checks::OnDraftForward(absl::Span<const model::SequenceRows> batch) {
  for (const model::SequenceRows& rows : batch) {
    SimulatedSequence& sequence = Sequence(rows);
    SessionOnWorker& session = *sequence.session;
    const RequestState& request = *session.request;
    CheckKv(sequence, "draft");
    int position = sequence.length();
    uint64_t prefix = sequence.hash(position);
    for (const int32_t token_id : rows.token_ids) {
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
    session.may_feed_again = session.drew ? -1 : session.last_fed;
    session.last_fed = position - 1;
    session.drew = false;
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
  // What this step must commit.
  const int last = request.prompt_length() +
                   static_cast<int>(request.expected.token_ids.size());
  const int num_rows = static_cast<int>(session.rows.size());
  int position = session.committed;
  int matched = 0;
  while (position < last && matched < num_rows &&
         session.rows[matched] == request.token(position)) {
    ++matched;
    ++position;
  }
  position = std::min(position + 1, last);
  const int count = static_cast<int>(verdict.token_ids.size());
  if (count != position - session.committed || verdict.matched != matched ||
      verdict.window != num_rows) {
    Fail("a step of request ", index, " verified ", num_rows,
         " tokens of which ", matched, " match, and must commit ",
         position - session.committed, "; its verdict says ", verdict.window,
         ", ", verdict.matched, ", ", count);
    return;
  }
  for (int i = 0; i < count; ++i) {
    if (verdict.token_ids[i] != request.token(session.committed + i)) {
      Fail("invariant 1: request ", index, " at position ",
           session.committed + i, ": ", verdict.token_ids[i], " instead of ",
           request.token(session.committed + i));
    }
  }
  session.committed = position;
  request.verified =
      std::max(request.verified, position - request.prompt_length());
  const bool ends = position == last;
  // Of a stop string the target does not know.
  if ((verdict.finish != FinishReason::kNone) != ends ||
      (ends && request.options->spec.stop.empty() &&
       ToFinish(verdict.finish) != request.expected.finish)) {
    Fail("invariant 3: request ", index, " at ", position, " of ", last,
         " positions has finish ", static_cast<int>(verdict.finish));
  }
  // The account: every row that was compared is counted, and counted once.
  if (verdict.accepted < 0 || verdict.accepted > verdict.verified ||
      (!session.attached_in_step &&
       (verdict.accepted < matched ||
        verdict.verified < std::min(matched + (ends ? 0 : 1), num_rows)))) {
    Fail("request ", index, " matched ", matched, " of ", num_rows,
         " but counts ", verdict.accepted, " accepted of ", verdict.verified,
         " verified");
  }
  request.accepted += verdict.accepted;
  if (request.num_drafts <= 1 && request.num_targets <= 1 &&
      request.accepted > request.verified) {
    Fail("request ", index, " has ", request.verified, " tokens but ",
         request.accepted, " were accepted");
  }
  if ((request.perfect_drafts || request.oracle_knows) && !request.tampered &&
      verdict.accepted != verdict.verified) {
    Fail("a draft that is never wrong: ", verdict.accepted, " accepted of ",
         verdict.verified, " verified of request ", index);
  }
}

void Checks::OnTail(SessionOnWorker& session, const speculation::Tail& tail) {
  RequestState& request = *session.request;
  const int index = request.index;
  if (tail.epoch != session.epoch || tail.base_length > tail.first_position) {
    Fail("a tail of epoch ", tail.epoch, " at ", tail.first_position,
         " behind base ", tail.base_length, " of request ", index,
         ", whose draft has epoch ", session.epoch);
  }
  // In turns a draft waits where its policy ends a chunk, under overlap it goes
  // on, but for a token that it knows wrong.
  const bool in_turns =
      request.options->spec.method == speculation::Method::kSd;
  if ((tail.stop == speculation::StopMark::kChunk && in_turns) ||
      (tail.stop == speculation::StopMark::kPolicy && !in_turns &&
       !tail.token_ids.empty())) {
    Fail("the draft of request ", index, " ends a chunk at ",
         tail.first_position, " with mark ", static_cast<int>(tail.stop));
  }
  if (tail.token_ids.empty()) return;
  const SimulatedSequence* sequence = session.sequence;
  if (tail.token_ids.size() != 1 || sequence == nullptr ||
      sequence->length() != tail.first_position) {
    Fail("the tail at ", tail.first_position, " of request ", index,
         " was drawn behind ", sequence == nullptr ? -1 : sequence->length(),
         " tokens");
    return;
  }
  session.drew = true;
  const int32_t token_id = tail.token_ids[0];
  request.drafted.insert(
      DraftedKey(sequence->hash(tail.first_position), token_id, session.epoch));
  if (tail.first_position >
      request.prompt_length() + request.options->spec.max_tokens - 2) {
    Fail("the draft of request ", index, " draws for position ",
         tail.first_position, ", beyond max_tokens");
  }
  if (redraws_) Redraw(session, token_id);
  if (session.perfect && token_id != request.token(tail.first_position)) {
    Fail("a draft that is never wrong draws ", token_id, " instead of ",
         request.token(tail.first_position), " at position ",
         tail.first_position, " of request ", index);
  }
}

// The token is the draft model's own behind its sequence, drawn with the
// request's noise and penalties.
void Checks::Redraw(const SessionOnWorker& session, int32_t token_id) {
  const coordinator::RequestSpec& spec = session.request->options->spec;
  const int prompt_length = session.request->prompt_length();
  model::EndRule end_rule{prompt_length + spec.min_tokens, spec.stop_token_ids};
  if (!spec.ignore_eos) end_rule.token_ids.push_back(kEos);
  model::Sampler sampler(spec.sampling, kVocabSize, std::move(end_rule));
  model::TokenHistory history(prompt_length);
  const SimulatedSequence& sequence = *session.sequence;
  const int length = sequence.length();
  for (int i = 0; i < length; ++i) history.Push(sequence.token(i));
  const int32_t before = length >= 2 ? sequence.token(length - 2) : -1;
  const int32_t drawn = sampler.Sample(
      session.table->Row(before, sequence.token(length - 1)), length, history);
  if (drawn != token_id) {
    Fail("the draft of request ", session.request->index, " draws ", token_id,
         " at position ", length, ", its model says ", drawn);
  }
}

void Checks::BetweenSteps(const SimulatedModel& model) {
  for (const SimulatedSequence* sequence : model.sequences()) {
    const SessionOnWorker& session = *sequence->session;
    if (session.role != coordinator::WorkerRole::kTarget) continue;
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
  }
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
         static_cast<int>(expected.finish));
  }
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
  if (request.num_targets == 1 &&
      request.cached + request.prefilled != request.prompt_length() - 1) {
    Fail("request ", request.index, " of ", request.prompt_length(),
         " tokens says that ", request.cached, " were cached, but ",
         request.prefilled, " were computed");
  }
  const speculation::SpeculationStats& stats = completion.stats;
  if (stats.accepted > stats.verified || stats.committed != count ||
      stats.stale_messages < request.injected_stale) {
    Fail("the account of request ", request.index, ": ", stats.accepted,
         " accepted of ", stats.verified, ", ", stats.committed,
         " committed of ", count, ", ", stats.stale_messages,
         " stale messages where ", request.injected_stale, " were injected");
  }
}

void Checks::OnError(RequestState& request, const absl::Status& status) {
  CheckEnd(request);
  request.status = status;
  if (status.ok()) Fail("request ", request.index, " ends with an OK error");
}

}  // namespace nacre::protocol
