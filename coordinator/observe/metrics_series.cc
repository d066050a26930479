#include "coordinator/observe/metrics_series.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "speculation/policies/policy_spec.h"

namespace nacre::coordinator {
namespace {

using Buckets = std::vector<double>;

// Those of OpenTelemetry's gen_ai metrics, with finer ones below for small
// models.
const Buckets kFirstTokenBuckets = {.001, .005, .01, .02, .04, .06, .08, .1,
                                    .25,  .5,   .75, 1,   2.5, 5,   7.5, 10};
const Buckets kTokenBuckets = {.001, .0025, .005, .01, .025, .05, .075, .1,
                               .15,  .2,    .3,   .4,  .5,   .75, 1,    2.5};
const Buckets kRequestBuckets = {.01,  .02,  .04,  .08,   .16,   .32,   .64,
                                 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92};
const Buckets kRoundBuckets = {.0005, .001, .0025, .005, .01, .025,
                               .05,   .1,   .25,   .5,   1,   2.5};
const Buckets kOverheadBuckets = {.00001, .000025, .00005, .0001, .00025,
                                  .0005,  .001,    .0025,  .005,  .01};
const Buckets kLengthBuckets = {0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64};

constexpr char kWasted[] = "nacre_spec_decode_draft_tokens_wasted_total";
constexpr char kWastedHelp[] =
    "Draft tokens that were of no use: rejected by the target; branch, sent "
    "ahead beside the path that the text took; stale, after a rejected one or "
    "of a lost draft; cancelled, still to be compared when the request ended.";
constexpr char kDegraded[] = "nacre_spec_decode_degraded_rounds_total";
constexpr char kDegradedHelp[] =
    "Target steps without the draft that the method asks for, where the "
    "service has had one.";
constexpr char kRoundWait[] = "nacre_round_wait_seconds";
constexpr char kRoundWaitHelp[] =
    "What a worker waited for the other in one round of one request.";
constexpr char kWait[] = "nacre_spec_decode_wait_seconds_total";
constexpr char kWaitHelp[] =
    "What requests waited at their targets for draft tokens: after a token "
    "that the draft had prepared (hit), or while it began anew (miss).";

// The names of google.rpc.Code.
constexpr const char* kCodeNames[] = {"OK",
                                      "CANCELLED",
                                      "UNKNOWN",
                                      "INVALID_ARGUMENT",
                                      "DEADLINE_EXCEEDED",
                                      "NOT_FOUND",
                                      "ALREADY_EXISTS",
                                      "PERMISSION_DENIED",
                                      "RESOURCE_EXHAUSTED",
                                      "FAILED_PRECONDITION",
                                      "ABORTED",
                                      "OUT_OF_RANGE",
                                      "UNIMPLEMENTED",
                                      "INTERNAL",
                                      "UNAVAILABLE",
                                      "DATA_LOSS",
                                      "UNAUTHENTICATED"};

}  // namespace

RequestSeries::RequestSeries(telemetry::MetricBuilder& builder)
    : running(builder.Gauge("nacre_num_requests_running",
                            "Requests that run on a target.")),
      waiting(builder.Gauge("nacre_num_requests_waiting",
                            "Requests that wait for room.")),
      prompt_tokens(
          builder.Counter("nacre_prompt_tokens_total",
                          "Prompt tokens of the requests that have started.")),
      generation_tokens(builder.Counter("nacre_generation_tokens_total",
                                        "Tokens of all answers.")),
      prefix_queries(builder.Counter(
          "nacre_prefix_cache_queries_total",
          "Prompt tokens looked up in the targets' prefix caches.")),
      prefix_hits(builder.Counter("nacre_prefix_cache_hits_total",
                                  "Of these, the tokens that were there.")),
      time_to_first_token(builder.Histogram(
          "nacre_time_to_first_token_seconds",
          "From a request's arrival to its first token.", kFirstTokenBuckets)),
      inter_token_latency(builder.Histogram(
          "nacre_inter_token_latency_seconds",
          "Time per token after the first; the tokens of one round share it.",
          kTokenBuckets)),
      request_latency(builder.Histogram(
          "nacre_e2e_request_latency_seconds",
          "From arrival to the end of requests that ended well.",
          kRequestBuckets)),
      queue_time(builder.Histogram("nacre_request_queue_time_seconds",
                                   "From arrival to the start.",
                                   kRequestBuckets)) {}

RoundSeries::RoundSeries(telemetry::MetricBuilder& builder)
    : drafts(builder.Counter(
          "nacre_spec_decode_num_drafts_total",
          "Target steps after which draft tokens had been compared.")),
      draft_tokens(builder.Counter("nacre_spec_decode_num_draft_tokens_total",
                                   "Draft tokens sent to the target.")),
      verified_tokens(builder.Counter(
          "nacre_spec_decode_num_verified_tokens_total",
          "Draft tokens compared with all before them matching.")),
      accepted_tokens(
          builder.Counter("nacre_spec_decode_num_accepted_tokens_total",
                          "Draft tokens that matched.")),
      wasted_rejected(
          builder.Counter(kWasted, kWastedHelp, {{"reason", "rejected"}})),
      wasted_branch(
          builder.Counter(kWasted, kWastedHelp, {{"reason", "branch"}})),
      wasted_stale(
          builder.Counter(kWasted, kWastedHelp, {{"reason", "stale"}})),
      wasted_cancelled(
          builder.Counter(kWasted, kWastedHelp, {{"reason", "cancelled"}})),
      draft_length(builder.Histogram("nacre_spec_decode_draft_length",
                                     "Draft tokens that one step verified.",
                                     kLengthBuckets)),
      degraded_none(
          builder.Counter(kDegraded, kDegradedHelp, {{"reason", "no_draft"}})),
      degraded_lost(builder.Counter(kDegraded, kDegradedHelp,
                                    {{"reason", "draft_lost"}})),
      round_duration(builder.Histogram(
          "nacre_round_duration_seconds",
          "From the end of a request's step to the end of its next, on the "
          "target's clock.",
          kRoundBuckets)),
      draft_round_wait(builder.Histogram(kRoundWait, kRoundWaitHelp,
                                         kRoundBuckets, {{"role", "draft"}})),
      target_round_wait(builder.Histogram(kRoundWait, kRoundWaitHelp,
                                          kRoundBuckets, {{"role", "target"}})),
      wait_after_hit(builder.Counter(kWait, kWaitHelp, {{"after", "hit"}})),
      wait_after_miss(builder.Counter(kWait, kWaitHelp, {{"after", "miss"}})),
      round_overhead(builder.Histogram(
          "nacre_coordinator_round_overhead_seconds",
          "From a target's verdicts in hand to all that follows on its way.",
          kOverheadBuckets)),
      hidden_bytes(builder.Counter(
          "nacre_hidden_state_bytes_total",
          "Bytes of targets' hidden states that drafts took for their length "
          "policies.")),
      hidden_seconds(builder.Counter(
          "nacre_hidden_state_seconds_total",
          "From a commit at the draft to the arrival of its hidden state.")) {
  for (int i = 0; i < speculation::kBeyond; ++i) {
    target_ranks[i] = &builder.Counter(
        "nacre_spec_decode_target_ranks_total",
        "The rank of the target's token among the draft's best candidates, of "
        "requests that ended well.",
        {{"rank", i < speculation::kRanks ? absl::StrCat(i + 1) : "beyond"}});
  }
}

MetricsObserver::Series::Series(const std::string& model)
    : SeriesBuilder{telemetry::MetricBuilder({{"model", model}})},
      RequestSeries(builder),
      RoundSeries(builder) {
  for (int i = 0; i < kNumPositions; ++i) {
    const std::string position =
        i + 1 < kNumPositions ? absl::StrCat(i) : absl::StrCat(i, "+");
    accepted_per_position[i] = &builder.Counter(
        "nacre_spec_decode_num_accepted_tokens_per_pos_total",
        "Accepted draft tokens by their place among those of a round.",
        {{"position", position}});
  }
  for (int i = 0; i < kNumRoundModes; ++i) {
    mode_rounds[i] = &builder.Counter(
        "nacre_spec_decode_mode_rounds_total",
        "Target steps: with nothing drafted yet (pre_verify) or draft tokens "
        "at hand (post_verify) while the draft goes on, taking turns with it "
        "(sync), without it (off).",
        {{"mode", RoundModeName(static_cast<RoundMode>(i))}});
  }
  for (const speculation::PolicyInfo& info : speculation::AllPolicies()) {
    policy_stops.push_back(
        &builder.Counter("nacre_spec_decode_policy_stops_total",
                         "Chunks of draft tokens that a length policy ended.",
                         {{"policy", info.name}}));
  }
  const auto answers = [this](const char* status, const char* finish_reason) {
    return &builder.Counter(
        "nacre_requests_total", "Answers to Generate.",
        {{"status", status}, {"finish_reason", finish_reason}});
  };
  finished = {answers("OK", "eos"), answers("OK", "stop"),
              answers("OK", "length")};
  failed[0] = nullptr;
  for (int code = 1; code < kNumStatusCodes; ++code) {
    failed[code] = answers(kCodeNames[code], code == 1 ? "cancelled" : "error");
  }
}

prometheus::Counter& MetricsObserver::Series::requests(
    const absl::Status& status, absl::optional<Finish> finish) {
  if (status.ok()) {
    return *finished[static_cast<int>(finish.value_or(Finish::kLength))];
  }
  const int code = static_cast<int>(status.code());
  return *failed[code < kNumStatusCodes
                     ? code
                     : static_cast<int>(absl::StatusCode::kUnknown)];
}

}  // namespace nacre::coordinator
