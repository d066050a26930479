#include "coordinator/api/attachment.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/fleet/model_mismatch.h"
#include "wire/hello_codec.h"

namespace nacre::coordinator {
namespace {

const char* RoleName(WorkerRole role) {
  return role == WorkerRole::kDraft ? "draft" : "target";
}

// What goes wrong with it and no answer would tell.
void WarnOf(const WorkerInfo& info, const tokenizer::Tokenizer& tokenizer,
            const std::vector<WorkerStatus>& workers) {
  std::vector<std::string> warnings;
  const bool is_draft = info.role == WorkerRole::kDraft;
  const std::optional<int32_t> end = tokenizer.eos_id();
  warnings.push_back(
      is_draft
          ? LackedIdsWarning(info, tokenizer.vocab_size())
          : EndTokenWarning(info, end, end ? tokenizer.IdToPiece(*end) : ""));
  for (const WorkerStatus& other : workers) {
    if (other.info.role == info.role) continue;
    warnings.push_back(is_draft ? ShortContextWarning(info, other.info)
                                : ShortContextWarning(other.info, info));
  }
  for (const std::string& warning : warnings) {
    if (!warning.empty()) spdlog::warn("{}", warning);
  }
}

}  // namespace

void RegistryService::Attachment::SetStream(std::shared_ptr<Stream> stream) {
  absl::MutexLock lock(&mu_);
  stream_ = std::move(stream);
}

void RegistryService::Attachment::OnMessage(const v1::WorkerEvent& event) {
  switch (event.event_case()) {
    case v1::WorkerEvent::kHello:
      OnHello(event.hello());
      return;
    case v1::WorkerEvent::kVocabularyProof:
      OnProof(event.vocabulary_proof());
      return;
    case v1::WorkerEvent::kHeartbeat:
      OnHeartbeat(event.heartbeat());
      return;
    default:
      Refuse(absl::InvalidArgumentError("an empty WorkerEvent"));
  }
}

void RegistryService::Attachment::OnHello(const v1::Hello& hello) {
  absl::StatusOr<WorkerInfo> info = wire::Decode(hello);
  if (!info.ok()) {
    Refuse(info.status());
    return;
  }
  std::shared_ptr<Stream> stream;
  v1::WorkerCommand command;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kHello || stream_ == nullptr) return;
    state_ = State::kProof;
    hello_ = hello;
    info_ = *std::move(info);
    const std::string& served = service_->options_.served_model_name;
    if (info_.role == WorkerRole::kTarget && !served.empty()) {
      info_.model_name = served;
    }
    common_vocabulary_ =
        std::min(info_.tokenizer_vocab_size, tokenizer_->vocab_size());
    command.mutable_vocabulary_request()->set_common_size(common_vocabulary_);
    command.mutable_vocabulary_request()->set_attachment(secret_);
    command.mutable_vocabulary_request()->set_coordinator(
        service_->coordinator_);
    stream = stream_;
  }
  stream->Send(std::move(command));
}

void RegistryService::Attachment::OnProof(const v1::VocabularyProof& proof) {
  WorkerInfo info;
  int common = 0;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kProof) return;
    info = info_;
    common = common_vocabulary_;
  }
  if (proof.hash() != tokenizer_->VocabularyHash(common)) {
    Refuse(absl::FailedPreconditionError(absl::StrCat(
        "VOCABULARY_MISMATCH: the ", RoleName(info.role), " at ", info.address,
        " maps the first ", common,
        " token ids to other pieces than the coordinator's tokenizer",
        info.role == WorkerRole::kDraft
            ? "; a draft of another vocabulary needs the target's, by "
              "--target-tokenizer"
            : "")));
    return;
  }
  absl::MutexLock lock(&mu_);
  if (state_ != State::kProof || stream_ == nullptr) return;
  state_ = State::kDialling;
  ++open_streams_;
  if (info.role == WorkerRole::kTarget) {
    join_ = [dispatcher = dispatcher_,
             link = Dial<TargetStreamLink>()](WorkerInfo joining) {
      return dispatcher->AddTarget(std::move(joining), link);
    };
  } else {
    join_ = [dispatcher = dispatcher_,
             link = Dial<DraftStreamLink>()](WorkerInfo joining) {
      return dispatcher->AddDraft(std::move(joining), link);
    };
  }
}

template <typename Link>
std::shared_ptr<Link> RegistryService::Attachment::Dial() {
  std::shared_ptr<Attachment> self = shared_from_this();
  std::shared_ptr<Link> link = Link::Connect(
      info_.address, service_->options_.security,
      {[self](uint64_t attachment) { self->OnReady(attachment); },
       [self](typename Link::Events events) {
         self->OnEvents(std::move(events));
       },
       [self](const absl::Status& status) { self->OnLost(status); }},
      service_->coordinator_);
  session_ = link;
  return link;
}

