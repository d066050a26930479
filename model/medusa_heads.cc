#include "model/medusa_heads.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "model/draft_files.h"

namespace nacre::model {
namespace {

constexpr char kFileName[] = "medusa_lm_head";  // without its end

// What config.json says that the tensors do not.
struct Settings {
  float logit_scale = 1;
  // Of vLLM's: one vocabulary for all heads.
  std::optional<bool> shares_vocabulary;
};

absl::StatusOr<Settings> ReadSettings(const std::string& folder) {
  NACRE_ASSIGN_OR_RETURN(const Json config,
                         ReadDraftObject(folder, "config.json"));
  Settings settings;
  NACRE_ASSIGN_OR_RETURN(
      settings.shares_vocabulary,
      OptionalBoolField(config, "original_lm_head",
                        absl::StrCat(folder, "/config.json")));
  const Json* const scale = FindField(config, "logit_scale");
  if (scale == nullptr) return settings;
  if (!scale->is_number() || !(scale->get<float>() > 0) ||
      !std::isfinite(scale->get<float>())) {
    return BadField("logit_scale", *scale, "a number over 0");
  }
  settings.logit_scale = scale->get<float>();
  return settings;
}

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> MedusaHeads::Pack(
    const Checkpoint& checkpoint, const std::string& name,
    const kernels::HostMatrix& matrix) {
  size_bytes_ += static_cast<int64_t>(matrix.rows) * matrix.cols *
                 static_cast<int64_t>(kernels::SizeOf(matrix.dtype));
  auto packed = target_.backend->Pack({&matrix, 1});
  checkpoint.GiveBack();
  if (packed.ok()) return packed;
  return absl::Status(packed.status().code(),
                      absl::StrCat(name, ": ", packed.status().message()));
}

absl::StatusOr<std::unique_ptr<kernels::Buffer>> MedusaHeads::LoadBias(
    const Checkpoint& checkpoint, const std::string& name) {
  NACRE_ASSIGN_OR_RETURN(
      const std::vector<float> values,
      checkpoint.Vector(name, static_cast<int>(hidden_size_)));
  const size_t bytes = values.size() * sizeof(float);
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Buffer> bias,
                         target_.backend->Allocate(bytes));
  target_.backend->CopyFromHost(values.data(), bytes, bias->data());
  return bias;
}

absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>>
MedusaHeads::LoadVocabulary(const Checkpoint& checkpoint,
                            const std::string& name) {
  NACRE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(name));
  const int hidden = static_cast<int>(hidden_size_);
  const int vocab = static_cast<int>(vocab_size_);
  int rows = vocab;
  // A vocabulary that has all tokens needs no map.
  if (!token_map_.empty() && tensor.shape.size() == 2 &&
      tensor.shape[0] == static_cast<int64_t>(token_map_.size())) {
    rows = static_cast<int>(token_map_.size());
  }
  NACRE_ASSIGN_OR_RETURN(const kernels::HostMatrix matrix,
                         checkpoint.Matrix(name, rows, hidden));
  return Pack(checkpoint, name, matrix);
}

absl::StatusOr<MedusaHeads::Head> MedusaHeads::LoadHead(
    const Checkpoint& checkpoint, const MedusaLayout::Head& layout) {
  const int hidden = static_cast<int>(hidden_size_);
  Head head;
  for (const MedusaLayout::Block& names : layout.blocks) {
    NACRE_ASSIGN_OR_RETURN(const kernels::HostMatrix matrix,
                           checkpoint.Matrix(names.weight, hidden, hidden));
    Block& block = head.blocks.emplace_back();
    NACRE_ASSIGN_OR_RETURN(block.weight,
                           Pack(checkpoint, names.weight, matrix));
    if (names.bias.empty()) continue;
    NACRE_ASSIGN_OR_RETURN(block.bias, LoadBias(checkpoint, names.bias));
  }
  if (!layout.vocabulary.empty()) {
    NACRE_ASSIGN_OR_RETURN(head.vocabulary,
                           LoadVocabulary(checkpoint, layout.vocabulary));
  }
  return head;
}

