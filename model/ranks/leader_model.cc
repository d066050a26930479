#include "model/ranks/leader_model.h"

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

// A service that only opens and closes sessions keeps no more, and a message of
// commands is small.
constexpr size_t kMostWaiting = 256;
constexpr size_t kMostWaitingTokens = 1 << 15;

std::vector<int32_t> Copied(absl::Span<const int32_t> values) {
  return {values.begin(), values.end()};
}

}  // namespace

class LeaderModel::LedSequence : public Sequence {
 public:
  LedSequence(LeaderModel* model, uint64_t id, std::unique_ptr<Sequence> own)
      : model_(model), id_(id), own_(std::move(own)) {}
  ~LedSequence() override {
    own_.reset();
    model_->Tell(id_, nullptr, FreeCommand());
  }
  LedSequence(const LedSequence&) = delete;
  LedSequence& operator=(const LedSequence&) = delete;

  const LeaderModel* model() const { return model_; }
  uint64_t id() const { return id_; }
  Sequence* own() const { return own_.get(); }

  int length() const override { return own_->length(); }
  void Truncate(int length) override {
    own_->Truncate(length);
    model_->Tell(id_, own_.get(), TruncateCommand{length});
  }
  int num_slots() const override { return own_->num_slots(); }
  absl::Status KeepPath(int length, absl::Span<const int32_t> slots) override {
    NACRE_RETURN_IF_ERROR(own_->KeepPath(length, slots));
    model_->Tell(id_, own_.get(), KeepPathCommand{length, Copied(slots)});
    return absl::OkStatus();
  }
  void Share(absl::Span<const int32_t> token_ids) override {
    own_->Share(token_ids);
    model_->Tell(id_, own_.get(), ShareCommand{Copied(token_ids)},
                 token_ids.size());
  }
  TakenOver TakeOver(absl::Span<const int32_t> token_ids,
                     int most_blocks) override {
    const TakenOver taken = own_->TakeOver(token_ids, most_blocks);
    model_->Tell(id_, own_.get(),
                 TakeOverCommand{Copied(token_ids), most_blocks, taken},
                 token_ids.size());
    return taken;
  }

 private:
  LeaderModel* const model_;
  const uint64_t id_;
  std::unique_ptr<Sequence> own_;
};

LeaderModel::LeaderModel(std::unique_ptr<LanguageModel> ranks,
                         RankCommandSink* followers)
    : ForwardedModel(ranks.get()),
      ranks_(std::move(ranks)),
      followers_(followers) {}

LeaderModel::~LeaderModel() = default;

absl::StatusOr<std::unique_ptr<Sequence>> LeaderModel::NewTreeSequence(
    int max_length, int num_slots, absl::Span<const int32_t> token_ids) {
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<Sequence> own,
      ranks_->NewTreeSequence(max_length, num_slots, token_ids));
  const uint64_t id = ++last_sequence_;
  Tell(id, own.get(),
       NewSequenceCommand{max_length, num_slots, Copied(token_ids)},
       token_ids.size());
  return std::make_unique<LedSequence>(this, id, std::move(own));
}

void LeaderModel::Tell(uint64_t sequence, const Sequence* own,
                       decltype(RankCommand::what) what, size_t tokens) {
  waiting_.push_back({sequence, std::move(what),
                      own == nullptr ? 0 : own->length(),
                      ranks_->kv_free_tokens()});
  // An error comes again with the next step.
  waiting_tokens_ += tokens;
  if (waiting_.size() >= kMostWaiting ||
      waiting_tokens_ >= kMostWaitingTokens) {
    static_cast<void>(Flush());
  }
}

absl::Status LeaderModel::Flush() {
  // No commands would be the end.
  if (failure_.ok() && !waiting_.empty()) {
    failure_ = followers_->SendCommands(waiting_);
  }
  waiting_.clear();
  waiting_tokens_ = 0;
  return failure_;
}

absl::StatusOr<absl::Span<const float>> LeaderModel::Forward(
    absl::Span<const SequenceRows> batch) {
  batch_.assign(batch.begin(), batch.end());
  NACRE_RETURN_IF_ERROR(failure_);
  for (SequenceRows& rows : batch_) {
    const auto* const led = static_cast<const LedSequence*>(rows.sequence);
    NACRE_CHECK(led != nullptr && led->model() == this,
                "the sequence is not of this model");
    rows.sequence = led->own();
    RowsCommand command{Copied(rows.token_ids),
                        rows.num_logits,
                        {rows.nodes.begin(), rows.nodes.end()}};
    command.is_last = &rows == &batch_.back();
    waiting_.push_back({led->id(), std::move(command), led->length(),
                        ranks_->kv_free_tokens()});
  }
  NACRE_RETURN_IF_ERROR(Flush());
  absl::StatusOr<absl::Span<const float>> logits = ranks_->Forward(batch_);
  if (!logits.ok() && !absl::IsInvalidArgument(logits.status())) {
    failure_ = logits.status();
  }
  return logits;
}

}  // namespace nacre::model