void RegistryService::Attachment::OnReady(uint64_t attachment) {
  std::string address;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kDialling || stream_ == nullptr) return;
    address = info_.address;
    if (attachment == secret_) state_ = State::kJoining;
  }
  if (attachment != secret_) {
    const absl::Status wrong = absl::UnavailableError(absl::StrCat(
        "WRONG_WORKER: at ", address, " another process answers than the ",
        "worker that attached with this address; is its --advertise right?"));
    spdlog::warn("worker refused: {}", std::string(wrong.message()));
    End(wrong);
    return;
  }
  service_->EndOlder(address, serial_);
  Join();
}

// Its session stream says nothing more before this has returned.
void RegistryService::Attachment::Join() {
  WorkerInfo info;
  std::function<absl::StatusOr<uint64_t>(WorkerInfo)> join;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kJoining) return;
    info = info_;
    join = std::exchange(join_, nullptr);
  }
  const absl::StatusOr<uint64_t> id = join(info);
  if (!id.ok()) {
    Refuse(id.status());
    return;
  }
  WarnOf(info, *tokenizer_, dispatcher_->workers());
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kJoining && stream_ != nullptr) {
      worker_id_ = *id;
      state_ = State::kAttached;
      life_.OnAttached(now_ns_());
      v1::WorkerCommand command;
      command.mutable_accepted();
      stream_->Send(std::move(command));
      spdlog::info("{} worker {} attached (model {}, {})", RoleName(info_.role),
                   info_.address, info_.model_name, info_.numerics_id);
      return;
    }
  }
  // It has left meanwhile.
  dispatcher_->RemoveWorker(*id);
}

template <typename Events>
void RegistryService::Attachment::OnEvents(Events events) {
  uint64_t worker_id = 0;
  {
    absl::MutexLock lock(&mu_);
    worker_id = worker_id_;
    life_.OnAnswer(now_ns_());
  }
  if (worker_id != 0) dispatcher_->OnEvents(worker_id, std::move(events));
}

void RegistryService::Attachment::OnHeartbeat(const v1::Heartbeat& heartbeat) {
  std::shared_ptr<WorkerStream> session;
  uint64_t worker_id = 0;
  bool drains = false;
  bool was_hung = false;
  {
    absl::MutexLock lock(&mu_);
    was_hung = heartbeat_.hung();
    heartbeat_ = heartbeat;
    life_.OnHeartbeat(now_ns_());
    if (state_ != State::kAttached) return;
    session = session_;
    worker_id = worker_id_;
    drains = told_to_drain_ || heartbeat.draining();
  }
  if (heartbeat.hung()) {
    dispatcher_->DrainWorker(worker_id);
  } else if (was_hung && !drains) {
    dispatcher_->ResumeWorker(worker_id);
    // An operator may have drained it meanwhile.
    absl::MutexLock lock(&mu_);
    drains = told_to_drain_;
  }
  if (drains) dispatcher_->DrainWorker(worker_id);
  absl::optional<KvGrant> grant;
  if (heartbeat.has_kv_grant()) {
    grant.emplace();
    grant->serial = heartbeat.kv_grant().serial();
    grant->tokens = static_cast<int64_t>(
        std::min<uint64_t>(heartbeat.kv_grant().tokens(), uint64_t{1} << 62));
    grant->other_sessions = static_cast<int>(
        std::min<uint32_t>(heartbeat.other_sessions(), 1u << 20));
  }
  dispatcher_->StateKept(worker_id, grant);
  session->Ping();
}

void RegistryService::Attachment::OnLost(const absl::Status& status) {
  std::string address;
  {
    absl::MutexLock lock(&mu_);
    address = info_.address;
  }
  Leave();
  Refuse(absl::UnavailableError(absl::StrCat("the session stream to ", address,
                                             " ended: ", status.message())));
  OnStreamEnded();
}

void RegistryService::Attachment::OnStreamDone() {
  Leave();
  OnStreamEnded();
}

void RegistryService::Attachment::OnStreamEnded() {
  {
    absl::MutexLock lock(&mu_);
    if (--open_streams_ > 0) return;
  }
  service_->Forget(shared_from_this());
}

