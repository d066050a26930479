#include "worker/process/registration.h"

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
  bool known ABSL_GUARDED_BY(mu) = false;  // as Progress::known
  bool accepted ABSL_GUARDED_BY(mu) = false;
  uint64_t coordinator ABSL_GUARDED_BY(mu) = 0;
  // So many kept_lists answer its first heartbeat that said `draining`.
  absl::optional<uint64_t> drain_answer ABSL_GUARDED_BY(mu);
};

Registration::Registration(Options options)
    : options_(std::move(options)), mailbox_(std::make_shared<Mailbox>()) {
  thread_ = std::thread([this] { Run(); });
}

Registration::~Registration() {
  Leave();
  thread_.join();
}

void Registration::Leave() {
  absl::MutexLock lock(&mailbox_->mu);
  mailbox_->stopping = true;
  mailbox_->changed.Signal();
}

void Registration::SendHeartbeat() {
  absl::MutexLock lock(&mailbox_->mu);
  mailbox_->heartbeat_now = true;
  mailbox_->changed.Signal();
}

bool Registration::IsDrainKnown() const {
  uint64_t coordinator = 0;
  {
    absl::MutexLock lock(&mailbox_->mu);
    if (!mailbox_->known) return true;
    coordinator = mailbox_->coordinator;
  }
  const uint64_t kept_lists = options_.kept_lists(coordinator);
  absl::MutexLock lock(&mailbox_->mu);
  return !mailbox_->known || (mailbox_->drain_answer.has_value() &&
                              kept_lists >= *mailbox_->drain_answer);
}

bool Registration::is_known() const {
  absl::MutexLock lock(&mailbox_->mu);
  return mailbox_->known;
}

bool Registration::registered() const {
  absl::MutexLock lock(&mailbox_->mu);
  return mailbox_->accepted;
}

uint64_t Registration::coordinator() const {
  absl::MutexLock lock(&mailbox_->mu);
  return mailbox_->accepted ? mailbox_->coordinator : 0;
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
      mailbox_->accepted = false;
      mailbox_->drain_answer.reset();
    }
    if (progress.known) options_.on_lost(progress.coordinator);
    {
      absl::MutexLock lock(&mailbox_->mu);
      mailbox_->known = false;
    }
    if (IsRefusal(status) && !options_.on_refused(status)) return;
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
    const absl::Duration delay = absl::Uniform(random, 0.5, 1.0) * backoff;
    if (options_.on_retry) options_.on_retry(delay);
    const absl::Time until = absl::Now() + delay;
    while (!mailbox_->stopping &&
           !mailbox_->changed.WaitWithDeadline(&mailbox_->mu, until)) {
    }
    if (mailbox_->stopping) return;
    backoff = std::min(2 * backoff, options_.max_backoff);
  }
}

// What wakes an attachment: the first of these that is so.
struct Registration::Turn {
  absl::optional<v1::WorkerCommand> command;
  absl::optional<absl::Status> done;
  bool leave = false;  // for the first time
  bool beat = false;   // is asked for
};

std::shared_ptr<Registration::Stream> Registration::NewStream() {
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
  return Stream::Create(std::move(callbacks));
}

Registration::Turn Registration::AwaitTurn(absl::Time next, bool leaving) {
  Turn turn;
  absl::MutexLock lock(&mailbox_->mu);
  while (mailbox_->commands.empty() && !mailbox_->done.has_value() &&
         (leaving || !(mailbox_->stopping || mailbox_->heartbeat_now))) {
    if (mailbox_->changed.WaitWithDeadline(&mailbox_->mu, next)) break;
  }
  if (!mailbox_->commands.empty()) {
    turn.command = std::move(mailbox_->commands.front());
    mailbox_->commands.pop_front();
  } else if (mailbox_->done.has_value()) {
    turn.done = mailbox_->done;
    return turn;
  } else if (mailbox_->stopping) {
    turn.leave = !leaving;
  }
  turn.beat = std::exchange(mailbox_->heartbeat_now, false);
  return turn;
}

