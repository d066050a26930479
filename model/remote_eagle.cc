#include "model/remote_eagle.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/status_macros.h"
#include "model/checkpoint.h"
#include "model/draft_files.h"
#include "model/eagle_folder.h"
#include "model/eagle_sequence.h"
#include "model/feature_step.h"
#include "model/kv_budget.h"
#include "model/memory_needs.h"

namespace nacre::model {
namespace {

// The order of operations decides bits, as a transformer's.
constexpr char kVersion[] = "eagle-v1";

int NumTextRows(const SequenceRows& rows) {
  return static_cast<int>(rows.token_ids.size() - rows.nodes.size());
}

// Of the target what its config says. Its fingerprint, which is of all its
// weights, stays unknown.
absl::StatusOr<ModelInfo> TargetInfo(const std::string& dir,
                                     const ModelConfig& config) {
  ModelInfo info;
  NACRE_ASSIGN_OR_RETURN(const std::string text, ReadConfigText(dir));
  NACRE_ASSIGN_OR_RETURN(info.num_layers,
                         OriginalLayers(text, config.num_hidden_layers));
  info.vocab_size = config.vocab_size;
  info.hidden_size = config.hidden_size;
  info.context_length = config.max_position_embeddings;
  info.eos_token_ids = config.eos_token_ids;
  return info;
}

KvPool::Shape KvShapeOf(const OpenedEagle& opened, kernels::DType kv_type) {
  const ModelConfig& llama = opened.config.llama;
  return {1, llama.num_key_value_heads, llama.head_dim, kv_type};
}

WantedTables Lacking(const EagleLayout& layout) {
  return {!layout.Has("embed_tokens.weight"), !layout.Has("lm_head.weight")};
}

// Of its KV cache; on a device before its weights are there.
absl::StatusOr<int64_t> CapacityTokens(const OpenedEagle& opened,
                                       kernels::Backend* backend,
                                       const ModelOptions& options) {
  const int64_t per_token =
      KvPool::BytesPerToken(KvShapeOf(opened, backend->kv_type()));
  const absl::optional<kernels::DeviceMemory> memory = backend->Memory();
  if (!memory.has_value() || !options.kv_budget.has_value()) {
    return options.kv_cache_bytes / per_token;
  }
  KvBudget budget = *options.kv_budget;
  budget.draft.bytes = MostWeightBytes(*opened.checkpoint);
  NACRE_ASSIGN_OR_RETURN(
      const int64_t bytes,
      KvBytes(opened.config.llama, *memory, budget, per_token));
  return bytes / per_token;
}

absl::Status Admit(const OpenedEagle& opened, const Checkpoint& target,
                   ModelConfig config, kernels::Backend* backend,
                   const ModelOptions& options) {
  if (!options.admit || backend->Memory().has_value()) return absl::OkStatus();
  config.num_hidden_layers = 0;  // its tables alone
  MemoryNeeds needs = MemoryNeeds::Of(target, config, *backend);
  if (!Lacking(opened.layout).embedding) needs.tables = 0;
  if (!Lacking(opened.layout).head) needs.weights = needs.may_be_saved = 0;
  for (const std::string& name : opened.checkpoint->Names()) {
    needs.weights += opened.checkpoint->StoredBytes(name);
  }
  needs.kv_cache = options.kv_cache_bytes;
  // What its rows are given and give besides, and logits of the target's
  // tokens.
  const int64_t row =
      6 * int64_t{opened.config.llama.hidden_size} + config.vocab_size;
  needs.scratch = ScratchBytes(opened.config.llama, options.step_rows) +
                  options.step_rows * row * int64_t{sizeof(float)};
  return options.admit(needs);
}

}  // namespace

// Features that came, of positions first()..length()-1.
class RemoteEagle::Features final : public TargetSequence {
 public:
  Features(size_t size, int max_length)
      : size_(size), max_length_(max_length) {}

  int first() const { return first_; }
  int length() const override {
    return begin_ + static_cast<int>(values_.size() / size_);
  }
  bool empty() const override { return length() == first_; }

