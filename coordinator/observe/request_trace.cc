#include "coordinator/observe/request_trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "coordinator/dispatch/clock.h"
#include "telemetry/trace_context.h"

namespace nacre::coordinator {
namespace {

using telemetry::Span;

// Of one span, the others of a step; large batches would fill the queue.
constexpr size_t kMaxBatchLinks = 32;

bool IsWait(SpanRecord::Kind kind) {
  return kind == SpanRecord::Kind::kWaitDraftTokens ||
         kind == SpanRecord::Kind::kWaitVerdict ||
         kind == SpanRecord::Kind::kWaitAcknowledge;
}

const char* WorkName(SpanRecord::Kind kind) {
  switch (kind) {
    case SpanRecord::Kind::kPrefill:
      return "nacre.prefill";
    case SpanRecord::Kind::kDraft:
      return "nacre.draft";
    case SpanRecord::Kind::kVerify:
      return "nacre.verify";
    case SpanRecord::Kind::kRollback:
      return "nacre.rollback";
    case SpanRecord::Kind::kHidden:
      return "nacre.hidden";
    default:
      return "nacre.wait";
  }
}

const char* WaitReason(SpanRecord::Kind kind) {
  switch (kind) {
    case SpanRecord::Kind::kWaitDraftTokens:
      return "draft_tokens";
    case SpanRecord::Kind::kWaitVerdict:
      return "verdict";
    default:
      return "acknowledge";
  }
}

// Why a request is placed anew. Null `before`: it starts.
const char* PlaceReason(const Placement* before, const Placement& now) {
  if (before == nullptr) return "start";
  if (now.target_address != before->target_address) {
    return now.target_address.empty() ? "target_lost" : "target_found";
  }
  return now.draft_address.empty() ? "draft_lost" : "draft_found";
}

class SpanBuilder {
 public:
  explicit SpanBuilder(const RequestTrace& trace) : trace_(trace) {}

  std::vector<Span> Build() {
    AddQueue();
    for (const RequestTrace::Event& event : trace_.events) {
      std::visit([this](const auto& each) { Add(each); }, event);
    }
    // What came after the last verdict belongs to no round.
    FlushWork(trace_.context.span_id);
    AddRequest();
    return std::move(spans_);
  }

 private:
  Span& Begin(const char* name, const telemetry::SpanId& parent_id,
              int64_t start_ns, int64_t end_ns) {
    Span& span = spans_.emplace_back();
    span.trace_id = trace_.context.trace_id;
    span.span_id = telemetry::NewSpanId();
    span.parent_id = parent_id;
    span.trace_state = trace_.trace_state;
    span.name = name;
    span.start_ns = start_ns + trace_.to_unix_ns;
    span.end_ns = std::max(start_ns, end_ns) + trace_.to_unix_ns;
    return span;
  }

  void AddQueue() {
    if (!trace_.queue_position.has_value()) return;
    Span& span = Begin("nacre.queue", trace_.context.span_id, trace_.arrival_ns,
                       trace_.started_ns);
    span.attributes = {
        {"nacre.queue.position", int64_t{*trace_.queue_position}}};
  }

  void Add(const RequestTrace::Place& place) {
    const char* reason =
        PlaceReason(placed_ ? &placement_ : nullptr, place.placement);
    if (place.placement.draft_address != placement_.draft_address) {
      drafted_.clear();
    }
    placement_ = place.placement;
    placed_ = true;
    Span& span = Begin("nacre.place", trace_.context.span_id, place.time_ns,
                       place.time_ns);
    span.attributes = {
        {"nacre.target", placement_.target_address},
        {"nacre.target.incarnation", placement_.target_incarnation},
        {"nacre.draft", placement_.draft_address},
        {"nacre.draft.incarnation", placement_.draft_incarnation},
        {"nacre.place.reason", reason}};
  }

  void Add(const RequestTrace::Work& work) {
    if (work.span.kind == SpanRecord::Kind::kPrefill) {
      AddWork(work, trace_.context.span_id);
    } else {
      work_.push_back(&work);
    }
  }

