#include "coordinator/observe/trace_observer.h"

#include <utility>

#include "absl/time/clock.h"
#include "telemetry/trace_context.h"

namespace nacre::coordinator {
namespace {

// Of one request; a round has about five.
constexpr size_t kMaxEvents = 8192;

}  // namespace

TraceObserver::TraceObserver(Options options)
    : options_([&options] {
        if (!options.unix_now_ns)
          options.unix_now_ns = absl::GetCurrentTimeNanos;
        return std::move(options);
      }()) {}

TraceObserver::~TraceObserver() = default;

void TraceObserver::SetServer(const std::string& host, int port) {
  absl::MutexLock lock(&mu_);
  server_host_ = host;
  server_port_ = port;
}

RequestTrace* TraceObserver::Find(uint64_t session_id) {
  const auto it = traces_.find(session_id);
  return it == traces_.end() ? nullptr : it->second.get();
}

void TraceObserver::Remember(RequestTrace* trace, RequestTrace::Event event) {
  if (trace->events.size() < kMaxEvents) {
    trace->events.push_back(std::move(event));
  } else {
    ++trace->dropped_events;
  }
}

void TraceObserver::OnQueued(const RequestSpec& request, int position) {
  queue_positions_[{request.request_id, request.choice}] = position;
}

void TraceObserver::OnRefused(const RequestSpec& request,
                              const absl::Status& status) {
  // It is the other one of this name that waits.
  if (!absl::IsAlreadyExists(status)) {
    queue_positions_.erase({request.request_id, request.choice});
  }
}

void TraceObserver::OnStarted(uint64_t session_id, const RequestSpec& request,
                              const Placement& placement, int64_t queue_ns) {
  absl::optional<int> queue_position;
  const auto queued =
      queue_positions_.find({request.request_id, request.choice});
  if (queued != queue_positions_.end()) {
    queue_position = queued->second;
    queue_positions_.erase(queued);
  }
  const absl::optional<telemetry::SpanContext> parent =
      telemetry::ParseTraceparent(request.traceparent);
  telemetry::SpanContext context;
  context.trace_id =
      parent.has_value() ? parent->trace_id : telemetry::NewTraceId();
  context.sampled =
      parent.has_value() && options_.client_decides
          ? parent->sampled
          : telemetry::IsSampled(context.trace_id, options_.sample_ratio);
  if (!context.sampled) return;
  context.span_id = telemetry::NewSpanId();

  auto trace = std::make_unique<RequestTrace>();
  trace->context = context;
  if (parent.has_value()) {
    trace->parent_id = parent->span_id;
    trace->trace_state = request.tracestate;
  }
  const int64_t now_ns = options_.now_ns();
  trace->to_unix_ns = options_.unix_now_ns() - now_ns;
  trace->model = options_.model;
  trace->request_id = request.request_id;
  trace->num_choices = request.num_choices;
  trace->choice = request.choice;
  trace->method = request.method;
  trace->wants_draft = request.wants_draft();
  trace->sampling = request.sampling;
  trace->max_tokens = request.max_tokens;
  trace->prompt_tokens = static_cast<int>(request.prompt_ids.size());
  trace->stream = request.stream;
  trace->arrival_ns = now_ns - queue_ns;
  trace->started_ns = now_ns;
  trace->queue_position = queue_position;
  trace->placement = placement;
  {
    absl::MutexLock lock(&mu_);
    trace->server_address = server_host_;
    trace->server_port = server_port_;
  }
  Remember(trace.get(), RequestTrace::Place{now_ns, placement});
  traces_[session_id] = std::move(trace);
}

void TraceObserver::OnOpened(uint64_t session_id, int cached_tokens) {
  if (RequestTrace* trace = Find(session_id)) {
    trace->cached_tokens = cached_tokens;
  }
}

std::shared_ptr<const SharedStep> TraceObserver::Join(const RequestTrace& trace,
                                                      WorkerRole role,
                                                      const SpanRecord& span) {
  if (span.kind != SpanRecord::Kind::kPrefill &&
      span.kind != SpanRecord::Kind::kDraft &&
      span.kind != SpanRecord::Kind::kVerify) {
    return nullptr;
  }
  const std::string& worker = role == WorkerRole::kDraft
                                  ? trace.placement.draft_address
                                  : trace.placement.target_address;
  if (last_step_.step == nullptr || last_step_.worker != worker ||
      last_step_.start_ns != span.start_ns) {
    last_step_ = {worker, span.start_ns, std::make_shared<SharedStep>(), {}};
  }
  // The rest of a prompt and the first step after it are one forward.
  if (last_step_.last_request != trace.context.span_id) {
    last_step_.last_request = trace.context.span_id;
    last_step_.step->Add(trace.context);
  }
  return last_step_.step;
}

void TraceObserver::OnCached(uint64_t session_id, int tokens) {
  if (RequestTrace* trace = Find(session_id)) {
    trace->cached_tokens = trace->cached_tokens.value_or(0) + tokens;
  }
}

void TraceObserver::OnSpan(uint64_t session_id, WorkerRole role,
                           const SpanRecord& span, int64_t clock_offset_ns) {
  RequestTrace* trace = Find(session_id);
  if (trace == nullptr) return;
  RequestTrace::Work work{role, span, Join(*trace, role, span)};
  work.span.start_ns -= clock_offset_ns;
  Remember(trace, work);
}

void TraceObserver::OnAccepted(uint64_t session_id, int num_shown) {
  RequestTrace* trace = Find(session_id);
  if (trace == nullptr) return;
  if (trace->first_token_ns == 0 && num_shown > 0) {
    trace->first_token_ns = options_.now_ns();
  }
  trace->shown_tokens += num_shown;
}

void TraceObserver::OnRound(uint64_t session_id,
                            const speculation::Verdict& verdict,
                            int num_shown) {
  RequestTrace* trace = Find(session_id);
  if (trace == nullptr) return;
  OnAccepted(session_id, num_shown);
  const int64_t now_ns = options_.now_ns();
  RequestTrace::Round round;
  round.arrival_ns = now_ns;
  round.mode = ModeOf(trace->method, verdict);
  round.base_length = verdict.base_length;
  round.tokens = static_cast<int>(verdict.token_ids.size());
  round.window = verdict.drafted();
  round.suffixes = verdict.suffix_proposed;
  round.verified = verdict.verified;
  round.accepted = verdict.accepted;
  round.matched = verdict.matched;
  round.degraded = verdict.degraded && trace->wants_draft;
  Remember(trace, round);
}

void TraceObserver::OnMoved(uint64_t session_id, const Placement& placement) {
  if (RequestTrace* trace = Find(session_id)) {
    trace->placement = placement;
    Remember(trace, RequestTrace::Place{options_.now_ns(), placement});
  }
}

void TraceObserver::OnFinished(uint64_t session_id, const RequestSpec&,
                               const absl::Status& status,
                               const Completion* completion) {
  const auto it = traces_.find(session_id);
  if (it == traces_.end()) return;
  const std::shared_ptr<RequestTrace> trace = std::move(it->second);
  traces_.erase(it);
  trace->finished_ns = options_.now_ns();
  trace->status = status;
  if (completion != nullptr) {
    trace->finish = completion->finish;
    // The answer's own numbers.
    trace->finished_ns = trace->arrival_ns + completion->total_ns;
    trace->first_token_ns =
        trace->arrival_ns + completion->time_to_first_token_ns;
  }
  if (trace->dropped_events > 0) {
    options_.exporter->CountDropped(static_cast<size_t>(trace->dropped_events));
  }
  // Beside the events there are the queue and the request itself.
  options_.exporter->Export(trace->events.size() + 2,
                            [trace] { return BuildSpans(*trace); });
}

}  // namespace nacre::coordinator
