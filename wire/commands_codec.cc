// What the coordinator tells workers.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "common/status_macros.h"
#include "wire/codec_parts.h"
#include "wire/session_codec.h"

namespace nacre::wire {
namespace {

using speculation::Verification;

struct Verifications {
  Verification ours;
  v1::Verification proto;
};
constexpr Verifications kVerifications[] = {
    {Verification::kExact, v1::VERIFICATION_EXACT},
    {Verification::kExact, v1::VERIFICATION_UNSPECIFIED},
    {Verification::kRatio, v1::VERIFICATION_RATIO},
};

// One of ids in an open. Its name is for the refusal.
struct IdList {
  const char* name;
  const ProtoIds& proto;
  std::vector<int32_t>* ids;
};

// The lists that it leaves out would be too long to take.
absl::Status DecodeLists(std::initializer_list<IdList> lists) {
  for (const IdList& list : lists) {
    NACRE_RETURN_IF_ERROR(
        CheckCount(list.name, list.proto.size(), kMaxTokenIds));
  }
  for (const IdList& list : lists) *list.ids = ToIds(list.proto);
  return absl::OkStatus();
}

// What both workers are told of a session.
template <typename Open, typename Proto>
void EncodeSession(const Open& open, Proto* proto) {
  proto->set_session_id(open.session_id);
  proto->set_request_id(open.request_id);
  proto->set_epoch(open.epoch);
  FillIds(open.token_ids, proto->mutable_token_ids());
  proto->set_prompt_length(static_cast<uint32_t>(open.prompt_length));
  proto->set_min_tokens(static_cast<uint32_t>(open.min_tokens));
  *proto->mutable_sampling() = EncodeSampling(open.sampling);
  *proto->mutable_plan() = EncodePlan(open.plan);
  proto->set_num_slots(static_cast<uint32_t>(open.num_slots));
  proto->set_verification(EncodeEnum(kVerifications, open.verification));
  proto->set_hidden_channel(open.hidden_channel);
  proto->set_kv_channel(open.kv_channel);
}

// `lists`: its own, and token_ids.
template <typename Proto, typename Open>
void DecodeSession(const Proto& proto, std::initializer_list<IdList> lists,
                   Open* open) {
  open->refusal = DecodeLists(lists);
  if (open->refusal.ok()) {
    open->refusal = DecodeEnum("verification", kVerifications,
                               proto.verification(), &open->verification);
  }
  open->session_id = proto.session_id();
  open->request_id = proto.request_id();
  open->epoch = proto.epoch();
  open->prompt_length = ToInt(proto.prompt_length());
  open->min_tokens = ToLimit(proto.min_tokens());
  open->sampling = DecodeSampling(proto.sampling());
  open->plan = DecodePlan(proto.plan());
  open->num_slots = ToLimit(proto.num_slots());
  open->hidden_channel = proto.hidden_channel();
  open->kv_channel = proto.kv_channel();
}

void EncodeOpen(const OpenTarget& open, v1::OpenTarget* proto) {
  EncodeSession(open, proto);
  proto->set_max_tokens(static_cast<uint32_t>(open.max_tokens));
  FillIds(open.stop_token_ids, proto->mutable_stop_token_ids());
  proto->set_ignore_eos(open.ignore_eos);
  proto->set_has_draft(open.has_draft);
  if (open.logprobs.has_value()) {
    proto->set_logprobs(static_cast<uint32_t>(*open.logprobs));
  }
  if (open.suffixes.has_value()) {
    v1::SuffixDrafting* suffixes = proto->mutable_suffixes();
    suffixes->set_owner_high((*open.suffixes)[0]);
    suffixes->set_owner_low((*open.suffixes)[1]);
  }
  if (open.prompt_logprobs.has_value()) {
    proto->set_prompt_logprobs(static_cast<uint32_t>(*open.prompt_logprobs));
  }
  proto->set_first_prompt_logprob(
      static_cast<uint32_t>(open.first_prompt_logprob));
}

OpenTarget DecodeOpen(const v1::OpenTarget& proto) {
  OpenTarget open;
  DecodeSession(proto,
                {{"OpenTarget.token_ids", proto.token_ids(), &open.token_ids},
                 {"OpenTarget.stop_token_ids", proto.stop_token_ids(),
                  &open.stop_token_ids}},
                &open);
  open.max_tokens = ToLimit(proto.max_tokens());
  open.ignore_eos = proto.ignore_eos();
  if (proto.has_logprobs()) open.logprobs = ToLimit(proto.logprobs());
  if (proto.has_prompt_logprobs()) {
    open.prompt_logprobs = ToLimit(proto.prompt_logprobs());
  }
  open.first_prompt_logprob = ToInt(proto.first_prompt_logprob());
  open.has_draft = proto.has_draft();
  if (proto.has_suffixes()) {
    open.suffixes = {proto.suffixes().owner_high(),
                     proto.suffixes().owner_low()};
  }
  return open;
}

void EncodeOpen(const OpenDraft& open, v1::OpenDraft* proto) {
  EncodeSession(open, proto);
  proto->set_max_length(static_cast<uint32_t>(open.max_length));
  FillIds(open.end_token_ids, proto->mutable_end_token_ids());
  proto->set_vocab_limit(static_cast<uint32_t>(open.vocab_limit));
  proto->set_policy(open.policy);
  FillIds(open.oracle_token_ids, proto->mutable_oracle_token_ids());
  proto->set_target_fingerprint(open.target_fingerprint);
  proto->set_hidden_address(open.hidden_address);
  proto->set_tells_candidates(open.tells_candidates);
}

OpenDraft DecodeOpen(const v1::OpenDraft& proto) {
  OpenDraft open;
  DecodeSession(
      proto,
      {{"OpenDraft.token_ids", proto.token_ids(), &open.token_ids},
       {"OpenDraft.end_token_ids", proto.end_token_ids(), &open.end_token_ids},
       {"OpenDraft.oracle_token_ids", proto.oracle_token_ids(),
        &open.oracle_token_ids}},
      &open);
  open.max_length = ToLimit(proto.max_length());
  open.vocab_limit = ToLimit(proto.vocab_limit());
  open.policy = proto.policy();
  open.target_fingerprint = proto.target_fingerprint();
  open.hidden_address = proto.hidden_address();
  open.tells_candidates = proto.tells_candidates();
  return open;
}

absl::Status DecodeCommit(const v1::CommitTokens& proto,
                          DraftCommands::SessionCommit* to) {
  NACRE_RETURN_IF_ERROR(CheckCount("CommitTokens.token_ids",
                                   proto.token_ids_size(), kMaxStepTokens));
  to->session_id = proto.session_id();
  to->commit.first_position = ToInt(proto.first_position());
  to->commit.token_ids = ToIds(proto.token_ids());
  return absl::OkStatus();
}

KvReport DecodeReport(const v1::KvReport& proto) {
  const auto tokens = [](uint64_t value) {
    return static_cast<int64_t>(std::min<uint64_t>(value, uint64_t{1} << 62));
  };
  KvReport report;
  report.serial = proto.serial();
  report.reserved = tokens(proto.reserved_tokens());
  report.need = tokens(proto.need_tokens());
  report.need_session = proto.need_session();
  report.wanted = tokens(proto.wanted_tokens());
  report.sessions = ToRows(proto.sessions());
  return report;
}

void EncodeReport(const KvReport& report, v1::KvReport* proto) {
  proto->set_serial(report.serial);
  proto->set_reserved_tokens(static_cast<uint64_t>(report.reserved));
  proto->set_need_tokens(static_cast<uint64_t>(report.need));
  proto->set_need_session(report.need_session);
  proto->set_wanted_tokens(static_cast<uint64_t>(report.wanted));
  proto->set_sessions(static_cast<uint32_t>(report.sessions));
}

// kept, plan, close, ping and kv_report.
template <typename Commands, typename Control>
void EncodeCommon(const Commands& commands, Control* proto) {
  if (commands.kept.has_value()) {
    proto->mutable_kept()->mutable_session_ids()->Assign(commands.kept->begin(),
                                                         commands.kept->end());
  }
  for (const auto& open : commands.open) EncodeOpen(open, proto->add_open());
  for (const auto& [session_id, plan] : commands.plans) {
    auto* update = proto->add_plan();
    update->set_session_id(session_id);
    *update->mutable_plan() = EncodePlan(plan);
  }
  for (const uint64_t id : commands.close) {
    proto->add_close()->set_session_id(id);
  }
  if (commands.ping_ns.has_value()) {
    proto->mutable_ping()->set_coordinator_ns(*commands.ping_ns);
    proto->mutable_ping()->set_coordinator(commands.coordinator);
  }
  if (commands.kv_report.has_value()) {
    EncodeReport(*commands.kv_report, proto->mutable_kv_report());
  }
}

template <typename Control, typename Commands>
void DecodeCommon(const Control& proto, Commands* commands) {
  if (proto.has_kept()) {
    commands->kept.emplace(proto.kept().session_ids().begin(),
                           proto.kept().session_ids().end());
  }
  for (const auto& open : proto.open()) {
    commands->open.push_back(DecodeOpen(open));
  }
  for (const auto& update : proto.plan()) {
    commands->plans.push_back({update.session_id(), DecodePlan(update.plan())});
  }
  for (const auto& close : proto.close()) {
    commands->close.push_back(close.session_id());
  }
  if (proto.has_ping()) {
    commands->ping_ns = proto.ping().coordinator_ns();
    commands->coordinator = proto.ping().coordinator();
  }
  if (proto.has_kv_report()) {
    commands->kv_report = DecodeReport(proto.kv_report());
  }
}

}  // namespace

v1::TargetControl Encode(const TargetCommands& commands) {
  v1::TargetControl proto;
  EncodeCommon(commands, &proto);
  for (const auto& [session_id, committed_length] : commands.acknowledged) {
    v1::Acknowledge* acknowledge = proto.add_acknowledge();
    acknowledge->set_session_id(session_id);
    acknowledge->set_committed_length(static_cast<uint32_t>(committed_length));
  }
  for (const uint64_t id : commands.draft_lost) {
    proto.add_draft_lost()->set_session_id(id);
  }
  for (const TargetCommands::AttachDraft& from : commands.draft_attached) {
    v1::AttachDraft* attach = proto.add_attach_draft();
    attach->set_session_id(from.session_id);
    attach->set_epoch(from.epoch);
    attach->set_opened_length(static_cast<uint32_t>(from.opened_length));
  }
  for (const SessionTail& tail : commands.tails) {
    EncodeTail(tail, proto.add_tails());
  }
  return proto;
}

TargetCommands Decode(const v1::TargetControl& proto) {
  TargetCommands commands;
  DecodeCommon(proto, &commands);
  for (const v1::Acknowledge& acknowledge : proto.acknowledge()) {
    commands.acknowledged.push_back(
        {acknowledge.session_id(), ToInt(acknowledge.committed_length())});
  }
  for (const v1::DraftLost& lost : proto.draft_lost()) {
    commands.draft_lost.push_back(lost.session_id());
  }
  for (const v1::AttachDraft& attach : proto.attach_draft()) {
    commands.draft_attached.push_back(
        {attach.session_id(), attach.epoch(), ToInt(attach.opened_length())});
  }
  DecodeParts(proto.tails(), DecodeTail, &commands.tails, &commands.malformed);
  return commands;
}

v1::DraftControl Encode(const DraftCommands& commands) {
  v1::DraftControl proto;
  EncodeCommon(commands, &proto);
  for (const auto& [session_id, commit] : commands.commits) {
    v1::CommitTokens* to = proto.add_commit();
    to->set_session_id(session_id);
    to->set_first_position(static_cast<uint32_t>(commit.first_position));
    FillIds(commit.token_ids, to->mutable_token_ids());
  }
  return proto;
}

DraftCommands Decode(const v1::DraftControl& proto) {
  DraftCommands commands;
  DecodeCommon(proto, &commands);
  DecodeParts(proto.commit(), DecodeCommit, &commands.commits,
              &commands.malformed);
  return commands;
}

}  // namespace nacre::wire
