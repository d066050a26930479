#include "coordinator/grpc_worker_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"
#include "coordinator/clock.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::StopMark;

constexpr size_t kMaxNoteBytes = 256;

// Fails softly: what does not fit becomes -1 and is refused as malformed.
int ToInt(uint32_t value) { return value > 0x7FFFFFFFu ? -1 : value; }

// Times and sizes of a peer: none makes our sums overflow.
int64_t ToCount(uint64_t value) {
  return static_cast<int64_t>(std::min(value, uint64_t{1} << 60));
}
int64_t ToNs(uint64_t value) { return ToCount(value); }

StopMark FromProto(v1::StopMark mark) {
  switch (mark) {
    case v1::STOP_MARK_LEAD:
      return StopMark::kLead;
    case v1::STOP_MARK_POLICY:
      return StopMark::kPolicy;
    case v1::STOP_MARK_END:
      return StopMark::kEnd;
    case v1::STOP_MARK_CHUNK:
      return StopMark::kChunk;
    default:
      return StopMark::kNone;
  }
}

v1::StopMark ToProto(StopMark mark) {
  switch (mark) {
    case StopMark::kLead:
      return v1::STOP_MARK_LEAD;
    case StopMark::kPolicy:
      return v1::STOP_MARK_POLICY;
    case StopMark::kEnd:
      return v1::STOP_MARK_END;
    case StopMark::kChunk:
      return v1::STOP_MARK_CHUNK;
    case StopMark::kNone:
      break;
  }
  return v1::STOP_MARK_UNSPECIFIED;
}

FinishReason FromProto(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_EOS:
      return FinishReason::kEos;
    case v1::FINISH_REASON_STOP:
      return FinishReason::kStop;
    case v1::FINISH_REASON_LENGTH:
      return FinishReason::kLength;
    default:
      return FinishReason::kNone;
  }
}

SpanRecord FromProto(const v1::Span& span) {
  SpanRecord record;
  record.session_id = span.session_id();
  switch (span.kind()) {
    case v1::Span::KIND_DRAFT:
      record.kind = SpanRecord::Kind::kDraft;
      break;
    case v1::Span::KIND_VERIFY:
      record.kind = SpanRecord::Kind::kVerify;
      break;
    case v1::Span::KIND_WAIT_DRAFT_TOKENS:
      record.kind = SpanRecord::Kind::kWaitDraftTokens;
      break;
    case v1::Span::KIND_WAIT_VERDICT:
      record.kind = SpanRecord::Kind::kWaitVerdict;
      break;
    case v1::Span::KIND_WAIT_ACKNOWLEDGE:
      record.kind = SpanRecord::Kind::kWaitAcknowledge;
      break;
    case v1::Span::KIND_ROLLBACK:
      record.kind = SpanRecord::Kind::kRollback;
      break;
    case v1::Span::KIND_HIDDEN:
      record.kind = SpanRecord::Kind::kHidden;
      break;
    default:
      record.kind = SpanRecord::Kind::kPrefill;
      break;
  }
  record.start_ns = ToNs(span.start_ns());
  record.duration_ns = ToNs(span.duration_ns());
  record.rows = ToInt(span.rows());
  record.batch_rows = ToInt(span.batch_rows());
  record.matched = ToInt(span.matched());
  record.accepted = ToInt(span.accepted());
  record.length = ToInt(span.length());
  record.batch_sessions = ToInt(span.batch_sessions());
  record.bytes = ToCount(span.bytes());
  record.abandoned = span.abandoned();
  return record;
}

TokenLogprobs FromProto(const v1::TokenLogprobs& proto) {
  TokenLogprobs token;
  token.token_id = ToInt(proto.token_id());
  token.logprob = proto.logprob();
  const int count = std::min(proto.top_ids_size(), proto.top_logprobs_size());
  for (int i = 0; i < count; ++i) {
    token.top.emplace_back(ToInt(proto.top_ids(i)), proto.top_logprobs(i));
  }
  return token;
}

void Append(const v1::TargetEvent& event, WorkerEvents* events) {
  for (const v1::Verdict& proto : event.verdicts()) {
    speculation::Verdict verdict;
    verdict.base_length = ToInt(proto.base_length());
    verdict.token_ids.assign(proto.token_ids().begin(),
                             proto.token_ids().end());
    verdict.window = ToInt(proto.window());
    verdict.matched = ToInt(proto.matched());
    verdict.verified = ToInt(proto.verified());
    verdict.accepted = ToInt(proto.accepted());
    verdict.degraded = proto.degraded();
    verdict.finish = FromProto(proto.finish());
    std::vector<TokenLogprobs> logprobs;
    for (const v1::TokenLogprobs& token : proto.logprobs()) {
      logprobs.push_back(FromProto(token));
    }
    events->verdicts.push_back(
        {proto.session_id(), std::move(verdict), std::move(logprobs)});
  }
}

