// nacre.v1 messages to and from the workers' own structs: the parts that both
// workers share. Only services and the registration include this.
//
// Numbers from a peer are unsigned and may be anything: one that does not fit
// becomes -1 (or the largest value, for limits), which the engines refuse.
//
// Pure functions.

#ifndef WORKER_CONVERT_H_
#define WORKER_CONVERT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/sampling_params.h"
#include "common/token_logprobs.h"
#include "proto/worker.pb.h"
#include "speculation/pipeline.h"
#include "worker/engine.h"
#include "worker/events.h"

namespace nacre::worker {

// Longer lists of token ids are malformed.
inline constexpr int kMaxTokenIds = 4 << 20;

int ToInt(uint32_t value);        // -1 when it does not fit
int ToLimit(uint32_t value);      // the largest int when it does not fit
int64_t ToDuration(uint64_t ns);  // at most an hour: sums never overflow

using RepeatedIds = google::protobuf::RepeatedField<uint32_t>;
// False, and `ids` unchanged, when there are more than kMaxTokenIds.
bool ToTokenIds(const RepeatedIds& proto, std::vector<int32_t>* ids);

SamplingParams ToSamplingParams(const v1::SamplingParams& proto);
speculation::DraftPlan ToDraftPlan(const v1::DraftPlan& proto);
speculation::TargetPlan ToTargetPlan(const v1::TargetPlan& proto);
// UNSPECIFIED is exact. False for an unknown one.
bool ToVerification(v1::Verification proto,
                    speculation::Verification* verification);
absl::Status UnknownVerification(v1::Verification proto);  // INVALID_ARGUMENT
// False for too many ids or distributions, or an unknown stop mark.
bool ToTail(const v1::Tail& proto, speculation::Tail* tail);

void FillTail(uint64_t session_id, const speculation::Tail& tail,
              v1::Tail* proto);
void FillLogprobs(const std::vector<TokenLogprobs>& logprobs,
                  v1::Verdict* proto);
void FillVerdict(uint64_t session_id, const speculation::Verdict& verdict,
                 v1::Verdict* proto);
void FillHeartbeat(const EngineStats& stats, bool draining,
                   v1::Heartbeat* proto);
void FillError(const SessionFailure& failure, v1::SessionError* proto);
void FillSpan(const Span& span, v1::Span* proto);

// `Event` is v1::DraftEvent or v1::TargetEvent.
template <typename Event>
void FillSessionEvents(const SessionEvents& events, Event* proto) {
  for (const SessionOpening& opening : events.opened) {
    auto* opened = proto->add_opened();
    opened->set_session_id(opening.session_id);
    opened->set_cached_tokens(static_cast<uint32_t>(opening.cached_tokens));
    opened->set_policy_note(opening.policy_note);
  }
  for (const SessionCached& cached : events.cached) {
    auto* more = proto->add_cached();
    more->set_session_id(cached.session_id);
    more->set_tokens(static_cast<uint32_t>(cached.tokens));
  }
  for (const SessionFailure& failure : events.failures) {
    FillError(failure, proto->add_errors());
  }
  for (const uint64_t id : events.closed) {
    proto->add_closed()->set_session_id(id);
  }
  for (const Span& span : events.spans) FillSpan(span, proto->add_spans());
}

}  // namespace nacre::worker

#endif  // WORKER_CONVERT_H_
