#include "target_worker/target_service.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/convert.h"

namespace nacre::target_worker {
namespace {

OpenTarget ToOpen(const v1::OpenTarget& proto) {
  OpenTarget open;
  open.session_id = proto.session_id();
  open.request_id = proto.request_id();
  open.prompt_length = worker::ToInt(proto.prompt_length());
  open.max_tokens = worker::ToLimit(proto.max_tokens());
  open.sampling = worker::ToSamplingParams(proto.sampling());
  if (!worker::ToTokenIds(proto.token_ids(), &open.token_ids) ||
      !worker::ToTokenIds(proto.stop_token_ids(), &open.stop_token_ids)) {
    open.conversion = absl::InvalidArgumentError(
        absl::StrCat("over ", worker::kMaxTokenIds, " token ids"));
  }
  open.ignore_eos = proto.ignore_eos();
  open.min_tokens = worker::ToLimit(proto.min_tokens());
  if (proto.has_logprobs()) {
    open.logprobs = worker::ToLimit(proto.logprobs());
  }
  open.plan = worker::ToTargetPlan(proto.plan());
  open.epoch = proto.epoch();
  open.has_draft = proto.has_draft();
  if (!worker::ToVerification(proto.verification(), &open.verification)) {
    open.conversion = worker::UnknownVerification(proto.verification());
  }
  open.hidden_channel = proto.hidden_channel();
  return open;
}

}  // namespace

TargetCommands ToCommands(worker::StreamId stream,
                          const v1::TargetControl& control) {
  TargetCommands commands;
  commands.stream = stream;
  if (control.has_kept()) {
    commands.kept.emplace(control.kept().session_ids().begin(),
                          control.kept().session_ids().end());
  }
  for (const auto& open : control.open()) commands.open.push_back(ToOpen(open));
  for (const auto& plan : control.plan()) {
    commands.plans.push_back(
        {plan.session_id(), worker::ToTargetPlan(plan.plan())});
  }
  for (const auto& ack : control.acknowledge()) {
    commands.acknowledged.push_back(
        {ack.session_id(), worker::ToInt(ack.committed_length())});
  }
  for (const auto& lost : control.draft_lost()) {
    commands.draft_lost.push_back(lost.session_id());
  }
  for (const auto& attach : control.attach_draft()) {
    commands.draft_attached.push_back({attach.session_id(), attach.epoch(),
                                       worker::ToInt(attach.opened_length())});
  }
  for (const auto& proto : control.tails()) {
    speculation::Tail tail;
    if (worker::ToTail(proto, &tail)) {
      commands.tails.push_back({proto.session_id(), std::move(tail)});
    } else {
      ++commands.num_malformed;
    }
  }
  for (const auto& close : control.close()) {
    commands.close.push_back(close.session_id());
  }
  return commands;
}

v1::TargetEvent ToProto(const TargetEvents& events) {
  v1::TargetEvent proto;
  worker::FillSessionEvents(events.common, &proto);
  for (const auto& [id, verdict, logprobs] : events.verdicts) {
    v1::Verdict* out = proto.add_verdicts();
    worker::FillVerdict(id, verdict, out);
    worker::FillLogprobs(logprobs, out);
  }
  return proto;
}

TargetService::TargetService()
    : streams_(
          {[this](worker::StreamId stream, const v1::TargetControl& control) {
             engine_->Push(ToCommands(stream, control));
           },
           [this](worker::StreamId stream) {
             TargetCommands commands;
             commands.stream = stream;
             commands.stream_ended = true;
             engine_->Push(std::move(commands));
           }}),
      sender_([this](worker::StreamId stream, const TargetEvents& events) {
        streams_.Send(stream, ToProto(events));
      }) {}

void TargetService::Send(worker::StreamId stream, TargetEvents events) {
  sender_.Send(stream, std::move(events));
}

void TargetService::Deliver(worker::Delivery delivery) {
  sender_.Deliver(delivery);
}

grpc::ServerBidiReactor<v1::TargetControl, v1::TargetEvent>*
TargetService::Session(grpc::CallbackServerContext*) {
  return streams_.Open();
}

void TargetService::FinishStreams(const grpc::Status& status) {
  sender_.Drain();
  streams_.FinishAll(status);
}

}  // namespace nacre::target_worker
