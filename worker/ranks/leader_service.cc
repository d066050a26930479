#include "worker/ranks/leader_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/grpc_status.h"
#include "common/status_macros.h"
#include "worker/ranks/command_convert.h"

namespace nacre::worker {
namespace {

constexpr absl::Duration kLeaderLogPeriod = absl::Seconds(10);

// In a step: that it is refused there would be taken for an answer to what was
// asked of it, and leave the model as it is.
absl::Status InStep(const absl::Status& status, bool in_steps) {
  if (!in_steps ||
      (!absl::IsInvalidArgument(status) && !absl::IsAborted(status))) {
    return status;
  }
  return absl::InternalError(status.message());
}

}  // namespace

LeaderService::LeaderService(int nodes, NodeFacts facts, bool is_encrypted)
    : facts_(std::move(facts)),
      is_encrypted_(is_encrypted),
      peers_(static_cast<size_t>(nodes)) {
  for (size_t node = 1; node < peers_.size(); ++node) {
    peers_[node].inbox = std::make_unique<ValueInbox>(static_cast<int>(node));
  }
}

LeaderService::~LeaderService() = default;

grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>*
LeaderService::Follow(grpc::CallbackServerContext* context) {
  auto call = std::make_shared<Call>();
  call->address = context->peer();
  call->stream =
      Stream::Create({[this, call](const v1::FollowerMessage& message) {
                        OnMessage(call, message);
                      },
                      [this, call] { OnDone(*call); }});
  return call->stream.get();
}

void LeaderService::OnMessage(const std::shared_ptr<Call>& call,
                              const v1::FollowerMessage& message) {
  const auto kind = message.message_case();
  if (call->refused) return;
  if (call->node == 0) {
    const absl::Status status =
        kind == v1::FollowerMessage::kJoin
            ? Admit(call, message.join())
            : absl::InvalidArgumentError("a node that has not joined");
    if (status.ok()) return;
    call->refused = true;
    spdlog::warn("a node at {} is refused: {}", call->address,
                 std::string(status.message()));
    call->stream->Finish(rpc::ToGrpcStatus(status));
    return;
  }
  absl::Status status;
  if (kind == v1::FollowerMessage::kValues) {
    status = peers_[static_cast<size_t>(call->node)].inbox->Push(
        ToPiece(message.values()));
  } else if (kind == v1::FollowerMessage::kLoaded) {
    const absl::MutexLock lock(&mu_);
    peers_[static_cast<size_t>(call->node)].loaded = ToFacts(message.loaded());
  } else if (kind == v1::FollowerMessage::kProgress) {
    status = OnProgress(call->node, message.progress());
  } else if (kind == v1::FollowerMessage::kLeave) {
    Leave();
  } else if (kind == v1::FollowerMessage::kFailure) {
    // The codes of gRPC are those of absl.
    status = absl::Status(
        static_cast<absl::StatusCode>(message.failure().code()),
        absl::StrCat("node ", call->node, ": ", message.failure().message()));
    if (status.ok()) status = absl::InternalError(message.failure().message());
  } else {
    status = absl::InvalidArgumentError(
        absl::StrCat("node ", call->node, " has sent a message out of turn"));
  }
  if (!status.ok()) static_cast<void>(Fail(status));
}

absl::Status LeaderService::Admit(const std::shared_ptr<Call>& call,
                                  const v1::JoinRanks& join) {
  const uint32_t node = join.node();
  if (node < 1 || node >= peers_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--node-rank is ", node, ", expected 1 to ", peers_.size() - 1));
  }
  NACRE_RETURN_IF_ERROR(
      CheckSameFacts(static_cast<int>(node), ToFacts(join.facts()), facts_));
  {
    const absl::MutexLock lock(&mu_);
    NACRE_RETURN_IF_ERROR(failure_);
    Peer& peer = peers_[node];
    if (peer.call != nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "node ", node, " has joined already, from ", peer.call->address));
    }
    call->node = static_cast<int>(node);
    peer.call = call;
  }
  spdlog::info("node {} has joined from {}", node, call->address);
  v1::LeaderMessage answer;
  answer.mutable_joined();
  call->stream->Send(std::move(answer));
  return absl::OkStatus();
}

