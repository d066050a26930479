#include "model/first_forward.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/logit_row.h"

namespace nacre::model {
namespace {

// A row of a GliDe draft sees the target's rows before it: the first sees none.
constexpr int kMostRows = 3;

// What the target has computed of a text of a few tokens.
class TargetRows {
 public:
  absl::Status Compute(LanguageModel* target) {
    const ModelInfo& info = target->info();
    const int64_t room =
        std::min<int64_t>(info.context_length, info.kv_capacity_tokens);
    token_ids_.assign(
        static_cast<size_t>(std::clamp<int64_t>(room, 1, kMostRows)), 0);
    NACRE_ASSIGN_OR_RETURN(sequence_, target->NewSequence(count()));
    const SequenceRows rows = {sequence_.get(), token_ids_, count()};
    NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                           target->Forward({&rows, 1}));
    is_sound_ = CheckNumbers(logits, info.vocab_size).ok();
    return absl::OkStatus();
  }

  bool is_sound() const { return is_sound_; }
  int count() const { return static_cast<int>(token_ids_.size()); }
  absl::Span<const int32_t> token_ids() const { return token_ids_; }
  const Sequence& sequence() const { return *sequence_; }

 private:
  std::vector<int32_t> token_ids_;
  std::unique_ptr<Sequence> sequence_;
  bool is_sound_ = false;
};

// As FeatureRows::features.
std::vector<float> KeptOf(const LanguageModel& target, size_t num_taps,
                          size_t rows) {
  std::vector<float> features;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t tap = 0; tap < num_taps; ++tap) {
      const absl::Span<const float> kept =
          target.features(static_cast<int>(tap));
      const size_t size = kept.size() / rows;
      const absl::Span<const float> own = kept.subspan(row * size, size);
      features.insert(features.end(), own.begin(), own.end());
    }
  }
  return features;
}

}  // namespace

absl::Status CheckNumbers(absl::Span<const float> logits, int vocab_size) {
  const size_t size = static_cast<size_t>(vocab_size);
  for (size_t row = 0; (row + 1) * size <= logits.size(); ++row) {
    const absl::Span<const float> values = logits.subspan(row * size, size);
    if (IsSoundRow(values.data(), vocab_size)) continue;
    auto bad = std::find_if(values.begin(), values.end(), [](float x) {
      return std::isnan(x) || (std::isinf(x) && x > 0);
    });
    if (bad == values.end()) bad = values.begin();  // all are -inf
    return absl::DataLossError(absl::StrCat(
        "the first forward gave no numbers: row ", row, ", token id ",
        bad - values.begin(), " has the logit ", *bad,
        ": the weights are damaged, or the device computes wrongly"));
  }
  return absl::OkStatus();
}

absl::Status ProbeHeads(LanguageModel* target, FutureHeads* heads) {
  TargetRows rows;
  NACRE_RETURN_IF_ERROR(rows.Compute(target));
  if (!rows.is_sound()) return absl::OkStatus();
  std::vector<float> copy;
  const absl::Span<const float> hidden = target->final_hidden().OnHost(&copy);
  return CheckNumbers(heads->Run(hidden), target->info().vocab_size);
}

absl::Status ProbeDrafter(LanguageModel* target, FeatureDrafter* drafter) {
  TargetRows rows;
  NACRE_RETURN_IF_ERROR(rows.Compute(target));
  if (!rows.is_sound()) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<FeatureSequence> sequence,
                         drafter->NewSequence(rows.count(), 0));
  std::vector<float> features;
  FeatureRows fed;
  fed.sequence = sequence.get();
  fed.token_ids = rows.token_ids();
  fed.num_logits = rows.count();
  if (drafter->feature_size() > 0) {
    features = KeptOf(*target, drafter->taps().size(),
                      static_cast<size_t>(rows.count()));
    fed.features = features;
  } else {
    fed.target = {target->KvTable(rows.sequence()), rows.count()};
  }
  NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                         drafter->Forward({&fed, 1}));
  return CheckNumbers(logits, target->info().vocab_size);
}

absl::Status ProbeSource(LanguageModel* target, FeatureSource* source) {
  TargetRows rows;
  NACRE_RETURN_IF_ERROR(rows.Compute(target));
  if (!rows.is_sound()) return absl::OkStatus();
  std::vector<float> projected;
  source->Project(0, rows.count(), &projected);
  for (size_t i = 0; i < projected.size(); ++i) {
    if (std::isfinite(projected[i])) continue;
    const size_t size = static_cast<size_t>(source->size());
    return absl::DataLossError(absl::StrCat(
        "the first features are no numbers: row ", i / size, ", number ",
        i % size, " is ", projected[i],
        ": the weights are damaged, or the device computes wrongly"));
  }
  return absl::OkStatus();
}

}  // namespace nacre::model