absl::Status MedusaHeads::LoadTensors(const Checkpoint& checkpoint,
                                      const MedusaLayout& layout) {
  if (!layout.token_map.empty()) {
    NACRE_ASSIGN_OR_RETURN(token_map_, checkpoint.Integers(layout.token_map));
    if (token_map_.size() > vocab_size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", layout.token_map, " has ", token_map_.size(),
                       " token ids, the target's vocabulary ", vocab_size_));
    }
    for (const int64_t id : token_map_) {
      if (id >= 0 && id < static_cast<int64_t>(vocab_size_)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", layout.token_map, " has the token id ", id,
                       ", outside the target's vocabulary of ", vocab_size_));
    }
  }
  if (!layout.vocabulary.empty()) {
    NACRE_ASSIGN_OR_RETURN(shared_,
                           LoadVocabulary(checkpoint, layout.vocabulary));
  }
  for (const MedusaLayout::Head& head : layout.heads) {
    NACRE_ASSIGN_OR_RETURN(heads_.emplace_back(), LoadHead(checkpoint, head));
  }
  const char* vocabulary = shared_ != nullptr ? "one vocabulary"
                           : heads_.front().vocabulary != nullptr
                               ? "vocabularies of their own"
                               : "the target's vocabulary";
  description_ =
      absl::StrFormat("%d Medusa heads (%s) of %d blocks with %s, %.1f MB",
                      heads_.size(), layout.kind, heads_.front().blocks.size(),
                      vocabulary, static_cast<double>(size_bytes_) * 1e-6);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MedusaHeads>> MedusaHeads::Load(
    const std::string& path, const LanguageModel& model) {
  const absl::optional<VocabularyHead> target = model.vocabulary_head();
  if (!target.has_value() || model.info().hidden_size == 0) {
    return absl::UnimplementedError(
        "Medusa heads of a model that shows no hidden states");
  }
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                         OpenDraftTensors(path, kFileName));
  std::unique_ptr<MedusaHeads> heads(new MedusaHeads(model.info(), *target));
  const absl::Status status =
      heads->LoadFolder(DraftFolder(path), model, *checkpoint);
  if (status.ok()) return heads;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<DraftNeeds> MedusaHeads::ReadNeeds(const std::string& path,
                                                  const ModelConfig& target) {
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                         OpenDraftTensors(path, kFileName));
  NACRE_ASSIGN_OR_RETURN(const MedusaLayout layout,
                         FindMedusaLayout(checkpoint->Names()));
  // Of MakeRoom: states, gates and their inputs, and logits.
  const auto heads = static_cast<int64_t>(layout.heads.size());
  const int64_t row =
      heads * (int64_t{target.hidden_size} + target.vocab_size) +
      4 * int64_t{target.hidden_size};
  return DraftNeeds{MostWeightBytes(*checkpoint) +
                        (kMaxRows + 1) * row * int64_t{sizeof(float)},
                    0};
}

absl::Status MedusaHeads::LoadFolder(const std::string& folder,
                                     const LanguageModel& model,
                                     const Checkpoint& checkpoint) {
  NACRE_RETURN_IF_ERROR(CheckDraftFingerprint(folder, model.info()));
  NACRE_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(folder));
  NACRE_ASSIGN_OR_RETURN(const MedusaLayout layout,
                         FindMedusaLayout(checkpoint.Names()));
  if (!settings.shares_vocabulary.value_or(true) &&
      !layout.vocabulary.empty() && layout.heads.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", layout.vocabulary,
        " is the only vocabulary, but \"original_lm_head\" is false: the "
        "vocabulary of head 1 is missing"));
  }
  logit_scale_ = settings.logit_scale;
  NACRE_RETURN_IF_ERROR(LoadTensors(checkpoint, layout));
  return MakeRoom();
}

void MedusaHeads::RunBlocks(const Head& head, int rows, float* x) {
  kernels::Backend* const backend = target_.backend;
  const int hidden = static_cast<int>(hidden_size_);
  for (const Block& block : head.blocks) {
    backend->MatMul(x, rows, *block.weight, gates_.data());
    if (block.bias != nullptr) {
      backend->AddBias(gates_.data(), rows, hidden, block.bias->f32());
    }
    // x += silu(gates), of which the backend has the product with another.
    backend->GatherRows(
        gates_.data(),
        absl::MakeConstSpan(beside_ones_).first(2 * static_cast<size_t>(rows)),
        hidden, inputs_.data());
    backend->SiluMul(inputs_.data(), rows, hidden, gated_.data());
    backend->AddInPlace(x, gated_.data(),
                        static_cast<size_t>(rows) * hidden_size_);
  }
}

