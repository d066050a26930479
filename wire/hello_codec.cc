#include "wire/hello_codec.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "speculation/estimators.h"
#include "wire/session_events.h"

namespace nacre::wire {
namespace {

constexpr uint32_t kMaxVocabulary = 1u << 24;
constexpr uint32_t kMaxContext = 1u << 30;
constexpr size_t kMaxNameBytes = 1024;
constexpr int kMaxPolicyFiles = 64;
constexpr int kMaxEosTokenIds = 1024;
constexpr int kMaxStepTimes = 1024;

absl::Status CheckName(const char* field, const std::string& value,
                       bool may_be_empty) {
  if (value.size() > kMaxNameBytes || (value.empty() && !may_be_empty)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Hello.", field, " has ", value.size(), " bytes, must have ",
        may_be_empty ? 0 : 1, " to ", kMaxNameBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckNumber(const char* field, uint32_t value, uint32_t limit) {
  if (value < 1 || value > limit) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Hello.", field, " is ", value, ", must be in [1, ", limit, "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(const char* field, int count, int limit) {
  if (count > limit) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Hello.", field, " has ", count, " entries, at most ", limit));
  }
  return absl::OkStatus();
}

absl::Status Check(const v1::Hello& hello) {
  if (hello.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "PROTOCOL_VERSION: the worker speaks version ",
        hello.protocol_version(), ", the coordinator ", kProtocolVersion));
  }
  if (hello.role() != v1::WORKER_ROLE_DRAFT &&
      hello.role() != v1::WORKER_ROLE_TARGET) {
    return absl::InvalidArgumentError(
        absl::StrCat("Hello.role is ", static_cast<int>(hello.role())));
  }
  NACRE_RETURN_IF_ERROR(CheckName("address", hello.address(), false));
  NACRE_RETURN_IF_ERROR(CheckName("incarnation", hello.incarnation(), false));
  NACRE_RETURN_IF_ERROR(CheckName("fingerprint", hello.fingerprint(), false));
  NACRE_RETURN_IF_ERROR(CheckName("numerics_id", hello.numerics_id(), false));
  NACRE_RETURN_IF_ERROR(CheckName("model_name", hello.model_name(), true));
  NACRE_RETURN_IF_ERROR(CheckNumber("model_vocab_size",
                                    hello.model_vocab_size(), kMaxVocabulary));
  NACRE_RETURN_IF_ERROR(CheckNumber(
      "tokenizer_vocab_size", hello.tokenizer_vocab_size(), kMaxVocabulary));
  if (hello.has_vocabulary_share() &&
      !(hello.vocabulary_share() >= 0 && hello.vocabulary_share() <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("Hello.vocabulary_share is ",
                                                   hello.vocabulary_share(),
                                                   ", not 0 to 1"));
  }
  NACRE_RETURN_IF_ERROR(
      CheckNumber("context_length", hello.context_length(), kMaxContext));
  NACRE_RETURN_IF_ERROR(
      CheckCount("eos_token_ids", hello.eos_token_ids_size(), kMaxEosTokenIds));
  NACRE_RETURN_IF_ERROR(
      CheckCount("step_times", hello.step_times_size(), kMaxStepTimes));
  NACRE_RETURN_IF_ERROR(
      CheckCount("policy_files", hello.policy_files_size(), kMaxPolicyFiles));
  for (const v1::PolicyFile& file : hello.policy_files()) {
    NACRE_RETURN_IF_ERROR(
        CheckName("policy_files.policy", file.policy(), false));
    NACRE_RETURN_IF_ERROR(CheckName("policy_files.target_fingerprint",
                                    file.target_fingerprint(), false));
  }
  return absl::OkStatus();
}

}  // namespace

v1::WorkerRole Encode(WorkerRole role) {
  return role == WorkerRole::kDraft ? v1::WORKER_ROLE_DRAFT
                                    : v1::WORKER_ROLE_TARGET;
}

v1::Hello Encode(const Hello& hello) {
  v1::Hello proto;
  proto.set_protocol_version(kProtocolVersion);
  proto.set_role(Encode(hello.role));
  proto.set_address(hello.address);
  proto.set_incarnation(hello.incarnation);
  proto.set_fingerprint(hello.fingerprint);
  proto.set_numerics_id(hello.numerics_id);
  proto.set_model_name(hello.model_name);
  proto.set_model_vocab_size(static_cast<uint32_t>(hello.model_vocab_size));
  proto.set_tokenizer_vocab_size(
      static_cast<uint32_t>(hello.tokenizer_vocab_size));
  if (hello.vocabulary_share != 1) {
    proto.set_vocabulary_share(hello.vocabulary_share);
  }
  proto.set_context_length(static_cast<uint32_t>(hello.context_length));
  proto.mutable_eos_token_ids()->Add(hello.eos_token_ids.begin(),
                                     hello.eos_token_ids.end());
  proto.set_kv_capacity_tokens(static_cast<uint64_t>(hello.kv_capacity_tokens));
  for (const auto& [rows, duration_ns] : hello.step_times_ns) {
    v1::StepTime* time = proto.add_step_times();
    time->set_rows(static_cast<uint32_t>(rows));
    time->set_duration_ns(static_cast<uint64_t>(duration_ns));
  }
  for (const auto& [policy, target_fingerprint] : hello.policy_files) {
    v1::PolicyFile* file = proto.add_policy_files();
    file->set_policy(policy);
    file->set_target_fingerprint(target_fingerprint);
  }
  proto.set_abandons_steps(hello.abandons_steps);
  proto.set_drafts_chains(hello.drafts_chains);
  proto.set_grants_kv(hello.grants_kv);
  return proto;
}

absl::StatusOr<Hello> Decode(const v1::Hello& proto) {
  NACRE_RETURN_IF_ERROR(Check(proto));
  Hello hello;
  hello.role = proto.role() == v1::WORKER_ROLE_DRAFT ? WorkerRole::kDraft
                                                     : WorkerRole::kTarget;
  hello.address = proto.address();
  hello.incarnation = proto.incarnation();
  hello.fingerprint = proto.fingerprint();
  hello.numerics_id = proto.numerics_id();
  hello.model_name = proto.model_name();
  hello.model_vocab_size = static_cast<int>(proto.model_vocab_size());
  hello.tokenizer_vocab_size = static_cast<int>(proto.tokenizer_vocab_size());
  if (proto.has_vocabulary_share()) {
    hello.vocabulary_share = proto.vocabulary_share();
  }
  hello.context_length = static_cast<int>(proto.context_length());
  for (const uint32_t id : proto.eos_token_ids()) {
    if (id < proto.model_vocab_size()) {
      hello.eos_token_ids.push_back(static_cast<int32_t>(id));
    }
  }
  hello.kv_capacity_tokens = static_cast<int64_t>(
      std::min<uint64_t>(proto.kv_capacity_tokens(), uint64_t{1} << 62));
  for (const v1::StepTime& time : proto.step_times()) {
    if (time.rows() <= speculation::StepTimeCurve::kMaxRows) {
      hello.step_times_ns.emplace_back(
          static_cast<int>(time.rows()),
          static_cast<int64_t>(
              std::min<uint64_t>(time.duration_ns(), kMaxDurationNs)));
    }
  }
  for (const v1::PolicyFile& file : proto.policy_files()) {
    hello.policy_files.emplace_back(file.policy(), file.target_fingerprint());
  }
  hello.abandons_steps = proto.abandons_steps();
  hello.drafts_chains = proto.drafts_chains();
  hello.grants_kv = proto.grants_kv();
  return hello;
}

}  // namespace nacre::wire