  void Add(const RequestTrace::Round& round) {
    int64_t start_ns = 0, end_ns = 0, target_wait_ns = 0, draft_wait_ns = 0;
    for (const RequestTrace::Work* work : work_) {
      const SpanRecord& span = work->span;
      if (work->role == WorkerRole::kTarget) {
        if (start_ns == 0) start_ns = span.start_ns;
        if (span.kind == SpanRecord::Kind::kVerify) {
          end_ns = span.start_ns + span.duration_ns;
        }
      }
      if (span.kind == SpanRecord::Kind::kWaitDraftTokens) {
        target_wait_ns += span.duration_ns;
      } else if (span.kind == SpanRecord::Kind::kWaitVerdict) {
        draft_wait_ns += span.duration_ns;
      }
    }
    if (end_ns == 0) end_ns = round.arrival_ns;
    if (start_ns == 0) start_ns = end_ns;
    Span& span = Begin("nacre.round", trace_.context.span_id, start_ns, end_ns);
    span.attributes = {
        {"nacre.round", num_rounds_++},
        {"nacre.base_len", int64_t{round.base_length}},
        {"nacre.mode", RoundModeName(round.mode)},
        {"nacre.draft_len", int64_t{round.window}},
        {"nacre.accepted", int64_t{round.accepted}},
        {"nacre.bonus", int64_t{std::max(0, round.tokens - round.matched)}},
        {"nacre.wasted", int64_t{round.verified - round.accepted}},
        {"nacre.wait.draft_ns", draft_wait_ns},
        {"nacre.wait.target_ns", target_wait_ns}};
    if (round.suffixes > 0) {
      span.attributes.push_back({"nacre.suffix_len", int64_t{round.suffixes}});
    }
    if (round.degraded) span.attributes.push_back({"nacre.degraded", true});
    const telemetry::SpanId round_id = span.span_id;
    FlushWork(round_id, &round);
  }

  // `round`: the one that the work led to, if any.
  void FlushWork(const telemetry::SpanId& parent_id,
                 const RequestTrace::Round* round = nullptr) {
    for (const RequestTrace::Work* work : work_) {
      AddWork(*work, parent_id);
      if (work->span.kind == SpanRecord::Kind::kDraft &&
          work->span.length > 0) {
        drafted_[work->span.length - 1] = spans_.back().span_id;
      } else if (work->span.kind == SpanRecord::Kind::kVerify &&
                 round != nullptr) {
        LinkDrafted(*round);
      }
    }
    work_.clear();
  }

  // From the verify span just added to what drafted the tokens of its rows. A
  // draft is heard of before the step that it is for; what was drafted twice
  // counts with the later one. A draft tells how long its tokens became, of a
  // tree the main path: its other nodes have no links.
  void LinkDrafted(const RequestTrace::Round& round) {
    const auto end = drafted_.lower_bound(round.base_length + round.window);
    for (auto it = drafted_.lower_bound(round.base_length); it != end; ++it) {
      spans_.back().links.push_back(
          {trace_.context.trace_id, it->second, "drafted"});
    }
    // What is committed now is never verified again.
    drafted_.erase(drafted_.begin(),
                   drafted_.lower_bound(round.base_length + round.tokens));
  }

  // To the other requests of the step.
  void LinkBatch(const SharedStep& step, Span* span) const {
    for (const telemetry::SpanContext& other : step.requests()) {
      if (other.span_id == trace_.context.span_id) continue;
      if (span->links.size() < kMaxBatchLinks) {
        span->links.push_back({other.trace_id, other.span_id, "batch"});
      } else {
        ++span->dropped_links;
      }
    }
  }

  void AddWork(const RequestTrace::Work& work,
               const telemetry::SpanId& parent_id) {
    const SpanRecord& record = work.span;
    const bool draft = work.role == WorkerRole::kDraft;
    Span& span = Begin(WorkName(record.kind), parent_id, record.start_ns,
                       record.start_ns + record.duration_ns);
    span.attributes = {{"nacre.role", draft ? "draft" : "target"},
                       {"nacre.worker", draft ? placement_.draft_address
                                              : placement_.target_address}};
    const auto add = [&span](const char* key, telemetry::AttributeValue value) {
      span.attributes.emplace_back(key, std::move(value));
    };
    if (IsWait(record.kind)) {
      add("nacre.wait.reason", WaitReason(record.kind));
      if (record.after_miss) add("nacre.wait.after_miss", true);
      if (record.kind != SpanRecord::Kind::kWaitAcknowledge) {
        add("nacre.wait.peer",
            draft ? placement_.target_address : placement_.draft_address);
      }
    } else if (record.kind == SpanRecord::Kind::kRollback) {
      add("nacre.rollback.from", int64_t{record.length} + record.rows);
      add("nacre.rollback.to", int64_t{record.length});
    } else if (record.kind == SpanRecord::Kind::kHidden) {
      add("nacre.hidden.bytes", record.bytes);
      add("nacre.wait.peer", placement_.target_address);
    } else {
      add("nacre.rows", int64_t{record.rows});
      add("nacre.batch.tokens", int64_t{record.batch_rows});
      add("nacre.batch.size", int64_t{record.batch_sessions});
      if (record.abandoned) add("nacre.abandoned", true);
      if (record.kind == SpanRecord::Kind::kPrefill) {
        add("nacre.prompt_tokens", int64_t{trace_.prompt_tokens});
        if (!draft && trace_.cached_tokens.has_value()) {
          add("nacre.cached_tokens", int64_t{*trace_.cached_tokens});
        }
      }
      if (work.step != nullptr) LinkBatch(*work.step, &span);
    }
  }