void Append(const v1::DraftEvent& event, WorkerEvents* events) {
  for (const v1::Tail& proto : event.tails()) {
    speculation::Tail tail;
    tail.epoch = proto.epoch();
    tail.base_length = ToInt(proto.base_length());
    tail.first_position = ToInt(proto.first_position());
    tail.token_ids.assign(proto.token_ids().begin(), proto.token_ids().end());
    tail.stop = FromProto(proto.stop());
    for (const v1::DraftDistribution& from : proto.distributions()) {
      speculation::DraftDistribution& to = tail.distributions.emplace_back();
      to.token_ids.assign(from.token_ids().begin(), from.token_ids().end());
      to.weights.assign(from.weights().begin(), from.weights().end());
    }
    events->tails.emplace_back(proto.session_id(), std::move(tail));
  }
  for (const v1::PolicyNote& proto : event.policy_notes()) {
    events->policy_notes.emplace_back(proto.session_id(),
                                      proto.note().substr(0, kMaxNoteBytes));
  }
}

v1::SamplingParams ToProto(const SamplingParams& params) {
  v1::SamplingParams proto;
  proto.set_temperature(params.temperature);
  proto.set_top_k(params.top_k);
  proto.set_top_p(params.top_p);
  proto.set_min_p(params.min_p);
  proto.set_repetition_penalty(params.repetition_penalty);
  proto.set_frequency_penalty(params.frequency_penalty);
  proto.set_presence_penalty(params.presence_penalty);
  proto.set_seed(params.seed);
  for (const auto& [id, bias] : params.logit_bias) {
    (*proto.mutable_logit_bias())[static_cast<uint32_t>(id)] = bias;
  }
  return proto;
}

v1::TargetPlan ToProto(const speculation::TargetPlan& plan) {
  v1::TargetPlan proto;
  proto.set_gate_after_mismatch(plan.gate_after_mismatch);
  proto.set_gate_in_flow(plan.gate_in_flow);
  proto.set_window(plan.window);
  proto.set_gate_timeout_ns(plan.gate_timeout_ns);
  proto.set_holds_last_row(plan.holds_last_row);
  return proto;
}

v1::DraftPlan ToProto(const speculation::DraftPlan& plan) {
  v1::DraftPlan proto;
  proto.set_lead_after_mismatch(plan.lead_after_mismatch);
  proto.set_lead_in_flow(plan.lead_in_flow);
  proto.set_waits_at_stop(plan.waits_at_stop);
  return proto;
}

v1::Verification ToProto(speculation::Verification verification) {
  return verification == speculation::Verification::kRatio
             ? v1::VERIFICATION_RATIO
             : v1::VERIFICATION_EXACT;
}

// What both kinds of worker say.
template <typename Event>
WorkerEvents Convert(const Event& event) {
  WorkerEvents events;
  Append(event, &events);
  for (const v1::SessionError& error : event.errors()) {
    events.failures.push_back({error.session_id(), ToInt(error.code()),
                               error.message(), error.epoch()});
  }
  for (const v1::SessionOpened& opened : event.opened()) {
    events.opened.emplace_back(opened.session_id(),
                               ToInt(opened.cached_tokens()));
    if (!opened.policy_note().empty()) {
      events.policy_notes.emplace_back(
          opened.session_id(), opened.policy_note().substr(0, kMaxNoteBytes));
    }
  }
  for (const v1::SessionCached& cached : event.cached()) {
    events.cached.emplace_back(cached.session_id(), ToInt(cached.tokens()));
  }
  for (const v1::SessionClosed& closed : event.closed()) {
    events.closed.push_back(closed.session_id());
  }
  for (const v1::Span& span : event.spans()) {
    events.spans.push_back(FromProto(span));
  }
  return events;
}

}  // namespace

WorkerEvents ToWorkerEvents(const v1::TargetEvent& event) {
  return Convert(event);
}
WorkerEvents ToWorkerEvents(const v1::DraftEvent& event) {
  return Convert(event);
}

GrpcWorkerClient::GrpcWorkerClient(WorkerRole role, Callbacks callbacks)
    : role_(role), callbacks_(std::move(callbacks)) {}

