// What of the two ends of a hidden-state channel crosses the wire. The rest of
// the client is tested with what uses it.

#include "coordinator/grpc_worker_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/coordinator/fake_worker.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(GrpcWorkerClientTest, DraftsAndTargetsHearOfTheHiddenChannel) {
  constexpr uint64_t kChannel = 0xF000000000000001u;
  RequestSpec request;
  request.prompt_ids = {1, 2};
  request.max_tokens = 4;
  const std::vector<int32_t> token_ids = {1, 2};
  for (const WorkerRole role : {WorkerRole::kDraft, WorkerRole::kTarget}) {
    FakeWorker worker(role == WorkerRole::kDraft ? v1::WORKER_ROLE_DRAFT
                                                 : v1::WORKER_ROLE_TARGET);
    Mailbox<bool> lost;
    GrpcWorkerClient::Callbacks callbacks;
    callbacks.on_ready = [] {};
    callbacks.on_events = [](const WorkerEvents&) {};
    callbacks.on_lost = [&](const absl::Status&) { lost.Put(true); };
    const auto client = GrpcWorkerClient::Connect(role, worker.address(), {},
                                                  std::move(callbacks));
    if (role == WorkerRole::kDraft) {
      DraftOpening opening;
      opening.session_id = 3;
      opening.token_ids = &token_ids;
      opening.request = &request;
      opening.hidden_address = "target:5";
      opening.hidden_channel = kChannel;
      client->OpenDraft(opening);
      client->Flush();
      EXPECT_TRUE(worker.draft.controls.Await([](const auto& control) {
        return control.open_size() == 1 &&
               control.open(0).hidden_address() == "target:5" &&
               control.open(0).hidden_channel() == kChannel;
      }));
    } else {
      TargetOpening opening;
      opening.session_id = 3;
      opening.token_ids = &token_ids;
      opening.request = &request;
      opening.hidden_channel = kChannel;
      client->OpenTarget(opening);
      client->Flush();
      EXPECT_TRUE(worker.target.controls.Await([](const auto& control) {
        return control.open_size() == 1 &&
               control.open(0).hidden_channel() == kChannel;
      }));
    }
    client->Cancel();
    EXPECT_TRUE(lost.Await([](bool) { return true; }));
  }
}

TEST(GrpcWorkerClientTest, NotesAndHiddenSpansArrive) {
  v1::DraftEvent event;
  v1::PolicyNote* note = event.add_policy_notes();
  note->set_session_id(7);
  note->set_note(std::string(300, 'x'));
  v1::Span* span = event.add_spans();
  span->set_session_id(7);
  span->set_kind(v1::Span::KIND_HIDDEN);
  span->set_duration_ns(9);
  span->set_bytes(4096);
  span = event.add_spans();
  span->set_kind(v1::Span::KIND_HIDDEN);
  span->set_bytes(~uint64_t{0});
  const WorkerEvents events = ToWorkerEvents(event);
  EXPECT_THAT(events.policy_notes,
              ElementsAre(Pair(7u, std::string(256, 'x'))));
  ASSERT_EQ(events.spans.size(), 2u);
  EXPECT_EQ(events.spans[0].kind, SpanRecord::Kind::kHidden);
  EXPECT_EQ(events.spans[0].duration_ns, 9);
  EXPECT_EQ(events.spans[0].bytes, 4096);
  // No sum of such overflows.
  EXPECT_EQ(events.spans[1].bytes, int64_t{1} << 60);
}

}  // namespace
}  // namespace nacre::coordinator