  void Append(absl::Span<const float> rows) override {
    const int count =
        std::min(static_cast<int>(rows.size() / size_), max_length_ - length());
    values_.insert(values_.end(), rows.begin(),
                   rows.begin() + static_cast<ptrdiff_t>(
                                      static_cast<size_t>(count) * size_));
  }
  bool SkipTo(int position) override {
    if (!empty() || position < first_ || position > max_length_) {
      return position == length();
    }
    first_ = begin_ = position;
    return true;
  }

  // Of positions that were not forgotten.
  absl::Span<const float> At(int position, int count) const {
    return absl::MakeConstSpan(values_).subspan(
        static_cast<size_t>(position - begin_) * size_,
        static_cast<size_t>(count) * size_);
  }
  // What is below `position` is not read any more.
  void Forget(int position) {
    const int count = std::min(position, length()) - begin_;
    if (count < kMostForgotten) return;
    values_.erase(values_.begin(),
                  values_.begin() + static_cast<ptrdiff_t>(
                                        static_cast<size_t>(count) * size_));
    begin_ += count;
  }

 private:
  static constexpr int kMostForgotten = 16;  // rows that stay for a while

  const size_t size_;
  const int max_length_;
  int first_ = 0;
  int begin_ = 0;  // of values_
  std::vector<float> values_;
};

// A row of its EagleSequence stands for each token after first_.
class RemoteEagle::Text final : public Sequence {
 public:
  explicit Text(std::unique_ptr<FeatureSequence> rows)
      : rows_(std::move(rows)),
        slot_tokens_(static_cast<size_t>(this->rows()->kv()->num_slots())) {}

  EagleSequence* rows() const {
    return static_cast<EagleSequence*>(rows_.get());
  }
  int length() const override { return static_cast<int>(tokens_.size()); }
  int num_slots() const override { return rows()->kv()->num_slots(); }
  const std::vector<int32_t>& tokens() const { return tokens_; }

  // The first token without a row.
  int first() const { return first_; }
  // Of those before it that have rows, all stand beside features.
  int known() const { return known_; }
  // Rows of a text of so many tokens.
  int RowsOf(int length) const { return std::max(0, length - 1 - first_); }

  // Of a text that is to have `end` tokens, where it has no rows yet: they
  // begin with the features that there are.
  void StartAt(const Features& features, int end) {
    if (rows()->length() > 0) return;
    if (features.empty()) {
      first_ = std::max(0, end - 1);
    } else if (features.length() + 1 >= length()) {
      first_ = features.first();
    } else {
      first_ = std::max(features.first(), length() - 1);
    }
  }
  void Append(absl::Span<const int32_t> token_ids, int known_end) {
    tokens_.insert(tokens_.end(), token_ids.begin(), token_ids.end());
    known_ = std::max(known_, std::min(known_end, length()));
  }
  void FillSlot(int32_t slot, int32_t token_id) {
    slot_tokens_[static_cast<size_t>(slot)] = token_id;
  }

  void Truncate(int length) override {
    if (length > this->length()) return;
    tokens_.resize(static_cast<size_t>(std::max(0, length)));
    known_ = std::min(known_, this->length());
    rows()->Truncate(RowsOf(length));
  }
  absl::Status KeepPath(int length, absl::Span<const int32_t> slots) override {
    if (this->length() > length) return absl::OkStatus();
    if (this->length() < length) {
      return absl::InvalidArgumentError(
          absl::StrCat("a path after position ", length - 1,
                       " of a sequence of ", this->length(), " tokens"));
    }
    NACRE_RETURN_IF_ERROR(rows()->KeepPath(RowsOf(length), slots));
    for (const int32_t slot : slots) {
      tokens_.push_back(slot_tokens_[static_cast<size_t>(slot)]);
    }
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<FeatureSequence> rows_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> slot_tokens_;
  int first_ = 0;
  int known_ = 0;
};

absl::StatusOr<KvPool::Shape> RemoteEagle::ReadKvShape(
    const std::string& path, const std::string& target_dir,
    kernels::DType kv_type) {
  NACRE_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(target_dir));
  NACRE_ASSIGN_OR_RETURN(const ModelInfo target,
                         TargetInfo(target_dir, config));
  NACRE_ASSIGN_OR_RETURN(const OpenedEagle opened, OpenEagle(path, target));
  return KvShapeOf(opened, kv_type);
}

absl::StatusOr<DraftNeeds> RemoteEagle::ReadNeeds(const std::string& path,
                                                  const std::string& target_dir,
                                                  kernels::DType kv_type,
                                                  int step_rows) {
  NACRE_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(target_dir));
  NACRE_ASSIGN_OR_RETURN(const ModelInfo target,
                         TargetInfo(target_dir, config));
  NACRE_ASSIGN_OR_RETURN(const OpenedEagle opened, OpenEagle(path, target));
  return DraftNeeds{MostWeightBytes(*opened.checkpoint) +
                        ScratchBytes(opened.config.llama, step_rows),
                    KvPool::BytesPerToken(KvShapeOf(opened, kv_type))};
}