absl::Status Registration::Attach(Progress* progress) {
  // The stub must live as long as the stream's call.
  const auto stub = v1::Registry::NewStub(
      rpc::CreateChannel(options_.coordinator, options_.security));
  const std::shared_ptr<Stream> stream = NewStream();
  stub->async()->Attach(stream->context(), stream.get());
  stream->Start();
  v1::WorkerEvent hello;
  *hello.mutable_hello() = options_.hello;
  stream->Send(std::move(hello));

  // When it does the next thing by itself: beats once accepted, before that
  // complains, and at the end gives up the coordinator's goodbye.
  absl::Time next = absl::Now() + options_.accept_patience;
  bool leaving = false;
  while (true) {
    const Turn turn = AwaitTurn(next, leaving);
    if (turn.done.has_value()) return *turn.done;
    leaving = leaving || turn.leave;
    if (turn.beat && progress->accepted && !leaving) {
      next = absl::InfinitePast();
    }
    if (turn.command.has_value()) {
      const bool was_accepted = progress->accepted;
      OnCommand(*turn.command, stream.get(), progress);
      if (progress->accepted && !was_accepted && !leaving) {
        next = absl::InfinitePast();
      }
    }
    if (turn.leave) {
      // The coordinator hears why it goes: a silent worker counts as lost.
      next = absl::InfinitePast();
      if (progress->accepted) {
        Beat(stream.get(), progress);
        stream->CloseWrites();
        next = absl::Now() + options_.leave_patience;
      }
    }
    if (absl::Now() < next) continue;
    if (leaving) {
      stream->Cancel();
      next = absl::InfiniteFuture();
    } else if (progress->accepted) {
      Beat(stream.get(), progress);
      next = absl::Now() + options_.heartbeat_period;
    } else {
      LogWaiting();
      next = absl::InfiniteFuture();
    }
  }
}

void Registration::OnCommand(const v1::WorkerCommand& command, Stream* stream,
                             Progress* progress) {
  if (command.has_vocabulary_request()) {
    progress->coordinator = command.vocabulary_request().coordinator();
  }
  if (!std::exchange(progress->known, true)) {
    absl::MutexLock lock(&mailbox_->mu);
    mailbox_->known = true;
    mailbox_->coordinator = progress->coordinator;
  }
  if (command.has_vocabulary_request()) {
    options_.on_attachment(progress->coordinator,
                           command.vocabulary_request().attachment());
    const uint32_t asked = std::min(command.vocabulary_request().common_size(),
                                    options_.hello.tokenizer_vocab_size());
    v1::WorkerEvent proof;
    proof.mutable_vocabulary_proof()->set_hash(
        options_.vocabulary_hash(static_cast<int>(asked)));
    stream->Send(std::move(proof));
  } else if (command.has_accepted()) {
    progress->accepted = true;
    {
      absl::MutexLock lock(&mailbox_->mu);
      mailbox_->accepted = true;
    }
    progress->kept_before = options_.kept_lists(progress->coordinator);
    logged_waiting_ = false;
    spdlog::info("registered with {}", options_.coordinator);
  } else if (command.has_drain()) {
    options_.on_drain();
  }
}

void Registration::Beat(Stream* stream, Progress* progress) {
  v1::WorkerEvent event;
  *event.mutable_heartbeat() = options_.heartbeat(progress->coordinator);
  ++progress->heartbeats;
  if (event.heartbeat().draining()) {
    absl::MutexLock lock(&mailbox_->mu);
    if (!mailbox_->drain_answer.has_value()) {
      mailbox_->drain_answer = progress->kept_before + progress->heartbeats;
    }
  }
  stream->Send(std::move(event));
}

void Registration::LogWaiting() {
  if (std::exchange(logged_waiting_, true)) return;
  spdlog::warn(
      "{} has not accepted this worker for {}: it must be reached there, and "
      "must reach this worker at {}",
      options_.coordinator, absl::FormatDuration(options_.accept_patience),
      options_.hello.address());
}

}  // namespace nacre::worker
