#include "coordinator/dispatch/placer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/refusal.h"

namespace nacre::coordinator {
namespace {

constexpr int64_t kPatienceNs = 100;

class PlacerTest : public ::testing::Test {
 protected:
  static WorkerInfo Info(WorkerRole role, const std::string& numerics_id,
                         int64_t kv_tokens) {
    WorkerInfo info;
    info.role = role;
    info.fingerprint = role == WorkerRole::kTarget ? "big" : "small";
    info.numerics_id = numerics_id;
    info.kv_capacity_tokens = kv_tokens;
    info.context_length = 1024;
    return info;
  }
  uint64_t Add(WorkerInfo info) {
    if (info.role == WorkerRole::kTarget) placer_.OnTargetAdded(info);
    return fleet_.Add(std::move(info)).value();
  }
  uint64_t AddTarget(const std::string& numerics_id = "a",
                     int64_t kv_tokens = 0) {
    return Add(Info(WorkerRole::kTarget, numerics_id, kv_tokens));
  }
  void Leave(uint64_t id, int64_t now_ns) {
    placer_.OnTargetGone(fleet_.at(id).info, now_ns);
    fleet_.Remove(id);
  }
  // Needs that much KV, a multiple of 16.
  static RequestSpec Request(int tokens, const std::string& numerics_id = "") {
    RequestSpec request;
    request.prompt_ids = {7, 8};
    request.max_tokens = tokens - 2;
    request.numerics_id = numerics_id;
    return request;
  }
  bool Waits(const RequestSpec& request, int64_t now_ns) {
    return placer_.CheckServable(request, now_ns).ok();
  }

  // The first choice of a call for so many.
  static RequestSpec FirstOf(int choices, RequestSpec request) {
    request.num_choices = choices;
    request.call = std::make_shared<CallPlacement>();
    request.call->num_started = choices;
    return request;
  }

  // Whether so many like it could ever find a place, one of them in the queue.
  bool Fit(int64_t count, const RequestSpec& request, int64_t now_ns = 1000) {
    const absl::Status status =
        placer_.CheckTogether(request, count, /*max_queue=*/1, now_ns);
    EXPECT_EQ(IsRefusedFor(status, kNeverFits), !status.ok()) << status;
    return status.ok();
  }