absl::StatusOr<std::unique_ptr<RemoteEagle>> RemoteEagle::Load(
    const std::string& path, const std::string& target_dir,
    kernels::Backend* backend, const ModelOptions& options) {
  NACRE_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(target_dir));
  std::unique_ptr<RemoteEagle> model(new RemoteEagle(backend));
  NACRE_ASSIGN_OR_RETURN(model->info_, TargetInfo(target_dir, config));
  NACRE_ASSIGN_OR_RETURN(const OpenedEagle opened,
                         OpenEagle(path, model->info_));
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> target,
                         Checkpoint::Open(target_dir));
  NACRE_RETURN_IF_ERROR(Admit(opened, *target, config, backend, options));
  NACRE_ASSIGN_OR_RETURN(
      model->tables_,
      LoadVocabulary(*target, config, Lacking(opened.layout), backend));
  ModelInfo& info = model->info_;
  NACRE_ASSIGN_OR_RETURN(info.kv_capacity_tokens,
                         CapacityTokens(opened, backend, options));
  const Weights& tables = model->tables_;
  const VocabularyHead head = {
      backend, tables.head.get(), static_cast<float>(config.soft_caps.final),
      tables.embedding_scale == 1 ? tables.embedding.get() : nullptr};
  NACRE_ASSIGN_OR_RETURN(
      model->eagle_, EagleModel::LoadWithoutTarget(path, opened, info, head));
  model->max_lag_ = opened.max_lag;
  model->shape_.num_features = model->eagle_->hidden_size();
  NACRE_ASSIGN_OR_RETURN(info.fingerprint,
                         EagleFingerprint(path, *opened.checkpoint));
  NACRE_ASSIGN_OR_RETURN(info.target_fingerprint,
                         DraftTargetFingerprint(DraftFolder(path), ""));
  info.numerics_id = absl::StrCat(backend->numerics_id(), "-", kVersion);
  info.description =
      absl::StrCat(model->eagle_->description(), ", KV cache for ",
                   info.kv_capacity_tokens, " tokens");
  // No hidden states of its own are read, and it has no taps.
  info.hidden_size = info.num_layers = 0;
  return model;
}

absl::StatusOr<std::unique_ptr<Sequence>> RemoteEagle::NewTreeSequence(
    int max_length, int num_slots, absl::Span<const int32_t>) {
  NACRE_RETURN_IF_ERROR(
      CheckSequence(max_length, num_slots, info_.context_length));
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<FeatureSequence> rows,
                         eagle_->NewSequence(max_length, num_slots));
  return std::make_unique<Text>(std::move(rows));
}

absl::StatusOr<std::unique_ptr<TargetSequence>> RemoteEagle::NewTargetSequence(
    int max_length) {
  return std::make_unique<Features>(static_cast<size_t>(shape_.num_features),
                                    max_length);
}

absl::Status RemoteEagle::CheckRows(const SequenceRows& rows,
                                    std::vector<TreeNode>* nodes) const {
  for (const int32_t id : rows.token_ids) {
    if (id >= 0 && id < info_.vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "token id ", id, " is outside the vocabulary of ", info_.vocab_size));
  }
  const Text& text = static_cast<const Text&>(*rows.sequence);
  nodes->assign(rows.nodes.begin(), rows.nodes.end());
  for (TreeNode& node : *nodes) {
    if (node.position >= info_.context_length) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a node at position ", node.position,
          " is outside the model's context of ", info_.context_length));
    }
    node.position -= 1 + text.first();
  }
  return text.rows()->kv()->CheckNodes(
      *nodes, text.RowsOf(text.length() + NumTextRows(rows)));
}

