#include "tests/integration/hostile_workers.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "proto/inference.grpc.pb.h"
#include "tests/coordinator/fake_worker.h"

namespace nacre::integration {
namespace {

using coordinator::FakeWorker;

constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kMostInt = std::numeric_limits<int32_t>::max();
// Less than any other request of the test needs.
constexpr uint64_t kLittleKv = 64;
constexpr absl::Duration kLife = absl::Seconds(2);
constexpr absl::Duration kPatienceOfRequests = absl::Seconds(20);

// A Hello like `truth` of another process.
v1::Hello Impostor(const v1::Hello& truth, const FakeWorker& worker,
                   int round) {
  v1::Hello hello = truth;
  hello.set_address(worker.address());
  hello.set_incarnation(absl::StrCat("impostor ", round));
  return hello;
}

// Lives until `over` or for a while, with a heartbeat every half second.
void Live(FakeWorker& worker, const absl::Notification& over) {
  const absl::Time end = absl::Now() + kLife;
  while (absl::Now() < end && worker.detached.values().empty() &&
         !over.WaitForNotificationWithTimeout(absl::Milliseconds(500))) {
    worker.Heartbeat();
  }
}

// One that commits a token of a session that began with `length` tokens.
v1::Verdict OneToken(uint64_t session_id, uint32_t length) {
  v1::Verdict verdict;
  verdict.set_session_id(session_id);
  verdict.set_base_length(length);
  verdict.add_token_ids(5);
  return verdict;
}

v1::Verdict AbsurdVerdict(uint64_t session_id, uint32_t length, int i) {
  v1::Verdict verdict = OneToken(session_id, length);
  switch (i % 8) {
    case 0:  // a histogram of 16 GiB
      verdict.set_window(kMostInt);
      verdict.set_matched(kMostInt);
      verdict.set_verified(kMostInt);
      verdict.set_accepted(kMostInt);
      break;
    case 1:
      verdict.set_accepted(kMost);
      verdict.set_verified(kMost);
      break;
    case 2:
      verdict.set_verified(1);
      verdict.set_accepted(kMostInt);
      break;
    case 3:
      verdict.set_token_ids(0, kMostInt);
      break;
    case 4:
      verdict.set_base_length(kMostInt);
      break;
    case 5:  // far beyond max_tokens
      for (int token = 0; token < 100'000; ++token) verdict.add_token_ids(5);
      break;
    case 6:
      verdict.clear_token_ids();
      verdict.set_finish(v1::FINISH_REASON_LENGTH);
      break;
    default:
      for (int token = 0; token < 1000; ++token) {
        verdict.add_logprobs()->add_top_ids(kMostInt);
      }
  }
  return verdict;
}

// All that an opened session is told: absurd things of it, of its neighbours
// and of sessions that never were, and then that its device failed.
v1::TargetEvent AbsurdEvent(const v1::OpenTarget& open, int i) {
  v1::TargetEvent event;
  event.add_opened()->set_session_id(open.session_id());
  const auto length = static_cast<uint32_t>(open.token_ids_size());
  *event.add_verdicts() = AbsurdVerdict(open.session_id(), length, i);
  for (uint64_t other = 1; other < open.session_id() + 8; ++other) {
    if (other == open.session_id() || other + 64 < open.session_id()) continue;
    *event.add_verdicts() = OneToken(other, length);
    v1::SessionError* error = event.add_errors();
    error->set_session_id(other);
    error->set_code(13);
  }
  v1::Span* span = event.add_spans();
  span->set_session_id(open.session_id());
  span->set_duration_ns(std::numeric_limits<uint64_t>::max());
  span->set_rows(kMost);
  span->set_batch_rows(kMost);
  v1::SessionError* error = event.add_errors();
  error->set_session_id(open.session_id());
  error->set_code(13);  // INTERNAL
  error->set_message(std::string(1 << 16, 'x'));
  return event;
}

v1::DraftEvent AbsurdTails(const v1::OpenDraft& open, int i) {
  v1::DraftEvent event;
  event.add_opened()->set_session_id(open.session_id());
  const auto length = static_cast<uint32_t>(open.token_ids_size());
  for (uint64_t other = open.session_id(); other < open.session_id() + 8;
       ++other) {
    v1::Tail* tail = event.add_tails();
    tail->set_session_id(other);
    tail->set_epoch(i % 3 == 0 ? kMost : open.epoch());
    tail->set_base_length(i % 3 == 1 ? kMost : length);
    tail->set_first_position(i % 3 == 2 ? kMost : length);
    for (int token = 0; token < 300; ++token) {
      tail->add_token_ids(token % 2 == 0 ? 5 : kMostInt);
    }
    tail->add_distributions()->add_weights(-1);
    event.add_closed()->set_session_id(other + 100);
  }
  return event;
}

// Clients whose requests fit the target of TellAbsurdVerdicts, and want a
// draft.
void SendSmallRequests(const Prey& prey, int count) {
  const auto stub = v1::Inference::NewStub(rpc::CreateChannel(prey.clients));
  for (int i = 0; i < count; ++i) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatienceOfRequests));
    context.AddMetadata("authorization", "Bearer " + prey.token);
    v1::GenerateRequest request;
    for (uint32_t id = 5; id < 13; ++id)
      request.mutable_token_ids()->add_ids(id);
    request.mutable_stop()->set_max_tokens(8);
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    reader->Finish();  // right or refused: the small target may have taken it
  }
}

}  // namespace