void MedusaHeads::RunVocabulary(const kernels::PackedMatrix& vocabulary,
                                const float* x, int rows, size_t first) {
  const Said said = {first, static_cast<size_t>(rows),
                     static_cast<size_t>(vocabulary.rows())};
  const size_t count = said.rows * said.width;
  float* const values = values_.data() + first;
  target_.backend->MatMul(x, rows, vocabulary, values);
  if (&vocabulary == target_.weights && target_.soft_cap > 0) {
    target_.backend->SoftCap(values, count, target_.soft_cap);
  }
  if (logit_scale_ != 1) target_.backend->Scale(values, count, logit_scale_);
  brought_.Bring(values, count, first);
  said_.push_back(said);
}

absl::Status MedusaHeads::MakeRoom() {
  const size_t all = heads_.size() * kMaxRows;
  NACRE_RETURN_IF_ERROR(states_.Reserve(all * hidden_size_));
  NACRE_RETURN_IF_ERROR(gates_.Reserve((kMaxRows + 1) * hidden_size_));
  NACRE_RETURN_IF_ERROR(inputs_.Reserve(2 * hidden_size_ * kMaxRows));
  NACRE_RETURN_IF_ERROR(gated_.Reserve(kMaxRows * hidden_size_));
  NACRE_RETURN_IF_ERROR(values_.Reserve(all * vocab_size_));
  NACRE_RETURN_IF_ERROR(brought_.Reserve(all * vocab_size_));
  gates_.Send(std::vector<float>(hidden_size_, 1), kMaxRows * hidden_size_);
  for (int row = 0; row < kMaxRows; ++row) {
    beside_ones_.insert(beside_ones_.end(), {row, kMaxRows});
  }
  return target_.backend->Synchronize();
}

void MedusaHeads::RunAll(absl::Span<const float> hidden) {
  const size_t rows = hidden.size() / hidden_size_;
  const int num_rows = static_cast<int>(rows);
  for (size_t k = 0; k < heads_.size(); ++k) {
    states_.Send(hidden, k * hidden.size());
  }
  said_.clear();
  for (size_t k = 0; k < heads_.size(); ++k) {
    float* const x = states_.data() + k * hidden.size();
    RunBlocks(heads_[k], num_rows, x);
    if (heads_[k].vocabulary != nullptr) {
      RunVocabulary(*heads_[k].vocabulary, x, num_rows, k * rows * vocab_size_);
    }
  }
  // A vocabulary that they share is read once.
  if (heads_.front().vocabulary == nullptr) {
    RunVocabulary(shared_ != nullptr ? *shared_ : *target_.weights,
                  states_.data(), static_cast<int>(heads_.size() * rows), 0);
  }
}

absl::Span<const float> MedusaHeads::MapLogits(size_t rows) {
  const size_t count = heads_.size() * rows * vocab_size_;
  if (token_map_.empty()) return brought_.Get(0, count);
  logits_.assign(count, -std::numeric_limits<float>::infinity());
  for (const Said& said : said_) {
    const absl::Span<const float> values =
        brought_.Get(said.first, said.rows * said.width);
    const bool is_mapped = said.width != vocab_size_;
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t token = i % said.width;
      const size_t id =
          is_mapped ? static_cast<size_t>(token_map_[token]) : token;
      logits_[said.first + i / said.width * vocab_size_ + id] = values[i];
    }
  }
  return logits_;
}

absl::Span<const float> MedusaHeads::Run(absl::Span<const float> hidden) {
  const size_t rows = hidden.size() / hidden_size_;
  NACRE_CHECK(
      rows >= 1 && rows <= kMaxRows && hidden.size() == rows * hidden_size_,
      "hidden states of 1 to kMaxRows rows");
  RunAll(hidden);
  // What a device fails with comes again with the model's next step. Until then
  // the values are anything, as guesses may be.
  target_.backend->Synchronize().IgnoreError();
  return MapLogits(rows);
}

}  // namespace nacre::model