void RemoteEagle::PlanRows(const SequenceRows& rows,
                           absl::Span<const TreeNode> nodes) {
  const Text& text = static_cast<const Text&>(*rows.sequence);
  const auto* const features = static_cast<const Features*>(rows.target);
  const int length = text.length();
  const int end = length + NumTextRows(rows);
  Part& part = parts_.emplace_back();
  if (features != nullptr && !features->empty() &&
      features->first() <= text.first()) {
    part.known_end = std::min(end, features->length() + 1);
  }
  // Of tokens from `begin` on, the first ones of which are known.
  const auto add = [&](int begin, absl::Span<const int32_t> token_ids,
                       int num_text) -> FeatureRows& {
    FeatureRows& added = rows_.emplace_back();
    added.sequence = text.rows();
    added.token_ids = token_ids;
    added.first_row = text.RowsOf(begin + 1) - 1;
    const int known = std::clamp(part.known_end - begin, 0, num_text);
    if (known > 0) added.features = features->At(begin - 1, known);
    return added;
  };
  const int again = std::max(text.known(), text.first() + 1);
  if (const int count = std::min(length, part.known_end) - again; count > 0) {
    FeatureRows& added = add(
        again,
        absl::MakeConstSpan(text.tokens())
            .subspan(static_cast<size_t>(again), static_cast<size_t>(count)),
        count);
    // What comes after the last row of the text builds on that.
    part.num_again = added.num_logits =
        again + count == length && end == length ? 1 : 0;
  }
  const int begin = std::max(length, text.first() + 1);
  const int num_text = std::max(0, end - begin);
  const int num_nodes = static_cast<int>(nodes.size());
  const int num_rows = num_text + num_nodes;
  const int asked = std::min(rows.num_logits, num_rows);
  part.num_silent = rows.num_logits - asked;
  part.num_asked = asked;
  if (num_rows == 0) return;
  FeatureRows& added =
      add(begin, rows.token_ids.last(static_cast<size_t>(num_rows)), num_text);
  added.nodes = nodes;
  added.num_logits = std::max(asked, num_text > 0 ? num_nodes + 1 : 0);
  part.num_unasked = added.num_logits - asked;
}

absl::Span<const float> RemoteEagle::Pick(absl::Span<const float> logits) {
  const size_t vocab_size = static_cast<size_t>(info_.vocab_size);
  const auto of = [&](int rows) {
    return static_cast<size_t>(rows) * vocab_size;
  };
  logits_.clear();
  for (const Part& part : parts_) {
    logits_.resize(logits_.size() + of(part.num_silent));
    logits.remove_prefix(of(part.num_again + part.num_unasked));
    const auto asked = logits.first(of(part.num_asked));
    logits_.insert(logits_.end(), asked.begin(), asked.end());
    logits.remove_prefix(asked.size());
  }
  return logits_;
}

absl::StatusOr<absl::Span<const float>> RemoteEagle::Forward(
    absl::Span<const SequenceRows> batch) {
  rows_.clear();
  parts_.clear();
  nodes_.resize(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    auto& text = static_cast<Text&>(*batch[i].sequence);
    if (batch[i].target != nullptr) {
      text.StartAt(static_cast<const Features&>(*batch[i].target),
                   text.length() + NumTextRows(batch[i]));
    }
    NACRE_RETURN_IF_ERROR(CheckRows(batch[i], &nodes_[i]));
  }
  for (size_t i = 0; i < batch.size(); ++i) PlanRows(batch[i], nodes_[i]);
  absl::Span<const float> logits;
  if (!rows_.empty()) {
    NACRE_ASSIGN_OR_RETURN(logits, eagle_->Forward(rows_));
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    const SequenceRows& rows = batch[i];
    auto& text = static_cast<Text&>(*rows.sequence);
    const size_t num_text = static_cast<size_t>(NumTextRows(rows));
    text.Append(rows.token_ids.first(num_text), parts_[i].known_end);
    for (size_t node = 0; node < rows.nodes.size(); ++node) {
      text.FillSlot(rows.nodes[node].slot, rows.token_ids[num_text + node]);
    }
    if (rows.target != nullptr) {
      // The last known token may be a guess, and another one take its place.
      static_cast<Features*>(rows.target)->Forget(text.known() - 2);
    }
  }
  return Pick(logits);
}

}  // namespace nacre::model
