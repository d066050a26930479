#include "model/target_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "model/config_cross.h"

namespace nacre::model {
namespace {

TargetRowShape ShapeOf(const ModelConfig& config) {
  TargetRowShape shape;
  shape.num_layers = config.num_hidden_layers;
  shape.num_key_value_heads = config.cross->num_key_value_heads;
  shape.head_dim = config.cross->head_dim;
  return shape;
}

KvPool::Shape PoolShape(const ModelConfig& config,
                        const kernels::Backend& backend) {
  const TargetRowShape shape = ShapeOf(config);
  return {shape.num_layers, shape.num_key_value_heads, shape.head_dim,
          backend.kv_type()};
}

}  // namespace

class TargetReader::Sequence final : public TargetSequence {
 public:
  Sequence(TargetReader* reader, std::unique_ptr<KvSequence> kv)
      : reader_(reader), kv_(std::move(kv)) {}

  int length() const override { return kv_->length(); }

  void Append(absl::Span<const float> rows) override {
    const TargetRowShape& shape = reader_->shape_;
    const size_t size = static_cast<size_t>(shape.row_size());
    NACRE_CHECK(rows.size() % size == 0, "a part of a target's row");
    int left = std::min(static_cast<int>(rows.size() / size),
                        kv_->max_length() - kv_->length());
    while (left > 0) {
      const int count = std::min(left, kAppendedRows);
      Store(rows.first(static_cast<size_t>(count) * size), count);
      rows.remove_prefix(static_cast<size_t>(count) * size);
      left -= count;
    }
  }

  TargetKv seen() const {
    return {length() == 0 ? nullptr : kv_->block_table(), length()};
  }

 private:
  // `count` rows, at most kAppendedRows.
  void Store(absl::Span<const float> rows, int count) {
    const TargetRowShape& shape = reader_->shape_;
    std::vector<kernels::RowContext> contexts;
    contexts.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      contexts.push_back({kv_->block_table(), kv_->length() + i});
    }
    const size_t part = static_cast<size_t>(shape.row_size()) /
                        static_cast<size_t>(2 * shape.num_layers);
    reader_->rows_.Send(rows);
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      const float* const key =
          reader_->rows_.data() + static_cast<size_t>(2 * layer) * part;
      reader_->backend_->StoreKv(key, key + part, shape.row_size(), contexts,
                                 reader_->pool_->layer(layer));
    }
    kv_->Append(count);
  }

  TargetReader* const reader_;
  const std::unique_ptr<KvSequence> kv_;
};

TargetReader::TargetReader(const ModelConfig& config, CrossLayers weights,
                           kernels::Backend* backend)
    : hidden_size_(config.hidden_size),
      shape_(ShapeOf(config)),
      heads_(CrossHeads(*config.cross)),
      weights_(std::move(weights)),
      backend_(backend),
      rows_(backend),
      cross_(heads_, backend) {}

absl::Status TargetReader::Check(bool is_split) {
  if (!is_split) return absl::OkStatus();
  return absl::UnimplementedError(
      "a GliDe draft is not split over several devices");
}

int64_t TargetReader::WeightBytes(const ModelConfig& config,
                                  const kernels::Backend& backend) {
  static constexpr uint16_t kNoData = 0;  // which is not read
  const int size = CrossHeads(*config.cross).q_size();
  const int hidden = config.hidden_size;
  const kernels::HostMatrix q = {kernels::DType::kBF16, &kNoData, size, hidden};
  const kernels::HostMatrix o = {kernels::DType::kBF16, &kNoData, hidden, size};
  return int64_t{config.num_hidden_layers} *
         (backend.PackedBytes({&q, 1}) + backend.PackedBytes({&o, 1}));
}

int64_t TargetReader::BytesPerToken(const ModelConfig& config,
                                    const kernels::Backend& backend) {
  return KvPool::BytesPerToken(PoolShape(config, backend));
}

int64_t TargetReader::CacheBytes(const ModelConfig& config,
                                 int64_t capacity_tokens,
                                 const kernels::Backend& backend) {
  return std::max<int64_t>(capacity_tokens, KvPool::kBlockSize) *
         BytesPerToken(config, backend);
}

absl::StatusOr<std::unique_ptr<TargetReader>> TargetReader::Create(
    const Checkpoint& checkpoint, const ModelConfig& config,
    int64_t capacity_tokens, kernels::Backend* backend) {
  NACRE_ASSIGN_OR_RETURN(
      CrossLayers weights,
      LoadCrossLayers(checkpoint, config, CrossHeads(*config.cross), backend));
  std::unique_ptr<TargetReader> reader(
      new TargetReader(config, std::move(weights), backend));
  NACRE_ASSIGN_OR_RETURN(
      reader->pool_,
      KvPool::Create(backend, PoolShape(config, *backend),
                     CacheBytes(config, capacity_tokens, *backend)));
  NACRE_RETURN_IF_ERROR(reader->rows_.Reserve(
      static_cast<size_t>(kAppendedRows * reader->shape_.row_size())));
  return reader;
}

absl::StatusOr<std::unique_ptr<TargetSequence>> TargetReader::NewTargetSequence(
    int max_length) {
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<KvSequence> kv,
                         pool_->Reserve(max_length));
  cross_.Reserve(max_length);
  return std::make_unique<Sequence>(this, std::move(kv));
}

void TargetReader::Add(const SequenceRows& rows, int length) {
  TargetKv seen;
  if (rows.target != nullptr) {
    seen = static_cast<const Sequence*>(rows.target)->seen();
  }
  const int positions =
      static_cast<int>(rows.token_ids.size() - rows.nodes.size());
  for (int i = 0; i < positions; ++i) cross_.Add(seen, length + i);
  for (const TreeNode& node : rows.nodes) cross_.Add(seen, node.position);
}

void TargetReader::Run(int layer, Activations* activations) {
  cross_.Run(weights_.layers[static_cast<size_t>(layer)], pool_->layer(layer),
             hidden_size_, activations);
}

}  // namespace nacre::model
