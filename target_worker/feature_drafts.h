// Hands the target's features (model/feature_drafter.h) to a draft that
// continues them. Grows trees of what it says: of all rows that became text, in
// their order, once. Rows of prompts are fed as they come; those of steps wait
// until the session looks, or until it has many.
//
// Where a session's features are not there, because it took a beginning over
// from the prefix cache, its draft begins after them. It sees less, and is as
// right as its features let it be. Keys and values are always there: a draft
// over them sees the whole text.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_FEATURE_DRAFTS_H_
#define TARGET_WORKER_FEATURE_DRAFTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/feature_drafter.h"
#include "model/language_model.h"
#include "speculation/estimators.h"
#include "speculation/grown_draft.h"
#include "speculation/ranks.h"
#include "target_worker/look_turns.h"
#include "target_worker/step.h"
#include "target_worker/target_messages.h"
#include "target_worker/text_rows.h"
#include "worker/engine/clock.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

// What a session keeps.
struct FeatureDraft {
  explicit FeatureDraft(speculation::HeadCalibrations* calibrations)
      : tree(calibrations) {}

  // The position of the next row that is fed.
  int fed_position() const { return first_position + sequence->length(); }
  // The position of the next features that it can use.
  int next_position() const { return fed_position() + num_pending; }
  // Of a long text that was there at the start the rest is fed before it looks.
  bool IsReady() const;
  // What it has seen does not end where this position begins.
  void Restart(int position);
  // It forgets all but the last row that is pending.
  void KeepLast();
  // Gives back what `pending` has room for, where that is more than `most`.
  void Shrink(size_t most);

  speculation::GrownDraft tree;
  std::unique_ptr<model::FeatureSequence> sequence;
  int given_length = 0;    // of the text that the session was opened with
  int first_position = 0;  // of the sequence's first row
  int num_pending = 0;     // rows past the sequence that are not fed
  std::vector<float> pending;
  std::vector<int32_t> slots;  // of the tree's nodes; kNoSlot: not expanded
};

class FeatureDrafts {
 public:
  // All outlive it. The model keeps the drafter's taps.
  struct Parts {
    model::LanguageModel* model = nullptr;
    model::FeatureDrafter* drafter = nullptr;  // null: no session has any
    worker::Clock now_ns;
  };
  explicit FeatureDrafts(Parts parts);

  // Of a session that was opened so: whether it drafts from features.
  void Open(EngineSession& session, const OpenTarget& open);

  // Call it after the verdicts of a step, which took so long, and before the
  // model's next forward. Takes the step's features, and grows trees after the
  // text of the sessions that will want some. They pay for the time.
  void Look(const Step& step, double row_price, int64_t step_ns);
  // The session is being closed: what its looks have earned serves others.
  void Close(EngineSession& session);

  // Nodes of a session that one call expands.
  static constexpr int kRows = 4;
  static constexpr int kMaxDepth = 8;
  // Rows of steps that wait to be fed.
  static constexpr int kMostPending = 64;
  // Rows of a text that was there at the start, which one look feeds.
  static constexpr int kMostGiven = speculation::StepTimeCurve::kMaxRows;

 private:
  // Of the tree that its draft grows: a chain where the session has fewer slots
  // than a level has nodes.
  static speculation::SuffixLimits LimitsOf(const EngineSession& session);
  // Takes the features of a session's rows, the first of which is `row` of the
  // step.
  void Take(EngineSession& session, size_t row);
  // Of a draft over keys and values: counts what it may be fed.
  static void CountPending(EngineSession& session);
  // Whether it is fed what the session was opened with, which is not paid for.
  bool IsGiven(const EngineSession& session) const;
  // The last of a session's pending rows waits for the next look.
  void FeedPending(const Step& step, double ns_price);
  void Feed(absl::Span<EngineSession* const> sessions);
  // How many of the first sessions one call feeds: as much as feed_times_ can
  // tell apart, but at least one session.
  size_t NumFedTogether(absl::Span<EngineSession* const> sessions) const;
  // How many of a session's pending rows a feed leaves.
  int LeftByFeed(const EngineSession& session) const;
  // The pending rows of a session but the last `left`.
  model::FeatureRows PendingRows(const EngineSession& session, int left) const;
  // What rows of a session see.
  void AddTarget(const EngineSession& session, model::FeatureRows* rows) const;
  void DropPending(EngineSession& session, int left);

  void Grow(absl::Span<EngineSession* const> sessions, double ns_price);
  // The root of each tree. False: the drafter has no room.
  bool GrowRoots(absl::Span<EngineSession* const> sessions);
  // A level more of the trees that it pays for; false: of none.
  bool GrowLevel(absl::Span<EngineSession* const> sessions, double ns_price);
  // Of the session's next nodes the rows in nodes_ and token_ids_.
  void AddNodes(EngineSession& session, absl::Span<const int> next);
  void Expand(EngineSession& session, int node, absl::Span<const float> logits);
  // They draft no more: something is wrong with the drafter.
  void GiveUp(absl::Span<EngineSession* const> sessions,
              const absl::Status& status);
  // The first time that something is wrong.
  void LogOnce(const absl::Status& status);

  const Parts parts_;
  const bool reads_kv_;  // the drafter, and not features
  std::array<speculation::HeadCalibrations, speculation::kTemperatureKinds>
      calibrations_;
  LookTurns turns_;
  speculation::StepTimeCurve feed_times_;   // by rows
  speculation::StepTimeCurve level_times_;  // by sessions
  bool has_logged_ = false;
  // Of the call being made.
  std::vector<TextRow> text_rows_;  // of one session
  std::vector<EngineSession*> sessions_;
  std::vector<model::FeatureRows> batch_;
  std::vector<std::vector<int>> next_;  // nodes of each session
  std::vector<std::vector<model::TreeNode>> nodes_;
  std::vector<std::vector<int32_t>> token_ids_;
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_FEATURE_DRAFTS_H_