std::shared_ptr<GrpcWorkerClient> GrpcWorkerClient::Connect(
    WorkerRole role, const std::string& address,
    const rpc::ChannelSecurity& security, Callbacks callbacks) {
  std::shared_ptr<GrpcWorkerClient> client(
      new GrpcWorkerClient(role, std::move(callbacks)));
  // The stream's callbacks keep the client alive; the stream lets go of them
  // after on_done.
  const auto on_done = [client](const absl::Status& status) {
    client->callbacks_.on_lost(status);
  };
  const std::shared_ptr<grpc::Channel> channel =
      rpc::CreateChannel(address, security);
  if (role == WorkerRole::kDraft) {
    client->draft_stream_ = DraftStream::Create(
        {[client](const v1::DraftEvent& event) { client->OnMessage(event); },
         on_done});
    client->draft_stub_ = v1::DraftWorker::NewStub(channel);
    client->draft_stub_->async()->Session(client->draft_stream_->context(),
                                          client->draft_stream_.get());
    client->draft_stream_->Start();
  } else {
    client->target_stream_ = TargetStream::Create(
        {[client](const v1::TargetEvent& event) { client->OnMessage(event); },
         on_done});
    client->target_stub_ = v1::TargetWorker::NewStub(channel);
    client->target_stub_->async()->Session(client->target_stream_->context(),
                                           client->target_stream_.get());
    client->target_stream_->Start();
  }
  client->Ping();
  return client;
}

template <typename Event>
void GrpcWorkerClient::OnMessage(const Event& event) {
  if (event.has_pong()) OnPong(event.pong());
  callbacks_.on_events(ToWorkerEvents(event));
}

void GrpcWorkerClient::OnPong(const v1::Pong& pong) {
  const int64_t now_ns = MonotonicNs();
  const int64_t sent_ns = ToNs(pong.coordinator_ns());
  if (sent_ns > now_ns) return;  // no answer to a ping of ours
  const int64_t round_trip_ns = std::max<int64_t>(1, now_ns - sent_ns);
  const bool first = best_round_trip_ns_ == 0;
  if (first || round_trip_ns <= best_round_trip_ns_) {
    best_round_trip_ns_ = round_trip_ns;
    clock_offset_ns_ = ToNs(pong.worker_ns()) - (sent_ns + round_trip_ns / 2);
  }
  // The first one pays for the connection.
  const int64_t smoothed = round_trip_ns_;
  if (!first) {
    round_trip_ns_ = smoothed == 0 ? round_trip_ns
                                   : smoothed + (round_trip_ns - smoothed) / 8;
  }
  if (first) callbacks_.on_ready();
}

void GrpcWorkerClient::Ping() {
  {
    absl::MutexLock lock(&mu_);
    v1::Ping* ping = role_ == WorkerRole::kDraft
                         ? draft_pending_.mutable_ping()
                         : target_pending_.mutable_ping();
    ping->set_coordinator_ns(MonotonicNs());
    pending_ = true;
  }
  Flush();
}

void GrpcWorkerClient::Cancel() {
  if (draft_stream_ != nullptr) draft_stream_->Cancel();
  if (target_stream_ != nullptr) target_stream_->Cancel();
}

void GrpcWorkerClient::OpenTarget(const TargetOpening& opening) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  const RequestSpec& request = *opening.request;
  v1::OpenTarget* open = target_pending_.add_open();
  open->set_session_id(opening.session_id);
  for (int32_t id : *opening.token_ids) open->add_token_ids(id);
  open->set_prompt_length(request.prompt_ids.size());
  open->set_max_tokens(request.max_tokens);
  *open->mutable_sampling() = ToProto(request.sampling);
  for (int32_t id : request.stop_token_ids) open->add_stop_token_ids(id);
  open->set_ignore_eos(request.ignore_eos);
  *open->mutable_plan() = ToProto(opening.plan);
  open->set_epoch(opening.epoch);
  open->set_has_draft(opening.has_draft);
  open->set_min_tokens(request.min_tokens);
  open->set_request_id(request.request_id);
  if (request.logprobs.has_value()) open->set_logprobs(*request.logprobs);
  open->set_verification(ToProto(request.verification));
  open->set_hidden_channel(opening.hidden_channel);
}

