#include "worker/engine/step_tap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Notes in `calls` what it is told.
class NotingTap : public StepTap {
 public:
  NotingTap(std::string name, Rows hidden, bool logits,
            std::vector<std::string>* calls)
      : name_(std::move(name)),
        hidden_(hidden),
        logits_(logits),
        calls_(calls) {}

  Rows ReadsHidden(const TapSession&) const override { return hidden_; }
  bool ReadsLogits() const override { return logits_; }
  void OnRows(const TapSession&, const TapRows& rows) override {
    calls_->push_back(absl::StrCat(name_, " rows ", rows.token_ids.size()));
  }
  void OnVerdict(const TapSession&, int accepted, bool rejected) override {
    calls_->push_back(absl::StrCat(name_, " verdict ", accepted, rejected));
  }
  void OnClosed(const TapSession&) override {
    calls_->push_back(absl::StrCat(name_, " closed"));
  }

 private:
  const std::string name_;
  const Rows hidden_;
  const bool logits_;
  std::vector<std::string>* const calls_;
};

TEST(StepTapsTest, ReadWhatAnyReadsAndShowItToThoseThatReadAnything) {
  using Rows = StepTap::Rows;
  const std::string request_id = "r";
  const TapSession session{.key = {1, 2}, .request_id = request_id};
  std::vector<std::string> calls;
  StepTaps taps;
  EXPECT_TRUE(taps.empty());
  EXPECT_EQ(taps.ReadsHidden(session), Rows::kNone);
  EXPECT_FALSE(taps.ReadsLogits());
  taps.Add(nullptr);
  EXPECT_TRUE(taps.empty());
  taps.Add(std::make_unique<NotingTap>("none", Rows::kNone, false, &calls));
  EXPECT_EQ(taps.ReadsHidden(session), Rows::kNone);
  taps.Add(std::make_unique<NotingTap>("last", Rows::kLast, false, &calls));
  EXPECT_EQ(taps.ReadsHidden(session), Rows::kLast);
  taps.Add(std::make_unique<NotingTap>("all", Rows::kAll, false, &calls));
  EXPECT_EQ(taps.ReadsHidden(session), Rows::kAll);
  EXPECT_FALSE(taps.ReadsLogits());
  taps.Add(std::make_unique<NotingTap>("logits", Rows::kNone, true, &calls));
  EXPECT_TRUE(taps.ReadsLogits());

  const std::vector<int32_t> tokens = {4, 5};
  TapRows rows;
  rows.token_ids = tokens;
  taps.OnRows(session, rows);
  EXPECT_THAT(calls, ElementsAre("last rows 2", "all rows 2", "logits rows 2"));
  calls.clear();
  taps.OnVerdict(session, 3, true);
  EXPECT_THAT(calls, ElementsAre("none verdict 31", "last verdict 31",
                                 "all verdict 31", "logits verdict 31"));
  calls.clear();
  taps.OnClosed(session);
  EXPECT_EQ(calls.size(), 4u);
}

}  // namespace
}  // namespace nacre::worker
