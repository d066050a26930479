#include "draft_worker/draft_service.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/convert.h"

namespace nacre::draft_worker {
namespace {

OpenDraft ToOpen(const v1::OpenDraft& proto) {
  OpenDraft open;
  open.session_id = proto.session_id();
  open.request_id = proto.request_id();
  open.epoch = proto.epoch();
  open.prompt_length = worker::ToInt(proto.prompt_length());
  open.max_length = worker::ToLimit(proto.max_length());
  open.min_tokens = worker::ToLimit(proto.min_tokens());
  open.sampling = worker::ToSamplingParams(proto.sampling());
  if (!worker::ToTokenIds(proto.token_ids(), &open.token_ids) ||
      !worker::ToTokenIds(proto.end_token_ids(), &open.end_token_ids) ||
      !worker::ToTokenIds(proto.oracle_token_ids(), &open.oracle_token_ids)) {
    open.conversion = absl::InvalidArgumentError(
        absl::StrCat("over ", worker::kMaxTokenIds, " token ids"));
  }
  open.vocab_limit = worker::ToLimit(proto.vocab_limit());
  open.policy = proto.policy();
  open.target_fingerprint = proto.target_fingerprint();
  if (!worker::ToVerification(proto.verification(), &open.verification)) {
    open.conversion = worker::UnknownVerification(proto.verification());
  }
  open.hidden_address = proto.hidden_address();
  open.hidden_channel = proto.hidden_channel();
  open.plan = worker::ToDraftPlan(proto.plan());
  return open;
}

}  // namespace

DraftCommands ToCommands(worker::StreamId stream,
                         const v1::DraftControl& control) {
  DraftCommands commands;
  commands.stream = stream;
  if (control.has_kept()) {
    commands.kept.emplace(control.kept().session_ids().begin(),
                          control.kept().session_ids().end());
  }
  for (const auto& open : control.open()) commands.open.push_back(ToOpen(open));
  for (const auto& plan : control.plan()) {
    commands.plans.push_back(
        {plan.session_id(), worker::ToDraftPlan(plan.plan())});
  }
  for (const auto& proto : control.commit()) {
    speculation::Commit commit;
    commit.first_position = worker::ToInt(proto.first_position());
    if (worker::ToTokenIds(proto.token_ids(), &commit.token_ids)) {
      commands.commits.push_back({proto.session_id(), std::move(commit)});
    } else {
      ++commands.num_malformed;
    }
  }
  for (const auto& close : control.close()) {
    commands.close.push_back(close.session_id());
  }
  return commands;
}

v1::DraftEvent ToProto(const DraftEvents& events) {
  v1::DraftEvent proto;
  worker::FillSessionEvents(events.common, &proto);
  for (const auto& [id, tail] : events.tails) {
    worker::FillTail(id, tail, proto.add_tails());
  }
  for (const worker::PolicyNote& note : events.policy_notes) {
    v1::PolicyNote* out = proto.add_policy_notes();
    out->set_session_id(note.session_id);
    out->set_note(note.note);
  }
  return proto;
}

DraftService::DraftService()
    : streams_(
          {[this](worker::StreamId stream, const v1::DraftControl& control) {
             engine_->Push(ToCommands(stream, control));
           },
           [this](worker::StreamId stream) {
             DraftCommands commands;
             commands.stream = stream;
             commands.stream_ended = true;
             engine_->Push(std::move(commands));
           }}),
      sender_([this](worker::StreamId stream, const DraftEvents& events) {
        streams_.Send(stream, ToProto(events));
      }) {}

void DraftService::Send(worker::StreamId stream, DraftEvents events) {
  sender_.Send(stream, std::move(events));
}

void DraftService::Deliver(worker::Delivery delivery) {
  sender_.Deliver(delivery);
}

grpc::ServerBidiReactor<v1::DraftControl, v1::DraftEvent>*
DraftService::Session(grpc::CallbackServerContext*) {
  return streams_.Open();
}

void DraftService::FinishStreams(const grpc::Status& status) {
  sender_.Drain();
  streams_.FinishAll(status);
}

}  // namespace nacre::draft_worker