  void AddRequest() {
    Span& span = Begin("nacre.v1.Inference/Generate", trace_.parent_id,
                       trace_.arrival_ns, trace_.finished_ns);
    span.span_id = trace_.context.span_id;
    span.server = true;
    span.attributes = {
        {"rpc.system.name", "grpc"},
        {"rpc.method", "nacre.v1.Inference/Generate"},
        {"rpc.status_code", absl::StatusCodeToString(trace_.status.code())},
        {"gen_ai.operation.name", "text_completion"},
        {"gen_ai.request.model", trace_.model},
        {"gen_ai.request.max_tokens", int64_t{trace_.max_tokens}},
        {"gen_ai.request.temperature", double{trace_.sampling.temperature}},
        {"gen_ai.request.top_p", double{trace_.sampling.top_p}},
        {"gen_ai.request.top_k", int64_t{trace_.sampling.top_k}},
        {"gen_ai.request.seed", static_cast<int64_t>(trace_.sampling.seed)},
        {"gen_ai.request.stream", trace_.stream},
        {"gen_ai.usage.input_tokens", int64_t{trace_.prompt_tokens}},
        {"gen_ai.usage.output_tokens", trace_.shown_tokens},
        {"gen_ai.latency.time_in_queue",
         Seconds(trace_.started_ns - trace_.arrival_ns)},
        {"gen_ai.latency.e2e", Seconds(trace_.finished_ns - trace_.arrival_ns)},
        {"nacre.request.id", trace_.request_id},
        {"nacre.method", std::string(speculation::MethodName(trace_.method))},
        {"nacre.rounds", num_rounds_}};
    const auto add = [&span](const char* key, telemetry::AttributeValue value) {
      span.attributes.emplace_back(key, std::move(value));
    };
    if (!trace_.server_address.empty()) {
      add("server.address", trace_.server_address);
      add("server.port", int64_t{trace_.server_port});
    }
    if (trace_.num_choices > 1) {
      add("gen_ai.request.choice.count", int64_t{trace_.num_choices});
      add("nacre.choice", int64_t{trace_.choice});
    }
    if (trace_.cached_tokens.has_value()) {
      add("gen_ai.usage.cache_read.input_tokens",
          int64_t{*trace_.cached_tokens});
    }
    if (const int64_t first_ns = trace_.first_token_ns; first_ns > 0) {
      add("gen_ai.latency.time_to_first_token",
          Seconds(first_ns - trace_.arrival_ns));
      add("gen_ai.latency.time_in_model_prefill",
          Seconds(first_ns - trace_.started_ns));
      add("gen_ai.latency.time_in_model_decode",
          Seconds(trace_.finished_ns - first_ns));
      add("gen_ai.latency.time_in_model_inference",
          Seconds(trace_.finished_ns - trace_.started_ns));
    }
    if (trace_.finish.has_value()) {
      add("gen_ai.response.finish_reasons",
          std::vector<std::string>{*trace_.finish == Finish::kLength ? "length"
                                                                     : "stop"});
    }
    if (trace_.dropped_events > 0) {
      add("nacre.dropped_events", trace_.dropped_events);
    }
    if (!trace_.status.ok()) {
      span.error = true;
      span.error_message = std::string(trace_.status.message());
    }
  }

  const RequestTrace& trace_;
  std::vector<Span> spans_;
  std::vector<const RequestTrace::Work*> work_;  // of the round under way
  // What drafted the token of a position, as far as it is not yet verified.
  std::map<int, telemetry::SpanId> drafted_;
  Placement placement_;
  bool placed_ = false;
  int64_t num_rounds_ = 0;
};

}  // namespace

std::vector<telemetry::Span> BuildSpans(const RequestTrace& trace) {
  return SpanBuilder(trace).Build();
}

}  // namespace nacre::coordinator
