#include "coordinator/grpc_worker_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"
#include "coordinator/clock.h"
#include "coordinator/worker_events_convert.h"

namespace nacre::coordinator {
namespace {

using speculation::StopMark;

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

void AddTokens(const RequestSpec& request,
               const std::vector<int32_t>& generated,
               google::protobuf::RepeatedField<uint32_t>* ids) {
  ids->Reserve(static_cast<int>(request.prompt_ids.size() + generated.size()));
  ids->Add(request.prompt_ids.begin(), request.prompt_ids.end());
  ids->Add(generated.begin(), generated.end());
}

void Build(const TargetOpening& opening, v1::OpenTarget* open) {
  const RequestSpec& request = *opening.request;
  open->set_session_id(opening.session_id);
  AddTokens(request, opening.generated, open->mutable_token_ids());
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

void Build(const DraftOpening& opening, v1::OpenDraft* open) {
  const RequestSpec& request = *opening.request;
  open->set_session_id(opening.session_id);
  open->set_epoch(opening.epoch);
  AddTokens(request, opening.generated, open->mutable_token_ids());
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

}  // namespace

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
  if (first) callbacks_.on_ready(pong.attachment());
}

void GrpcWorkerClient::Ping() {
  {
    absl::MutexLock lock(&mu_);
    // A message of its own: the dispatcher may be at the next one.
    Message& message = outgoing_.emplace_back();
    v1::Ping* ping = role_ == WorkerRole::kDraft
                         ? message.draft.mutable_ping()
                         : message.target.mutable_ping();
    ping->set_coordinator_ns(MonotonicNs());
  }
  Flush();
}

void GrpcWorkerClient::Cancel() {
  if (draft_stream_ != nullptr) draft_stream_->Cancel();
  if (target_stream_ != nullptr) target_stream_->Cancel();
}

void GrpcWorkerClient::OpenTarget(const TargetOpening& opening) {
  absl::MutexLock lock(&mu_);
  Next().target_openings.push_back(opening);
}

void GrpcWorkerClient::OpenDraft(const DraftOpening& opening) {
  absl::MutexLock lock(&mu_);
  Next().draft_openings.push_back(opening);
}

void GrpcWorkerClient::RelayTail(uint64_t session_id,
                                 const speculation::Tail& tail) {
  absl::MutexLock lock(&mu_);
  v1::Tail* proto = Next().target.add_tails();
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
  v1::UpdateTargetPlan* update = Next().target.add_plan();
  update->set_session_id(session_id);
  *update->mutable_plan() = ToProto(plan);
}

void GrpcWorkerClient::AttachDraft(uint64_t session_id, uint32_t epoch,
                                   int opened_length) {
  absl::MutexLock lock(&mu_);
  v1::AttachDraft* attach = Next().target.add_attach_draft();
  attach->set_session_id(session_id);
  attach->set_epoch(epoch);
  attach->set_opened_length(opened_length);
}

void GrpcWorkerClient::LoseDraft(uint64_t session_id) {
  absl::MutexLock lock(&mu_);
  Next().target.add_draft_lost()->set_session_id(session_id);
}

void GrpcWorkerClient::Acknowledge(uint64_t session_id, int committed_length) {
  absl::MutexLock lock(&mu_);
  v1::Acknowledge* acknowledge = Next().target.add_acknowledge();
  acknowledge->set_session_id(session_id);
  acknowledge->set_committed_length(committed_length);
}

void GrpcWorkerClient::RelayCommit(uint64_t session_id,
                                   const speculation::Commit& commit) {
  absl::MutexLock lock(&mu_);
  v1::CommitTokens* proto = Next().draft.add_commit();
  proto->set_session_id(session_id);
  proto->set_first_position(commit.first_position);
  for (int32_t id : commit.token_ids) proto->add_token_ids(id);
}

void GrpcWorkerClient::UpdateDraft(uint64_t session_id,
                                   const speculation::DraftPlan& plan) {
  absl::MutexLock lock(&mu_);
  v1::UpdateDraftPlan* update = Next().draft.add_plan();
  update->set_session_id(session_id);
  *update->mutable_plan() = ToProto(plan);
}

void GrpcWorkerClient::Close(uint64_t session_id) {
  absl::MutexLock lock(&mu_);
  (role_ == WorkerRole::kDraft ? Next().draft.add_close()
                               : Next().target.add_close())
      ->set_session_id(session_id);
}

void GrpcWorkerClient::Keep(const std::vector<uint64_t>& session_ids) {
  // The worker applies it first: closes that wait here are of an earlier
  // message, or they would count as lost; openings that follow are not touched.
  Cut();
  absl::MutexLock lock(&mu_);
  v1::KeptSessions* kept = role_ == WorkerRole::kDraft
                               ? Next().draft.mutable_kept()
                               : Next().target.mutable_kept();
  kept->mutable_session_ids()->Assign(session_ids.begin(), session_ids.end());
}

void GrpcWorkerClient::Cut() {
  absl::MutexLock lock(&mu_);
  if (!std::exchange(pending_, false)) return;
  outgoing_.push_back(std::exchange(next_, {}));
}

void GrpcWorkerClient::Flush() {
  absl::MutexLock lock(&mu_);
  // One thread sends at a time, so messages keep their order; without the lock,
  // since Send builds them and usually writes to the connection itself.
  if (std::exchange(sending_, true)) return;
  while (!outgoing_.empty()) {
    Message message = std::move(outgoing_.front());
    outgoing_.pop_front();
    mu_.Unlock();
    Send(std::move(message));
    mu_.Lock();
  }
  sending_ = false;
}

void GrpcWorkerClient::Send(Message message) {
  if (role_ == WorkerRole::kDraft) {
    for (const DraftOpening& opening : message.draft_openings) {
      Build(opening, message.draft.add_open());
    }
    draft_stream_->Send(std::move(message.draft));
  } else {
    for (const TargetOpening& opening : message.target_openings) {
      Build(opening, message.target.add_open());
    }
    target_stream_->Send(std::move(message.target));
  }
}

}  // namespace nacre::coordinator
