#include "worker/registration.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_stream.h"
#include "proto/worker.grpc.pb.h"

namespace nacre::worker {
namespace {

bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status);
}

}  // namespace

struct Registration::Mailbox {
  absl::Mutex mu;
  absl::CondVar changed;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool heartbeat_now ABSL_GUARDED_BY(mu) = false;
  // Of the current stream.
  std::deque<v1::WorkerCommand> commands ABSL_GUARDED_BY(mu);
  absl::optional<absl::Status> done ABSL_GUARDED_BY(mu);
};

Registration::Registration(Options options)
    : options_(std::move(options)), mailbox_(std::make_shared<Mailbox>()) {
  thread_ = std::thread([this] { Run(); });
}

Registration::~Registration() {
  {
    absl::MutexLock lock(&mailbox_->mu);
    mailbox_->stopping = true;
    mailbox_->changed.Signal();
  }
  thread_.join();
}

void Registration::SendHeartbeat() {
  absl::MutexLock lock(&mailbox_->mu);
  mailbox_->heartbeat_now = true;
  mailbox_->changed.Signal();
}

void Registration::Run() {
  absl::BitGen random;
  absl::Duration backoff = options_.min_backoff;
  std::string logged;  // the last failure: a long outage is one line
  while (true) {
    Progress progress;
    const absl::Status status = Attach(&progress);
    {
      absl::MutexLock lock(&mailbox_->mu);
      if (mailbox_->stopping) return;
    }
    if (progress.known) options_.on_lost();
    if (IsRefusal(status)) {
      options_.on_refused(status);
      return;
    }
    absl::MutexLock lock(&mailbox_->mu);
    if (mailbox_->stopping) return;
    if (progress.accepted) {
      backoff = options_.min_backoff;
      logged.clear();
    }
    if (logged != status.ToString()) {
      logged = status.ToString();
      spdlog::warn("not registered with {}: {}; trying again",
                   options_.coordinator, logged);
    }
    const absl::Time until =
        absl::Now() + absl::Uniform(random, 0.5, 1.0) * backoff;
    while (!mailbox_->stopping &&
           !mailbox_->changed.WaitWithDeadline(&mailbox_->mu, until)) {
    }
    if (mailbox_->stopping) return;
    backoff = std::min(2 * backoff, options_.max_backoff);
  }
}

absl::Status Registration::Attach(Progress* progress) {
  using Stream = rpc::ClientMessageStream<v1::WorkerEvent, v1::WorkerCommand>;
  const std::shared_ptr<Mailbox> mailbox = mailbox_;
  {
    absl::MutexLock lock(&mailbox->mu);
    mailbox->commands.clear();
    mailbox->done.reset();
  }
  Stream::Callbacks callbacks;
  callbacks.on_message = [mailbox](const v1::WorkerCommand& command) {
    absl::MutexLock lock(&mailbox->mu);
    mailbox->commands.push_back(command);
    mailbox->changed.Signal();
  };
  callbacks.on_done = [mailbox](const absl::Status& status) {
    absl::MutexLock lock(&mailbox->mu);
    mailbox->done = status;
    mailbox->changed.Signal();
  };
  // The stub must live as long as the stream's call.
  const auto stub = v1::Registry::NewStub(
      rpc::CreateChannel(options_.coordinator, options_.security));
  const std::shared_ptr<Stream> stream = Stream::Create(std::move(callbacks));
  stub->async()->Attach(stream->context(), stream.get());
  stream->Start();
  v1::WorkerEvent hello;
  *hello.mutable_hello() = options_.hello;
  stream->Send(std::move(hello));

  absl::Time next_heartbeat = absl::InfiniteFuture();
  bool cancelled = false;
  while (true) {
    absl::optional<v1::WorkerCommand> command;
    {
      absl::MutexLock lock(&mailbox->mu);
      while (mailbox->commands.empty() && !mailbox->done.has_value() &&
             (cancelled || !(mailbox->stopping || mailbox->heartbeat_now))) {
        if (mailbox->changed.WaitWithDeadline(&mailbox->mu, next_heartbeat)) {
          break;
        }
      }
      if (!mailbox->commands.empty()) {
        command = std::move(mailbox->commands.front());
        mailbox->commands.pop_front();
      } else if (mailbox->done.has_value()) {
        return *mailbox->done;
      } else if (mailbox->stopping && !cancelled) {
        stream->Cancel();
        cancelled = true;
        next_heartbeat = absl::InfiniteFuture();
      }
      if (std::exchange(mailbox->heartbeat_now, false) && progress->accepted) {
        next_heartbeat = absl::InfinitePast();
      }
    }
    progress->known |= command.has_value();
    if (command.has_value() && command->has_vocabulary_request()) {
      const uint32_t asked =
          std::min(command->vocabulary_request().common_size(),
                   options_.hello.tokenizer_vocab_size());
      v1::WorkerEvent proof;
      proof.mutable_vocabulary_proof()->set_hash(
          options_.vocabulary_hash(static_cast<int>(asked)));
      stream->Send(std::move(proof));
    } else if (command.has_value() && command->has_accepted()) {
      progress->accepted = true;
      next_heartbeat = absl::InfinitePast();
      spdlog::info("registered with {}", options_.coordinator);
    } else if (command.has_value() && command->has_drain()) {
      options_.on_drain();
    }
    if (!cancelled && absl::Now() >= next_heartbeat) {
      v1::WorkerEvent event;
      *event.mutable_heartbeat() = options_.heartbeat();
      stream->Send(std::move(event));
      next_heartbeat = absl::Now() + options_.heartbeat_period;
    }
  }
}

}  // namespace nacre::worker
