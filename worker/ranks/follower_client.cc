#include "worker/ranks/follower_client.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/status_macros.h"
#include "worker/ranks/command_convert.h"
#include "worker/ranks/value_inbox.h"

namespace nacre::worker {
namespace {

constexpr absl::Duration kJoinLogPeriod = absl::Seconds(10);
constexpr absl::Duration kRetryPeriod = absl::Milliseconds(200);
// For the leader to hear of a failure.
constexpr absl::Duration kFarewell = absl::Seconds(2);

// Names the leader, where the words of gRPC or of another node do not.
absl::Status Explained(const std::string& leader, const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("the leader at ", leader, " has ended: ", status.message()));
}

}  // namespace

struct FollowerClient::State {
  explicit State(std::string address) : leader(std::move(address)) {}

  const std::string leader;
  ValueInbox inbox{0};
  absl::Mutex mu;
  bool joined ABSL_GUARDED_BY(mu) = false;
  bool ended ABSL_GUARDED_BY(mu) = false;
  bool aborted ABSL_GUARDED_BY(mu) = false;
  absl::Status end ABSL_GUARDED_BY(mu);  // of the stream, or why it aborted
  std::deque<v1::RankCommands> commands ABSL_GUARDED_BY(mu);
  absl::Duration patience ABSL_GUARDED_BY(mu) = absl::InfiniteDuration();
  std::function<void(const absl::Status&)> on_end ABSL_GUARDED_BY(mu);

  bool HasAnswer() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return joined || ended;
  }
  bool HasCommands() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return !commands.empty() || ended || aborted;
  }

  void OnMessage(const v1::LeaderMessage& message) ABSL_LOCKS_EXCLUDED(mu) {
    if (message.has_values()) {
      const absl::Status status = inbox.Push(ToPiece(message.values()));
      if (!status.ok()) inbox.End(status);
      return;
    }
    const absl::MutexLock lock(&mu);
    if (message.has_joined()) joined = true;
    if (message.has_commands()) commands.push_back(message.commands());
    if (message.has_serving()) {
      patience = 2 * absl::Milliseconds(message.serving().hang_timeout_ms());
    }
  }
  void OnDone(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu) {
    const absl::Status reason = Explained(leader, status);
    std::function<void(const absl::Status&)> heard;
    absl::Status why;
    {
      const absl::MutexLock lock(&mu);
      ended = true;
      if (!aborted) end = reason;
      why = end;
      heard = on_end;
    }
    // After that: who waits for values asks whether it was in order.
    inbox.End(reason.ok() ? absl::CancelledError("the leader has stopped")
                          : reason);
    if (heard != nullptr) heard(why);
  }
};

absl::StatusOr<std::unique_ptr<FollowerClient>> FollowerClient::Join(
    const Options& options, absl::Duration patience) {
  std::unique_ptr<FollowerClient> client(new FollowerClient(options));
  client->stub_ =
      v1::Ranks::NewStub(rpc::CreateChannel(options.leader, options.security));
  const absl::Time deadline = absl::Now() + patience;
  absl::Time next_log = absl::Now() + kJoinLogPeriod;
  while (true) {
    const absl::Status status = client->Connect(client->stub_.get(), deadline);
    if (status.ok()) return client;
    if (!absl::IsUnavailable(status)) return status;
    if (absl::Now() + kRetryPeriod >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the leader at ", options.leader,
                       " is not there within ", absl::FormatDuration(patience),
                       " (--join-timeout): ", status.message()));
    }
    if (absl::Now() >= next_log) {
      next_log = absl::Now() + kJoinLogPeriod;
      spdlog::info("waiting for the leader at {}: {}", options.leader,
                   std::string(status.message()));
    }
    absl::SleepFor(kRetryPeriod);
  }
}