void GrpcWorkerClient::OpenDraft(const DraftOpening& opening) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  const RequestSpec& request = *opening.request;
  v1::OpenDraft* open = draft_pending_.add_open();
  open->set_session_id(opening.session_id);
  open->set_epoch(opening.epoch);
  for (int32_t id : *opening.token_ids) open->add_token_ids(id);
  open->set_prompt_length(request.prompt_ids.size());
  open->set_max_length(request.prompt_ids.size() + request.max_tokens - 1);
  *open->mutable_sampling() = ToProto(request.sampling);
  for (int32_t id : opening.end_ids) open->add_end_token_ids(id);
  open->set_vocab_limit(opening.vocab_limit);
  open->set_min_tokens(request.min_tokens);
  open->set_request_id(request.request_id);
  *open->mutable_plan() = ToProto(opening.plan);
  if (request.policy.has_own_rule()) open->set_policy(request.policy.text());
  open->mutable_oracle_token_ids()->Assign(request.oracle_ids.begin(),
                                           request.oracle_ids.end());
  open->set_target_fingerprint(request.fingerprint);
  open->set_verification(ToProto(request.verification));
  open->set_hidden_address(opening.hidden_address);
  open->set_hidden_channel(opening.hidden_channel);
}

void GrpcWorkerClient::RelayTail(uint64_t session_id,
                                 const speculation::Tail& tail) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  v1::Tail* proto = target_pending_.add_tails();
  proto->set_session_id(session_id);
  proto->set_epoch(tail.epoch);
  proto->set_base_length(tail.base_length);
  proto->set_first_position(tail.first_position);
  for (int32_t id : tail.token_ids) proto->add_token_ids(id);
  proto->set_stop(ToProto(tail.stop));
  for (const speculation::DraftDistribution& from : tail.distributions) {
    v1::DraftDistribution* to = proto->add_distributions();
    to->mutable_token_ids()->Add(from.token_ids.begin(), from.token_ids.end());
    to->mutable_weights()->Add(from.weights.begin(), from.weights.end());
  }
}

void GrpcWorkerClient::UpdateTarget(uint64_t session_id,
                                    const speculation::TargetPlan& plan) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  v1::UpdateTargetPlan* update = target_pending_.add_plan();
  update->set_session_id(session_id);
  *update->mutable_plan() = ToProto(plan);
}

void GrpcWorkerClient::AttachDraft(uint64_t session_id, uint32_t epoch,
                                   int opened_length) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  v1::AttachDraft* attach = target_pending_.add_attach_draft();
  attach->set_session_id(session_id);
  attach->set_epoch(epoch);
  attach->set_opened_length(opened_length);
}

void GrpcWorkerClient::LoseDraft(uint64_t session_id) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  target_pending_.add_draft_lost()->set_session_id(session_id);
}

void GrpcWorkerClient::Acknowledge(uint64_t session_id, int committed_length) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  v1::Acknowledge* acknowledge = target_pending_.add_acknowledge();
  acknowledge->set_session_id(session_id);
  acknowledge->set_committed_length(committed_length);
}

void GrpcWorkerClient::RelayCommit(uint64_t session_id,
                                   const speculation::Commit& commit) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  v1::CommitTokens* proto = draft_pending_.add_commit();
  proto->set_session_id(session_id);
  proto->set_first_position(commit.first_position);
  for (int32_t id : commit.token_ids) proto->add_token_ids(id);
}

void GrpcWorkerClient::UpdateDraft(uint64_t session_id,
                                   const speculation::DraftPlan& plan) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  v1::UpdateDraftPlan* update = draft_pending_.add_plan();
  update->set_session_id(session_id);
  *update->mutable_plan() = ToProto(plan);
}

void GrpcWorkerClient::Close(uint64_t session_id) {
  absl::MutexLock lock(&mu_);
  pending_ = true;
  (role_ == WorkerRole::kDraft ? draft_pending_.add_close()
                               : target_pending_.add_close())
      ->set_session_id(session_id);
}

void GrpcWorkerClient::Keep(const std::vector<uint64_t>& session_ids) {
  // The worker applies it first: closes that wait here are of an earlier
  // message, or they would count as lost; openings that follow are not touched.
  Flush();
  absl::MutexLock lock(&mu_);
  pending_ = true;
  v1::KeptSessions* kept = role_ == WorkerRole::kDraft
                               ? draft_pending_.mutable_kept()
                               : target_pending_.mutable_kept();
  kept->mutable_session_ids()->Assign(session_ids.begin(), session_ids.end());
}

void GrpcWorkerClient::Flush() {
  absl::MutexLock lock(&mu_);
  if (!pending_) return;
  pending_ = false;
  // Send only queues; under the lock, so that messages keep their order.
  if (role_ == WorkerRole::kDraft) {
    draft_stream_->Send(std::exchange(draft_pending_, {}));
  } else {
    target_stream_->Send(std::exchange(target_pending_, {}));
  }
}

}  // namespace nacre::coordinator
