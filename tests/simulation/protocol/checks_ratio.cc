// Requests under the ratio test. Their stream is no function of the seed: what
// is verified together depends on what had arrived. But what a step makes of
// its rows is: from the target's law after the tokens before each row, and
// from what the draft drew that row's token from after these very tokens.

#include <algorithm>
#include <utility>

#include "speculation/ratio_test.h"
#include "tests/simulation/protocol/checks.h"

namespace nacre::protocol {
namespace {

using speculation::DraftDistribution;
using speculation::Tail;
using speculation::Verdict;

int32_t Judge(const model::TokenWeights& target, int32_t drafted,
              const DraftDistribution& draft, uint64_t seed, int position) {
  return speculation::JudgeByRatio({target.token_ids, target.weights}, drafted,
                                   draft, seed, position);
}

}  // namespace

void Checks::FindDivergence(SimulatedSequence& sequence) {
  const SessionOnWorker& session = *sequence.session;
  const RequestState& request = *session.request;
  sequence.divergence = kNoDivergence;
  uint64_t prefix = kEmptyHash;
  for (int i = 0; i < sequence.length(); ++i) {
    const int32_t token_id = sequence.token(i);
    if (token_id != request.token(i)) {
      sequence.divergence = std::min(sequence.divergence, i);
    }
    if (i >= sequence.divergence && !request.drafted.contains(DraftedKey(
                                        prefix, token_id, session.epoch))) {
      Fail("invariant 4: the draft holds token ", token_id, " at position ", i,
           " of request ", request.index,
           ", neither committed nor drawn by it there");
    }
    prefix = ExtendHash(prefix, token_id);
  }
}

void Checks::OnDistribution(SessionOnWorker& session, const Tail& tail,
                            uint64_t drafted_key) {
  RequestState& request = *session.request;
  if (!request.is_ratio()) {
    if (tail.distributions.empty()) return;
    Fail("the draft of request ", request.index,
         " sends a distribution that nobody asked for");
    return;
  }
  if (tail.distributions.size() != 1 ||
      !speculation::IsValid(tail.distributions[0], tail.token_ids[0])) {
    Fail("the draft of request ", request.index, " does not say what token ",
         tail.token_ids[0], " at ", tail.first_position, " was drawn from");
    return;
  }
  request.drafted_from[drafted_key] = tail.distributions[0];
}

// What it was drawn from is the draft's own law there, and it was drawn from
// that.
void Checks::RedrawByRatio(TableSampler& sampler,
                           const SessionOnWorker& session, const Tail& tail) {
  const coordinator::RequestSpec& spec = session.request->options->spec;
  const DraftDistribution& said = tail.distributions[0];
  const model::TokenWeights& law = sampler.Weights();
  bool equal = said.token_ids.size() == law.token_ids.size();
  for (size_t i = 0; i < law.token_ids.size() && equal; ++i) {
    const auto at = std::find(said.token_ids.begin(), said.token_ids.end(),
                              law.token_ids[i]);
    equal = at != said.token_ids.end() &&
            said.weights[static_cast<size_t>(at - said.token_ids.begin())] ==
                law.weights[i];
  }
  const int32_t drawn =
      speculation::DrawToken(speculation::Weighted(said), spec.sampling.seed,
                             tail.first_position, NoisePurpose::kDraft);
  if (!equal || drawn != tail.token_ids[0]) {
    Fail("the draft of request ", session.request->index, " draws ",
         tail.token_ids[0], " at position ", tail.first_position,
         equal ? ", by its own numbers it would be "
               : ", from another law than its model's; that has ",
         drawn);
  }
}

// By the ratio test: up to the first row whose draft token is not accepted.
// Where a token changed on its way (World::Tamper), the target tests it against
// a law that it was not drawn from. That spoils the law of what is emitted
// (docs/exactness.md), nothing else: it is still a token that the target can
// draw.
Checks::Commitment Checks::DueByRatio(const SessionOnWorker& session,
                                      const Verdict& verdict) {
  const RequestState& request = *session.request;
  const coordinator::RequestSpec& spec = request.options->spec;
  const uint64_t seed = spec.sampling.seed;
  TableSampler sampler(request.table, spec);
  uint64_t prefix = kEmptyHash;
  const auto push = [&](int32_t token_id) {
    sampler.Push(token_id);
    prefix = ExtendHash(prefix, token_id);
  };
  for (const int32_t token_id : session.stream) push(token_id);

  const auto drafted_from = [&](int32_t token_id, uint32_t epoch) {
    const auto found =
        request.drafted_from.find(DraftedKey(prefix, token_id, epoch));
    return found == request.drafted_from.end() ? nullptr : &found->second;
  };
  // Whether a row may yield a token, where the draft's is known.
  const auto yields = [&](int32_t token_id, int32_t drafted, uint32_t epoch,
                          int position) {
    const DraftDistribution* from = drafted_from(drafted, epoch);
    return from != nullptr &&
           Judge(sampler.Weights(), drafted, *from, seed, position) == token_id;
  };

  Commitment due;
  const int count = static_cast<int>(verdict.token_ids.size());
  const int num_rows = static_cast<int>(session.rows.size());
  for (int row = 0;; ++row) {
    const int position = session.committed + row;
    // The last row waits for the draft's next token.
    if (row > 0 && row == num_rows && row == count &&
        spec.method == speculation::Method::kPearl) {
      return due;
    }
    const int32_t token_id = row < count ? verdict.token_ids[row] : -1;
    due.token_ids.push_back(token_id);
    if (row >= count) return due;  // its caller reports what is missing
    if (!sampler.CanDraw(token_id)) {
      Fail("ratio test: request ", request.index, " at position ", position,
           ": ", token_id, ", which the target cannot draw there");
      return due;
    }
    bool right = request.tampered;
    if (row < num_rows) {
      const int32_t drafted = session.rows[row];
      right |= yields(token_id, drafted, session.step_epoch, position);
      // Its law is the target's: it is never refused.
      right &=
          request.tampered || !request.perfect_drafts || token_id == drafted;
    } else {
      // The target's own, or what it makes of the draft's next token.
      right |= sampler.Sample() == token_id;
      for (int32_t e1 = 0; e1 < kVocabSize && !right; ++e1) {
        right = yields(token_id, e1, session.epoch, position);
      }
    }
    if (!right) {
      Fail("ratio test: request ", request.index, " at position ", position,
           ", row ", row, " of ", num_rows, ", commits ", token_id,
           " where the rule says another");
    }
    due.finish =
        FinishOf(spec, token_id, position + 1 - request.prompt_length());
    if (row == num_rows || token_id != session.rows[row]) return due;
    ++due.matched;
    if (due.finish.has_value()) return due;
    push(token_id);
  }
}

void Checks::OnDelivered(const SessionOnWorker& session,
                         const Verdict& verdict) {
  RequestState& request = *session.request;
  if (request.ended) return;
  request.known_compared += verdict.verified;
  request.known_accepted += verdict.accepted;
  if (!request.is_ratio()) return;
  if (verdict.base_length != request.known_length()) {
    Fail("invariant 2: a verdict on request ", request.index, " at ",
         verdict.base_length, " follows ", request.known_length(), " tokens");
    return;
  }
  std::vector<int32_t> token_ids = std::move(request.expected.token_ids);
  token_ids.insert(token_ids.end(), verdict.token_ids.begin(),
                   verdict.token_ids.end());
  request.expected = ShownOf(std::move(token_ids), request.options->spec);
}

}  // namespace nacre::protocol