absl::Status LeaderService::OnProgress(int node,
                                       const v1::RanksProgress& message) {
  NACRE_ASSIGN_OR_RETURN(std::vector<kernels::RankProgress> progress,
                         ToProgress(message));
  const absl::MutexLock lock(&mu_);
  Peer& peer = peers_[static_cast<size_t>(node)];
  peer.progress = std::move(progress);
  peer.progress_time = absl::Now();
  return absl::OkStatus();
}

std::vector<kernels::NodeProgress> LeaderService::Progress() const {
  std::vector<kernels::NodeProgress> all;
  const absl::MutexLock lock(&mu_);
  for (size_t node = 1; node < peers_.size(); ++node) {
    kernels::NodeProgress& progress = all.emplace_back();
    progress.node = static_cast<int>(node);
    progress.ranks = peers_[node].progress;
    if (progress.ranks.empty()) continue;
    progress.ago =
        absl::ToChronoMilliseconds(absl::Now() - peers_[node].progress_time);
  }
  return all;
}

void LeaderService::OnDone(const Call& call) {
  if (call.node == 0) return;
  {
    const absl::MutexLock lock(&mu_);
    peers_[static_cast<size_t>(call.node)].gone = true;
    if (ended_) return;
  }
  static_cast<void>(Fail(absl::UnavailableError(
      absl::StrCat("node ", call.node, " at ", call.address, " is lost"))));
}

void LeaderService::Leave() {
  std::function<void()> on_leave;
  {
    const absl::MutexLock lock(&mu_);
    left_ = true;
    on_leave = on_leave_;
  }
  if (on_leave != nullptr) on_leave();
}

absl::Status LeaderService::AwaitAll(
    const std::function<bool(const Peer&)>& has, const std::string& what,
    absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  std::string missing;
  const auto is_complete = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    missing.clear();
    for (size_t node = 1; node < peers_.size(); ++node) {
      if (has(peers_[node])) continue;
      absl::StrAppend(&missing, missing.empty() ? "node " : ", node ", node);
    }
    return missing.empty() || !failure_.ok();
  };
  const absl::MutexLock lock(&mu_);
  while (!mu_.AwaitWithDeadline(
      absl::Condition(&is_complete),
      std::min(deadline, absl::Now() + kLeaderLogPeriod))) {
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(missing, " has not ", what, " within ",
                       absl::FormatDuration(patience), " (--join-timeout)"));
    }
    spdlog::info("waiting for {}, which has not {}", missing, what);
  }
  return failure_;
}

absl::Status LeaderService::AwaitJoined(absl::Duration patience) {
  return AwaitAll([](const Peer& peer) { return peer.call != nullptr; },
                  "joined", patience);
}

absl::Status LeaderService::AwaitLoaded(const NodeFacts& facts,
                                        absl::Duration patience) {
  NACRE_RETURN_IF_ERROR(
      AwaitAll([](const Peer& peer) { return peer.loaded.has_value(); },
               "loaded its ranks", patience));
  for (size_t node = 1; node < peers_.size(); ++node) {
    NodeFacts loaded;
    {
      const absl::MutexLock lock(&mu_);
      loaded = *peers_[node].loaded;
    }
    const absl::Status status =
        CheckSameFacts(static_cast<int>(node), loaded, facts);
    if (!status.ok()) return Fail(status);
  }
  const absl::MutexLock lock(&mu_);
  in_steps_ = true;
  return failure_;
}

void LeaderService::SetPatience(absl::Duration patience) {
  const absl::MutexLock lock(&mu_);
  patience_ = patience;
}

void LeaderService::StartServing(absl::Duration hang_timeout) {
  SetPatience(hang_timeout);
  v1::LeaderMessage message;
  message.mutable_serving()->set_hang_timeout_ms(
      static_cast<uint64_t>(absl::ToInt64Milliseconds(hang_timeout)));
  for (size_t node = 1; node < peers_.size(); ++node) {
    StreamTo(node)->Send(message);
  }
}