absl::Status FollowerClient::Connect(v1::Ranks::Stub* stub,
                                     absl::Time deadline) {
  state_ = std::make_shared<State>(options_.leader);
  stream_ = Stream::Create({[state = state_](const v1::LeaderMessage& message) {
                              state->OnMessage(message);
                            },
                            [state = state_](const absl::Status& status) {
                              state->OnDone(status);
                            }});
  stub->async()->Follow(stream_->context(), stream_.get());
  stream_->Start();
  v1::FollowerMessage join;
  join.mutable_join()->set_node(static_cast<uint32_t>(options_.node));
  FillFacts(options_.facts, join.mutable_join()->mutable_facts());
  Say(std::move(join));
  State& state = *state_;
  const absl::MutexLock lock(&state.mu);
  if (!state.mu.AwaitWithDeadline(absl::Condition(&state, &State::HasAnswer),
                                  deadline)) {
    stream_->Cancel();
    return absl::UnavailableError("it does not answer");
  }
  if (state.joined) return absl::OkStatus();
  return state.end.ok() ? absl::UnavailableError("it has stopped") : state.end;
}

FollowerClient::~FollowerClient() {
  if (stream_ == nullptr) return;
  State& state = *state_;
  const absl::MutexLock lock(&state.mu);
  if (state.aborted) {
    state.mu.AwaitWithTimeout(absl::Condition(&state.ended), kFarewell);
  }
  if (!state.ended) stream_->Cancel();
  state.mu.Await(absl::Condition(&state.ended));
}

void FollowerClient::SayLoaded(const NodeFacts& facts) {
  v1::FollowerMessage message;
  FillFacts(facts, message.mutable_loaded());
  Say(std::move(message));
}

absl::StatusOr<std::vector<model::RankCommand>> FollowerClient::NextCommands() {
  v1::RankCommands commands;
  {
    const absl::MutexLock lock(&state_->mu);
    state_->mu.Await(absl::Condition(state_.get(), &State::HasCommands));
    if (state_->aborted || state_->commands.empty()) {
      NACRE_RETURN_IF_ERROR(state_->end);
      return std::vector<model::RankCommand>();
    }
    commands = std::move(state_->commands.front());
    state_->commands.pop_front();
  }
  return ToCommands(commands);
}

void FollowerClient::SetPatience(absl::Duration patience) {
  const absl::MutexLock lock(&state_->mu);
  state_->patience = patience;
}

void FollowerClient::SetOnEnd(
    const std::function<void(const absl::Status&)>& on_end) {
  absl::Status end;
  {
    const absl::MutexLock lock(&state_->mu);
    state_->on_end = on_end;
    if (!state_->ended) return;
    end = state_->end;
  }
  if (on_end != nullptr) on_end(end);
}

bool FollowerClient::has_stopped() const {
  const absl::MutexLock lock(&state_->mu);
  return state_->ended && state_->end.ok();
}

void FollowerClient::AwaitEnd(absl::Duration patience) {
  const absl::MutexLock lock(&state_->mu);
  state_->mu.AwaitWithTimeout(absl::Condition(&state_->ended), patience);
}

void FollowerClient::Leave() {
  v1::FollowerMessage message;
  message.mutable_leave();
  Say(std::move(message));
}

absl::Status FollowerClient::Send(int, const kernels::NodeCall& call,
                                  const float* values) {
  ForEachPiece(call, values, [&](v1::RankValues piece) {
    v1::FollowerMessage message;
    *message.mutable_values() = std::move(piece);
    Say(std::move(message));  // if the stream has ended, Receive says so
  });
  return absl::OkStatus();
}

absl::Status FollowerClient::Receive(int, const kernels::NodeCall& call,
                                     float* values) {
  absl::Duration patience;
  {
    const absl::MutexLock lock(&state_->mu);
    patience = state_->patience;
  }
  return state_->inbox.Receive(call, patience, values);
}

void FollowerClient::Abort(const absl::Status& reason) {
  {
    const absl::MutexLock lock(&state_->mu);
    if (state_->aborted || state_->ended) return;
    state_->aborted = true;
    state_->end = reason;
  }
  state_->inbox.End(reason);
  v1::FollowerMessage message;
  message.mutable_failure()->set_code(static_cast<uint32_t>(reason.code()));
  message.mutable_failure()->set_message(std::string(reason.message()));
  Say(std::move(message));
}

void FollowerClient::SayProgress(
    const std::vector<kernels::RankProgress>& ranks) {
  v1::FollowerMessage message;
  FillProgress(ranks, message.mutable_progress());
  Say(std::move(message));
}

absl::Status FollowerClient::failure() const {
  const absl::MutexLock lock(&state_->mu);
  return state_->end;
}

}  // namespace nacre::worker
