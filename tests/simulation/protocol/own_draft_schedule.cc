#include "tests/simulation/protocol/own_draft_schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "speculation/token_tree.h"
#include "target_worker/feature_drafts.h"

namespace nacre::protocol {
namespace {

using target_worker::FeatureDrafts;

bool HasLongText(uint64_t seed) {
  return simulation::MixBits(seed * 16 + 9) % 25 == 0;
}

void DrawDrafter(Schedule* schedule) {
  Random random(schedule->seed * 0x8EBC6AF09C88C6E3 + 67);
  const bool has_none = random.Percent(30);
  if (HasLongText(schedule->seed)) {
    schedule->heads.reset();
  } else if (schedule->heads.has_value() || has_none) {
    return;
  }
  OwnDrafter& drafter = schedule->drafter.emplace();
  drafter.reads_kv = random.Percent(50);
  drafter.kind = static_cast<DraftKind>(random.Below(kNumDraftKinds));
  drafter.max_depth = 1 + random.Below(6);
  if (random.Percent(15)) drafter.percent_full = 1 + random.Below(20);
  if (random.Percent(10)) drafter.fails_at = 1 + random.Below(60);
}

}  // namespace

void DrawOwnDrafts(Schedule* schedule) {
  Random random(schedule->seed * 0xD6E8FEB86659FD93 + 61);
  if (random.Percent(25)) {
    schedule->heads = static_cast<DraftKind>(random.Below(kNumDraftKinds));
  }
  DrawDrafter(schedule);
  const bool has_own =
      schedule->heads.has_value() || schedule->drafter.has_value();
  const uint64_t bits = simulation::MixBits(schedule->seed * 32 + 11);
  if (has_own && bits % 3 < 2) {
    // A slot for each node, or for few of them. Without slots they are chains.
    constexpr int kAll = speculation::TokenTree::kMaxLocal;
    schedule->tree_rows =
        bits % 3 == 0 ? kAll : 1 + static_cast<int>(bits / 3 % (kAll - 1));
    schedule->draft_rows = std::max(schedule->draft_rows, 4);
  }
  Random look(schedule->seed * 0x589965CC75374CC3 + 71);
  schedule->look_percent = HasLongText(schedule->seed)
                               ? look.OneOf({0, 20, 100, 300})
                               : look.OneOf({0, 0, 1, 5, 20, 100});
}

void DrawLongText(uint64_t seed, RequestOptions* request) {
  if (!HasLongText(seed)) return;
  Random random(seed * 0x1D8E4E27C47D124F + 73);
  coordinator::RequestSpec& spec = request->spec;
  spec.method = speculation::Method::kAsync;
  if (!spec.suffixes.has_value()) spec.suffixes.emplace();
  const bool has_parts = random.Percent(25);
  const int prompt_length =
      has_parts            ? FeatureDrafts::kMostGiven + random.Below(200)
      : random.Percent(50) ? FeatureDrafts::kMostPending + random.Below(100)
                           : static_cast<int>(spec.prompt_ids.size());
  if (prompt_length >= FeatureDrafts::kMostPending) spec.prompt_ids.clear();
  while (static_cast<int>(spec.prompt_ids.size()) < prompt_length) {
    spec.prompt_ids.push_back(random.Below(kVocabSize));
  }
  spec.max_tokens = FeatureDrafts::kMostPending + random.Below(100);
  spec.min_tokens = 0;
  spec.ignore_eos = true;
  spec.stop_token_ids.clear();
  spec.stop.clear();
  request->cancel_ns = request->deadline_ns = -1;
}

std::string DescribeOwnDrafts(const Schedule& schedule) {
  std::string text;
  if (schedule.heads.has_value()) text = ", heads";
  if (schedule.drafter.has_value()) {
    const OwnDrafter& drafter = *schedule.drafter;
    text = absl::StrCat(
        ", targets' drafts of kind ", static_cast<int>(drafter.kind), " over ",
        drafter.reads_kv ? "keys and values" : "features", ", ",
        drafter.max_depth, " deep, full in ", drafter.percent_full,
        " %, failing in call ", drafter.fails_at);
  }
  if (!text.empty()) {
    absl::StrAppend(&text, ", looks of ", schedule.look_percent, " %");
  }
  return text;
}

}  // namespace nacre::protocol