void AttachWithCopiedHello(const Prey& prey, const TrueWorkers& workers,
                           int round, const absl::Notification& over) {
  const v1::Hello& truth = round % 2 == 0 ? workers.target : workers.draft;
  FakeWorker worker(truth.role());
  worker.proof = workers.vocabulary_proof;
  worker.hello = truth;
  const int variant = round / 2 % 3;
  if (variant == 1) worker.hello.set_address(worker.address());
  if (variant == 2) worker.hello.set_incarnation("another");
  worker.Attach(prey.registry);
  Live(worker, over);
}

int TellAbsurdVerdicts(const Prey& prey, const TrueWorkers& workers, int round,
                       const absl::Notification& over) {
  std::atomic<int> next{round};  // outlives the worker's threads
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.proof = workers.vocabulary_proof;
  worker.hello = Impostor(workers.target, worker, round);
  // No session of a true target goes on here.
  worker.hello.set_numerics_id("absurd");
  worker.hello.set_kv_capacity_tokens(kLittleKv);
  worker.target.SetScript([&worker, &next](const v1::TargetControl& control) {
    for (const v1::OpenTarget& open : control.open()) {
      worker.target.Send(AbsurdEvent(open, next++));
    }
    for (const v1::CloseSession& close : control.close()) {
      v1::TargetEvent event;
      event.add_closed()->set_session_id(close.session_id());
      worker.target.Send(std::move(event));
    }
  });
  worker.Attach(prey.registry);
  worker.AwaitAccepted();
  SendSmallRequests(prey, /*count=*/8);
  Live(worker, over);
  return next - round;
}

int TellAbsurdTails(const Prey& prey, const TrueWorkers& workers, int round,
                    const absl::Notification& over) {
  std::atomic<int> next{round};  // outlives the worker's threads
  FakeWorker worker(v1::WORKER_ROLE_DRAFT);
  worker.proof = workers.vocabulary_proof;
  worker.hello = Impostor(workers.draft, worker, round);
  worker.draft.SetScript([&worker, &next](const v1::DraftControl& control) {
    for (const v1::OpenDraft& open : control.open()) {
      worker.draft.Send(AbsurdTails(open, next++));
    }
    for (const v1::CloseSession& close : control.close()) {
      v1::DraftEvent event;
      event.add_closed()->set_session_id(close.session_id());
      worker.draft.Send(std::move(event));
    }
  });
  worker.Attach(prey.registry);
  worker.AwaitAccepted();
  SendSmallRequests(prey, /*count=*/2);
  Live(worker, over);
  return next - round;
}

}  // namespace nacre::integration