  Fleet fleet_;
  Placer placer_{&fleet_, kPatienceNs};
};

TEST_F(PlacerTest, TheKindIsTheClientsOrTheCalls) {
  RequestSpec request = Request(16);
  EXPECT_EQ(Placer::KindOf(request), "");
  request.call = std::make_shared<CallPlacement>();
  EXPECT_EQ(Placer::KindOf(request), "");
  request.call->numerics_id = "call's";
  EXPECT_EQ(Placer::KindOf(request), "call's");
  request.numerics_id = "client's";
  EXPECT_EQ(Placer::KindOf(request), "client's");
}

TEST_F(PlacerTest, AClassIsOfOneNeedOneCallAndOneKind) {
  const std::string plain = Placer::ClassOf(Request(32));
  EXPECT_EQ(Placer::ClassOf(Request(17)), plain);  // as many blocks
  EXPECT_NE(Placer::ClassOf(Request(33)), plain);
  EXPECT_NE(Placer::ClassOf(Request(32, "a")), plain);
  EXPECT_NE(Placer::ClassOf(Request(32, "a")),
            Placer::ClassOf(Request(32, "b")));
  RequestSpec choice = Request(32);
  choice.call = std::make_shared<CallPlacement>();
  EXPECT_NE(Placer::ClassOf(choice), plain);
  EXPECT_EQ(Placer::ClassOf(choice), Placer::ClassOf(choice));
  // Pinned, it does not matter whose choice it is.
  choice.numerics_id = "a";
  EXPECT_EQ(Placer::ClassOf(choice), Placer::ClassOf(Request(32, "a")));
}

TEST_F(PlacerTest, ADraftHoldsNoMoreThanItsContext) {
  WorkerInfo info = Info(WorkerRole::kDraft, "a", 0);
  info.context_length = 33;
  EXPECT_EQ(Placer::TextNeed(info, Request(320)), 48);
  EXPECT_EQ(Placer::TextNeed(info, Request(32)), 32);
  info.role = WorkerRole::kTarget;
  EXPECT_EQ(Placer::TextNeed(info, Request(320)), 320);
}

// A client that names no max_tokens asks for all that the context holds.
TEST_F(PlacerTest, ADraftWithLessRoomTakesTheBeginningOfAText) {
  WorkerInfo info = Info(WorkerRole::kDraft, "a", 4096);
  info.context_length = 8192;
  const uint64_t draft = Add(info);
  const RequestSpec request = Request(6000);
  const auto share = [&](int64_t length) {
    const Placer::Share taken = placer_.ShareOf(draft, request, length);
    EXPECT_EQ(taken.kv_tokens, taken.text_tokens);
    return taken.text_tokens;
  };
  const auto is_taken = [&](int64_t length) {
    return placer_.LeastLoaded(WorkerRole::kDraft, request, {}, length) ==
           draft;
  };
  EXPECT_TRUE(is_taken(0));
  EXPECT_EQ(share(0), 2048);     // others find room besides
  EXPECT_EQ(share(3000), 3520);  // the text itself, and 512
  EXPECT_TRUE(is_taken(3584));
  EXPECT_FALSE(is_taken(3585));
  fleet_.Seat(draft, 1, 2048, false);
  EXPECT_EQ(share(0), 1024);
  fleet_.Seat(draft, 2, 1024, false);
  EXPECT_EQ(share(0), 528);  // the prompt, and 512
  fleet_.Seat(draft, 3, 528, false);
  EXPECT_FALSE(is_taken(0));
  // What fits is taken whole.
  EXPECT_EQ(placer_.ShareOf(draft, Request(496)).text_tokens, 496);
  // A target must have room for all.
  const uint64_t target = AddTarget("a", 4096);
  EXPECT_EQ(placer_.TargetFor(request, {}), 0u);
  EXPECT_EQ(placer_.ShareOf(target, Request(4096)).text_tokens, 4096);
}

TEST_F(PlacerTest, ADraftTakesNoTextThatIsLongerThanItsContext) {
  WorkerInfo info = Info(WorkerRole::kDraft, "a", 0);
  info.context_length = 32;
  const uint64_t draft = Add(info);
  const auto taker = [&](int64_t length) {
    return placer_.LeastLoaded(WorkerRole::kDraft, Request(320), {}, length);
  };
  EXPECT_EQ(taker(32), draft);
  EXPECT_EQ(taker(33), 0u);
}

TEST_F(PlacerTest, SlotsAreForTheRowsOfASessionsShare) {
  const uint64_t target = AddTarget();
  const uint64_t draft = Add(Info(WorkerRole::kDraft, "a", 0));
  RequestSpec request = Request(16);
  request.tree_rows = 20;
  const auto slots = [&](uint64_t id, int draft_rows) {
    request.draft_rows = draft_rows;
    return placer_.ShareOf(id, request).num_slots;
  };
  EXPECT_EQ(slots(target, 1), 0);
  EXPECT_EQ(slots(target, 2), 20);
  EXPECT_EQ(slots(draft, 1), 0);
  EXPECT_EQ(slots(draft, 2), 16);
  EXPECT_EQ(slots(draft, 9), 128);
  EXPECT_EQ(slots(draft, 10), 128);
  EXPECT_EQ(placer_.ShareOf(target, request).kv_tokens, 16 + 32);
  EXPECT_EQ(placer_.ShareOf(draft, request).kv_tokens, 16 + 128);
  // Each session that is there takes its share of the rows.
  fleet_.Seat(draft, 1, 16, false);
  EXPECT_EQ(slots(draft, 2), 0);
  EXPECT_EQ(slots(draft, 3), 0);
  EXPECT_EQ(slots(draft, 4), 16);
  fleet_.Seat(draft, 2, 16, false);
  EXPECT_EQ(slots(draft, 8), 16);
  EXPECT_EQ(placer_.ShareOf(draft, request).kv_tokens, 16 + 16);
  EXPECT_EQ(slots(target, 2), 20);
}

TEST_F(PlacerTest, SlotsLeaveAQuarterOfTheKv) {
  RequestSpec request = Request(32);
  request.draft_rows = 2;
  request.tree_rows = 16;
  const uint64_t tight = AddTarget("a", 64);
  EXPECT_EQ(placer_.ShareOf(tight, request).num_slots, 16);  // 16 are left
  EXPECT_EQ(placer_.ShareOf(tight, request).kv_tokens, 48);
  fleet_.Seat(tight, 1, 16, false);
  request.draft_rows = 4;
  EXPECT_EQ(placer_.ShareOf(tight, request).num_slots, 0);
  EXPECT_EQ(placer_.ShareOf(tight, request).kv_tokens, 32);
  const uint64_t almost = AddTarget("a", 80);  // 16 would be left of it
  fleet_.Seat(almost, 2, 16, false);
  EXPECT_EQ(placer_.ShareOf(almost, request).num_slots, 0);
}

TEST_F(PlacerTest, SaysWhatTheLargestTargetHasRoomFor) {
  AddTarget("a", 32);
  AddTarget("a", 64);
  AddTarget("b", 512);
  AddTarget("a", 48);
  EXPECT_TRUE(placer_.CheckReady(Request(64, "a")).ok());
  const absl::Status status = placer_.CheckReady(Request(65, "a"));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "a prompt of 2 tokens and max_tokens 63 need KV for 80 tokens, the "
            "largest target has it for 64");
  EXPECT_TRUE(placer_.CheckReady(Request(512)).ok());
}

TEST_F(PlacerTest, SaysWhichKindsAreReady) {
  EXPECT_EQ(placer_.CheckReady(Request(16)),
            absl::UnavailableError("no target worker is ready"));
  Add(Info(WorkerRole::kDraft, "d", 0));
  EXPECT_EQ(placer_.CheckReady(Request(16)),
            absl::UnavailableError("no target worker is ready"));
  AddTarget("b");
  AddTarget("a");
  AddTarget("b");
  fleet_.SetReady(AddTarget("drains"), false);
  EXPECT_EQ(placer_.CheckReady(Request(16, "c")),
            WithField(absl::FailedPreconditionError(
                          "no target worker with numerics_id \"c\" is ready; "
                          "those that are ready have a, b"),
                      "numerics_id"));
  RequestSpec choice = Request(16);
  choice.call = std::make_shared<CallPlacement>();
  choice.call->numerics_id = "c";
  EXPECT_EQ(placer_.CheckReady(choice).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PlacerTest, ATargetThatLeftIsWaitedForUntilThePatienceEnds) {
  AddTarget("a", 32);
  Leave(AddTarget("b", 64), /*now_ns=*/1000);
  EXPECT_TRUE(Waits(Request(64, "b"), 1000 + kPatienceNs - 1));
  EXPECT_FALSE(Waits(Request(65, "b"), 1000));
  EXPECT_FALSE(Waits(Request(64, "c"), 1000));
  EXPECT_TRUE(Waits(Request(64), 1000));
  EXPECT_FALSE(Waits(Request(64, "b"), 1000 + kPatienceNs));
  // The next one of its kind and size is waited for anew.
  Leave(AddTarget("b", 64), 2000);
  EXPECT_TRUE(Waits(Request(64, "b"), 2000 + kPatienceNs - 1));
}

TEST_F(PlacerTest, ATargetThatDidNotTellItsRoomMayHaveRoomForAll) {
  AddTarget("a", 32);
  Leave(AddTarget("b", 0), /*now_ns=*/1000);
  EXPECT_TRUE(Waits(Request(1 << 20, "b"), 1000));
}

TEST_F(PlacerTest, OneThatLeftDoesNotHideAnother) {
  AddTarget("a", 32);
  Leave(AddTarget("b", 64), /*now_ns=*/1000);
  Leave(AddTarget("b", 128), 1000);  // another size
  Leave(AddTarget("c", 64), 1000);   // another kind
  EXPECT_TRUE(Waits(Request(64, "b"), 1000));
  EXPECT_TRUE(Waits(Request(128, "b"), 1000));
  EXPECT_TRUE(Waits(Request(64, "c"), 1000));
  EXPECT_FALSE(Waits(Request(128, "c"), 1000));
}

TEST_F(PlacerTest, TheNewestOfThoseThatLeftAreRemembered) {
  AddTarget("a", 32);
  for (int i = 0; i <= 64; ++i) Leave(AddTarget(absl::StrCat("b", i)), 1000);
  EXPECT_FALSE(Waits(Request(16, "b0"), 1000));
  EXPECT_TRUE(Waits(Request(16, "b1"), 1000));
  EXPECT_TRUE(Waits(Request(16, "b64"), 1000));
}

TEST_F(PlacerTest, OneThatComesAndGoesIsRememberedOnce) {
  AddTarget("a", 32);
  Leave(AddTarget("b"), 1000);
  for (int i = 0; i <= 64; ++i) Leave(AddTarget("c"), 1000);
  EXPECT_TRUE(Waits(Request(16, "b"), 1000));
}

TEST_F(PlacerTest, AnotherModelsTargetsAreNotWaitedFor) {
  const uint64_t last = AddTarget("a");
  Leave(AddTarget("b"), /*now_ns=*/1000);
  Leave(last, 1000);
  RequestSpec parsed = Request(16);
  parsed.fingerprint = "big";
  EXPECT_TRUE(Waits(parsed, 1000));  // for the next of that model
  WorkerInfo other = Info(WorkerRole::kTarget, "a", 0);
  other.fingerprint = "bigger";
  Add(other);
  EXPECT_FALSE(Waits(Request(16, "b"), 1000));
  EXPECT_EQ(placer_.CheckServable(parsed, 1000),
            absl::UnavailableError(
                "the served model changed while the request waited"));
  parsed.fingerprint = "bigger";
  EXPECT_TRUE(Waits(parsed, 1000));
}

TEST_F(PlacerTest, NobodyWaitsForAServiceThatNeverHadATarget) {
  Add(Info(WorkerRole::kDraft, "a", 0));
  EXPECT_EQ(placer_.CheckServable(Request(16), 1000).code(),
            absl::StatusCode::kUnavailable);
  const uint64_t target = AddTarget("a", 32);
  fleet_.SetReady(target, false);
  EXPECT_TRUE(Waits(Request(320, "b"), 1000));  // of the next all is unknown
  Leave(target, 1000);
  EXPECT_TRUE(Waits(Request(320, "b"), 1000 + kPatienceNs));
}

TEST_F(PlacerTest, ChoicesBeyondAllPlacesNeverFit) {
  const uint64_t target = AddTarget("a", 64);
  EXPECT_TRUE(Fit(3, Request(32)));
  EXPECT_FALSE(Fit(4, Request(32)));
  EXPECT_EQ(placer_.CheckTogether(Request(32), 4, 1, 1000).message(),
            "4 choices come at once, the targets have places for 2 like them "
            "and the queue for 1");
  // What it has now does not count, nor that it drains.
  fleet_.Seat(target, 1, 64, false);
  EXPECT_TRUE(Fit(3, Request(32)));
  const uint64_t other = AddTarget("a", 32);
  fleet_.SetReady(target, false);
  EXPECT_TRUE(Fit(4, Request(32)));
  EXPECT_FALSE(Fit(5, Request(32)));
  // Without any ready one the next may have any size.
  fleet_.SetReady(other, false);
  EXPECT_TRUE(Fit(16, Request(32)));
}

TEST_F(PlacerTest, ChoicesFitOnTargetsOfOneKind) {
  AddTarget("a", 64);
  AddTarget("b", 48);
  AddTarget("b", 32);
  EXPECT_TRUE(Fit(6, Request(16)));  // of b
  EXPECT_FALSE(Fit(7, Request(16)));
  EXPECT_TRUE(Fit(5, Request(16, "a")));
  EXPECT_FALSE(Fit(6, Request(16, "a")));
  EXPECT_TRUE(Fit(2, Request(64)));  // of a: none of b holds one
  EXPECT_FALSE(Fit(3, Request(64)));
}

TEST_F(PlacerTest, ChoicesMayFitOnATargetThatHasJustLeft) {
  AddTarget("a", 32);
  const uint64_t large = AddTarget("a", 320);
  Leave(large, /*now_ns=*/1000);
  EXPECT_TRUE(Fit(8, Request(32), 1000 + kPatienceNs - 1));
  EXPECT_FALSE(Fit(8, Request(32), 1000 + kPatienceNs));
  EXPECT_FALSE(Fit(8, Request(32, "b"), 1000));
  Leave(AddTarget("c"), 1000);  // it never told its size
  EXPECT_TRUE(Fit(8, Request(32, "c"), 1000));
}

TEST_F(PlacerTest, ACallGoesToAKindThatHoldsAllItsChoices) {
  const uint64_t narrow = AddTarget("a", 32);
  const uint64_t wide = AddTarget("b", 64);
  const uint64_t other_wide = AddTarget("b", 48);
  EXPECT_EQ(placer_.TargetFor(Request(16), {}), narrow);
  EXPECT_EQ(placer_.TargetFor(FirstOf(2, Request(16)), {}), narrow);
  const RequestSpec first = FirstOf(3, Request(16));
  EXPECT_EQ(placer_.TooNarrow(first), WorkerIds({narrow}));
  EXPECT_EQ(placer_.TargetFor(first, {}), wide);
  EXPECT_EQ(placer_.TargetFor(first, {wide}), other_wide);
  // It waits for these: elsewhere the others would.
  EXPECT_EQ(placer_.TargetFor(first, {wide, other_wide}), 0u);
  // What they have now does not count.
  fleet_.Seat(wide, 1, 64, false);
  fleet_.Seat(other_wide, 2, 32, false);
  EXPECT_EQ(placer_.TargetFor(first, {}), other_wide);
  // Each choice needs more: no kind holds three.
  EXPECT_EQ(placer_.TooNarrow(FirstOf(3, Request(48))), WorkerIds({narrow}));
  EXPECT_EQ(placer_.TooNarrow(FirstOf(2, Request(32))), WorkerIds({narrow}));
}

// No kind holds all: the largest leaves the fewest to wait.
TEST_F(PlacerTest, ACallThatNoKindHoldsGoesToTheLargest) {
  const uint64_t small = AddTarget("a", 32);
  const uint64_t large = AddTarget("b", 48);
  const uint64_t as_large = AddTarget("c", 48);
  const RequestSpec first = FirstOf(16, Request(16));
  EXPECT_EQ(placer_.TooNarrow(first), WorkerIds({small}));
  EXPECT_EQ(placer_.TargetFor(first, {}), large);
  EXPECT_EQ(placer_.TargetFor(first, {large}), as_large);
  // One that takes no sessions holds none of them.
  fleet_.SetReady(large, false);
  fleet_.SetReady(as_large, false);
  EXPECT_EQ(placer_.TargetFor(first, {}), small);
}

TEST_F(PlacerTest, OnlyTheFirstChoiceChoosesAKind) {
  AddTarget("a", 32);
  AddTarget("b", 64);
  RequestSpec choice = FirstOf(4, Request(16));
  EXPECT_EQ(Placer::NumToPlace(choice), 4);
  EXPECT_EQ(placer_.TooNarrow(choice).size(), 1u);
  // Where the first one runs the others do.
  choice.call->numerics_id = "a";
  EXPECT_EQ(Placer::NumToPlace(choice), 1);
  EXPECT_EQ(placer_.TooNarrow(choice).size(), 0u);
  // The client has chosen.
  const RequestSpec pinned = FirstOf(4, Request(16, "a"));
  EXPECT_EQ(Placer::NumToPlace(pinned), 1);
  EXPECT_EQ(placer_.TooNarrow(pinned).size(), 0u);
  EXPECT_EQ(Placer::NumToPlace(Request(16)), 1);
}

TEST_F(PlacerTest, ARequestTakesTheKindsThatAreNotTooNarrow) {
  using ::testing::ElementsAre;
  const uint64_t narrow = AddTarget("a", 32);
  const uint64_t wide = AddTarget("b", 64);
  EXPECT_THAT(placer_.KindsFor(Request(16)), ElementsAre(""));
  EXPECT_THAT(placer_.KindsFor(Request(16, "c")), ElementsAre("c"));
  EXPECT_THAT(placer_.KindsFor(FirstOf(2, Request(16))), ElementsAre("a", "b"));
  const RequestSpec call = FirstOf(3, Request(16));
  EXPECT_THAT(placer_.KindsFor(call), ElementsAre("b"));
  // As the fleet is now.
  fleet_.SetReady(wide, false);
  EXPECT_THAT(placer_.KindsFor(call), ElementsAre("a"));
  AddTarget("c", 48);
  EXPECT_THAT(placer_.KindsFor(call), ElementsAre("c"));
  fleet_.Remove(narrow);
  call.call->numerics_id = "b";  // its first choice runs there
  EXPECT_THAT(placer_.KindsFor(call), ElementsAre("b"));
}

TEST_F(PlacerTest, TellsTheLargestNeedThatATargetOfTheKindHolds) {
  const uint64_t a = AddTarget("a", 32);
  const uint64_t b = AddTarget("b", 64);
  const uint64_t other_b = AddTarget("b", 96);
  fleet_.Seat(b, 1, 16, /*follows_load=*/false);
  fleet_.Seat(other_b, 2, 80, /*follows_load=*/false);
  EXPECT_EQ(placer_.MostRoom("", {}), 48);
  EXPECT_EQ(placer_.MostRoom("", {b}), 32);
  EXPECT_EQ(placer_.MostRoom("b", {b}), 16);
  EXPECT_EQ(placer_.MostRoom("c", {}), -1);
  EXPECT_EQ(placer_.MostCapacity("", {}), 96);
  EXPECT_EQ(placer_.MostCapacity("a", {}), 32);
  EXPECT_EQ(placer_.MostCapacity("b", {b, other_b}), -1);
  // One that takes no sessions has no room, and is kept free for later.
  fleet_.SetReady(a, false);
  EXPECT_EQ(placer_.MostRoom("a", {}), -1);
  EXPECT_EQ(placer_.MostCapacity("a", {}), 32);
  AddTarget("d", 0);  // it does not tell
  EXPECT_EQ(placer_.MostRoom("d", {}), KvLedger::kAnyNeed);
  EXPECT_EQ(placer_.MostCapacity("", {}), KvLedger::kAnyNeed);
}

TEST_F(PlacerTest, ATargetThatTellsNoSizeHoldsAnyNumber) {
  const uint64_t narrow = AddTarget("a", 32);
  const uint64_t any = AddTarget("b", 0);
  EXPECT_EQ(placer_.TooNarrow(FirstOf(16, Request(16))), WorkerIds({narrow}));
  EXPECT_EQ(placer_.TargetFor(FirstOf(16, Request(16)), {}), any);
}

TEST_F(PlacerTest, OnlyReadyWorkersOfTheKindWithRoomAreChosen) {
  const auto chosen = [&](const RequestSpec& request,
                          const WorkerIds& except = {}) {
    return placer_.LeastLoaded(WorkerRole::kTarget, request, except);
  };
  EXPECT_EQ(chosen(Request(16)), 0u);
  const uint64_t a = AddTarget("a", 32);
  const uint64_t b = AddTarget("b", 64);
  EXPECT_EQ(chosen(Request(16)), a);
  EXPECT_EQ(chosen(Request(16), {a}), b);
  EXPECT_EQ(chosen(Request(16, "b")), b);
  EXPECT_EQ(chosen(Request(48)), b);
  EXPECT_EQ(chosen(Request(80)), 0u);
  fleet_.SetReady(b, false);
  EXPECT_EQ(chosen(Request(48)), 0u);
  EXPECT_EQ(placer_.LeastLoaded(WorkerRole::kDraft, Request(16), {}), 0u);
  // A draft's numerics are its own.
  const uint64_t draft = Add(Info(WorkerRole::kDraft, "d", 0));
  EXPECT_EQ(placer_.LeastLoaded(WorkerRole::kDraft, Request(16, "a"), {}),
            draft);
}

TEST_F(PlacerTest, ATargetThatIsFullStillCouldTakeWhatFitsIntoAllOfIt) {
  const uint64_t id = AddTarget("a", 32);
  fleet_.Seat(id, 1, 32, false);
  const FleetWorker& worker = fleet_.at(id);
  EXPECT_TRUE(placer_.CouldTake(id, worker, Request(32)));
  EXPECT_FALSE(placer_.CouldTake(id, worker, Request(33)));
  EXPECT_FALSE(placer_.CouldTake(id, worker, Request(32, "b")));
  const uint64_t draft = Add(Info(WorkerRole::kDraft, "a", 0));
  EXPECT_FALSE(placer_.CouldTake(draft, fleet_.at(draft), Request(32)));
}

}  // namespace
}  // namespace nacre::coordinator