void LeaderService::SetOnFailure(
    const std::function<void(const absl::Status&)>& on_failure) {
  absl::Status failure;
  {
    const absl::MutexLock lock(&mu_);
    on_failure_ = on_failure;
    failure = failure_;
  }
  if (!failure.ok() && on_failure != nullptr) on_failure(failure);
}

void LeaderService::SetOnLeave(const std::function<void()>& on_leave) {
  bool left = false;
  {
    const absl::MutexLock lock(&mu_);
    on_leave_ = on_leave;
    left = left_;
  }
  if (left) on_leave();
}

void LeaderService::End(const absl::Status& status) {
  std::vector<std::shared_ptr<Call>> calls;
  absl::Status end = status;
  {
    const absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
    if (!failure_.ok()) {
      end = failure_;
    } else {
      in_order_ = status.ok();
      failure_ =
          status.ok() ? absl::CancelledError("the leader has stopped") : status;
    }
    for (const Peer& peer : peers_) {
      if (peer.inbox != nullptr) peer.inbox->End(InStep(failure_, in_steps_));
      if (peer.call != nullptr) calls.push_back(peer.call);
    }
  }
  for (const auto& call : calls) {
    call->stream->Finish(rpc::ToGrpcStatus(end));
  }
}

void LeaderService::AwaitEnded(absl::Duration patience) {
  const auto are_gone = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
      return peer.call == nullptr || peer.gone;
    });
  };
  const absl::MutexLock lock(&mu_);
  mu_.AwaitWithTimeout(absl::Condition(&are_gone), patience);
}

absl::Status LeaderService::Fail(const absl::Status& reason) {
  std::function<void(const absl::Status&)> on_failure;
  {
    const absl::MutexLock lock(&mu_);
    if (!failure_.ok()) return failure_;
    failure_ = reason;
    on_failure = on_failure_;
  }
  End(reason);
  if (on_failure != nullptr) on_failure(reason);
  return reason;
}

bool LeaderService::in_steps() const {
  const absl::MutexLock lock(&mu_);
  return in_steps_;
}

absl::Status LeaderService::Ending() const {
  const absl::MutexLock lock(&mu_);
  return InStep(failure_, in_steps_);
}

absl::Status LeaderService::failure() const {
  const absl::MutexLock lock(&mu_);
  return in_order_ ? absl::OkStatus() : InStep(failure_, in_steps_);
}

std::shared_ptr<LeaderService::Stream> LeaderService::StreamTo(
    size_t node) const {
  const absl::MutexLock lock(&mu_);
  return peers_[node].call == nullptr ? nullptr : peers_[node].call->stream;
}

absl::Status LeaderService::Send(int to, const kernels::NodeCall& call,
                                 const float* values) {
  NACRE_RETURN_IF_ERROR(Ending());
  const std::shared_ptr<Stream> stream = StreamTo(static_cast<size_t>(to));
  ForEachPiece(call, values, [&](v1::RankValues piece) {
    v1::LeaderMessage message;
    *message.mutable_values() = std::move(piece);
    stream->Send(std::move(message));  // if it has ended, Receive says so
  });
  return absl::OkStatus();
}

absl::Status LeaderService::Receive(int from, const kernels::NodeCall& call,
                                    float* values) {
  absl::Duration patience;
  {
    const absl::MutexLock lock(&mu_);
    patience = patience_;
  }
  const absl::Status status =
      peers_[static_cast<size_t>(from)].inbox->Receive(call, patience, values);
  return status.ok() ? status : InStep(Fail(status), in_steps());
}

void LeaderService::Abort(const absl::Status& reason) {
  static_cast<void>(Fail(reason));
}

absl::Status LeaderService::SendCommands(
    const std::vector<model::RankCommand>& commands) {
  NACRE_RETURN_IF_ERROR(Ending());
  v1::LeaderMessage message;
  FillCommands(commands, message.mutable_commands());
  for (size_t node = 1; node < peers_.size(); ++node) {
    StreamTo(node)->Send(message);
  }
  return absl::OkStatus();
}

}  // namespace nacre::worker