void RegistryService::Attachment::Leave() {
  std::shared_ptr<WorkerStream> session;
  uint64_t worker_id = 0;
  absl::optional<WorkerRole> lost;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kGone) return;
    state_ = State::kGone;
    session = std::move(session_);
    join_ = nullptr;
    worker_id = std::exchange(worker_id_, 0);
    if (worker_id != 0) {
      if (!heartbeat_.draining() && !told_to_drain_) lost = info_.role;
      spdlog::info("{} worker {} {}", RoleName(info_.role), info_.address,
                   lost.has_value() ? "was lost" : "left");
    }
  }
  if (lost.has_value()) service_->CountLost(*lost);
  if (worker_id != 0) dispatcher_->RemoveWorker(worker_id);
  if (session != nullptr) session->Cancel();
}

void RegistryService::Attachment::Refuse(const absl::Status& status) {
  const std::shared_ptr<Stream> stream = TakeStream();
  if (stream == nullptr) return;
  if (!absl::IsUnavailable(status)) {
    spdlog::warn("worker refused: {}", std::string(status.message()));
  }
  stream->Finish(rpc::ToGrpcStatus(status));
}

void RegistryService::Attachment::End(const absl::Status& status) {
  // First: the end of the session stream would tell it something else.
  const std::shared_ptr<Stream> stream = TakeStream();
  Leave();
  if (stream != nullptr) stream->Finish(rpc::ToGrpcStatus(status));
}

std::shared_ptr<RegistryService::Attachment::Stream>
RegistryService::Attachment::TakeStream() {
  absl::MutexLock lock(&mu_);
  return std::exchange(stream_, nullptr);
}

void RegistryService::Attachment::EndIfOlder(const std::string& address,
                                             uint64_t serial) {
  {
    absl::MutexLock lock(&mu_);
    if (serial_ >= serial || state_ == State::kHello ||
        state_ == State::kGone || info_.address != address) {
      return;
    }
  }
  End(absl::UnavailableError(
      absl::StrCat("another attachment took over the address ", address)));
}

std::string RegistryService::Attachment::Missing() const {
  switch (state_) {
    case State::kHello:
      return "it sent no Hello";
    case State::kProof:
      return absl::StrCat("the worker at ", info_.address,
                          " did not prove its vocabulary");
    default:
      return absl::StrCat("the session stream to ", info_.address,
                          " answered no ping");
  }
}

void RegistryService::Attachment::EndIfSilent(int64_t now_ns) {
  const auto format = [](int64_t ns) {
    return absl::FormatDuration(absl::Nanoseconds(ns));
  };
  const Options& options = service_->options_;
  absl::Status ended;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kAttached) {
      if (!life_.IsLost(now_ns, options.worker_timeout_ns)) return;
      ended = absl::UnavailableError(absl::StrCat(
          "no sign of life from the ", RoleName(info_.role), " at ",
          info_.address, " for ", format(now_ns - life_.silent_since_ns()),
          ": it counts as lost"));
    } else {
      // The dispatcher has it, or it is gone.
      if (state_ == State::kJoining || state_ == State::kGone ||
          now_ns - began_ns_ < options.attach_timeout_ns) {
        return;
      }
      ended = absl::UnavailableError(
          absl::StrCat("attaching took longer than ",
                       format(options.attach_timeout_ns), ": ", Missing()));
    }
  }
  spdlog::warn("{}", std::string(ended.message()));
  End(ended);
}

bool RegistryService::Attachment::DrainIfAt(const std::string& address) {
  uint64_t worker_id = 0;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kAttached || stream_ == nullptr ||
        info_.address != address) {
      return false;
    }
    worker_id = worker_id_;
    if (!std::exchange(told_to_drain_, true)) {
      v1::WorkerCommand command;
      command.mutable_drain();
      stream_->Send(std::move(command));
    }
  }
  dispatcher_->DrainWorker(worker_id);
  return true;
}

bool RegistryService::Attachment::Describe(const Statuses& statuses,
                                           v1::WorkerInfo* info) {
  absl::MutexLock lock(&mu_);
  if (state_ == State::kHello || state_ == State::kGone || stream_ == nullptr) {
    return false;
  }
  *info->mutable_hello() = hello_;
  *info->mutable_heartbeat() = heartbeat_;
  const int64_t heartbeat_ns = life_.heartbeat_ns();
  info->set_heartbeat_age_ns(heartbeat_ns == 0 ? 0 : now_ns_() - heartbeat_ns);
  if (const auto it = statuses.find(worker_id_); it != statuses.end()) {
    info->set_ready(it->second->ready);
    info->set_sessions(it->second->sessions);
    info->set_max_sessions(it->second->max_sessions);
  }
  return true;
}

}  // namespace nacre::coordinator
