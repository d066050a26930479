#include "model/target_rows.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/backend.h"
#include "kernels/kv_address.h"
#include "kernels/memory_ops.h"
#include "model/step_values.h"

namespace nacre::model {
namespace {

absl::Status CheckPart(const char* what, int wanted, int there) {
  if (wanted == there) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the draft reads keys of ",
                                                 wanted, " ", what,
                                                 ", the target keeps ", there));
}

// Element `index` of a layer; int8: that of a row whose scale is `scale`.
float ElementAt(const kernels::KvLayer& layer, size_t index, float scale) {
  switch (layer.type) {
    case kernels::DType::kBF16:
      return kernels::FromBF16(
          static_cast<const uint16_t*>(layer.blocks)[index]);
    case kernels::DType::kInt8:
      return static_cast<float>(
                 static_cast<const int8_t*>(layer.blocks)[index]) *
             scale;
    default:
      return static_cast<const float*>(layer.blocks)[index];
  }
}

float ScaleAt(const kernels::KvLayer& layer, size_t index) {
  if (layer.type != kernels::DType::kInt8) return 1;
  float scale;
  std::memcpy(&scale, static_cast<const int8_t*>(layer.blocks) + index,
              sizeof scale);
  return scale;
}

// Of one layer and position: keys of all heads, then values.
void ReadSlot(const kernels::KvLayer& layer, kernels::KvSlot slot, float* out) {
  float* value = out + static_cast<size_t>(layer.num_kv_heads) * layer.head_dim;
  for (int head = 0; head < layer.num_kv_heads; ++head) {
    const size_t scales = KeyScaleIndex(layer, slot, head);
    const float of_key = ScaleAt(layer, scales);
    const float of_value = ScaleAt(layer, scales + KvHalfElements(layer));
    for (int d = 0; d < layer.head_dim; ++d) {
      *out++ = ElementAt(layer, KeyIndex(layer, slot, head, d), of_key);
      *value++ = ElementAt(layer, ValueIndex(layer, slot, head, d), of_value);
    }
  }
}

}  // namespace

// Blocks of a device's cache, brought to the host.
class KeptRows::DeviceBlocks {
 public:
  explicit DeviceBlocks(kernels::Backend* backend)
      : backend_(backend), brought_(backend) {}

  // Positions [first, first + count) of a session's blocks in these layers.
  // Errors of the backend.
  absl::Status Bring(absl::Span<const kernels::KvLayer> layers,
                     const int32_t* table, int first, int count) {
    const kernels::KvLayer& shape = layers.front();
    first_block_ = first / shape.block_size;
    num_blocks_ = (first + count - 1) / shape.block_size + 1 - first_block_;
    size_ = KvBlockIndex(shape, 1, 0) * kernels::SizeOf(shape.type);
    const size_t floats = size_ / sizeof(float);
    const size_t blocks = static_cast<size_t>(num_blocks_);
    NACRE_CHECK(size_ % sizeof(float) == 0, "blocks of a part of a float");
    NACRE_RETURN_IF_ERROR(brought_.Reserve(layers.size() * blocks * floats));
    size_t to = 0;
    for (const kernels::KvLayer& layer : layers) {
      const auto* const all = static_cast<const char*>(layer.blocks);
      for (int block = 0; block < num_blocks_; ++block) {
        const auto from = static_cast<size_t>(table[first_block_ + block]);
        brought_.Bring(reinterpret_cast<const float*>(all + from * size_),
                       floats, to);
        to += floats;
      }
    }
    return backend_->Synchronize();
  }

  // Those of the layer that was `index`th, one after the other.
  kernels::KvLayer Layer(const kernels::KvLayer& shape, size_t index) const {
    const size_t floats =
        static_cast<size_t>(num_blocks_) * size_ / sizeof(float);
    kernels::KvLayer layer = shape;
    layer.num_blocks = num_blocks_;
    layer.blocks = const_cast<float*>(  // ReadSlot only reads
        brought_.Get(index * floats, floats).data());
    return layer;
  }
  // Of a position, in these.
  kernels::KvSlot SlotOf(const kernels::KvLayer& layer, int position) const {
    return position - first_block_ * layer.block_size;
  }

 private:
  kernels::Backend* const backend_;
  BroughtValues brought_;
  int first_block_ = 0;
  int num_blocks_ = 0;
  size_t size_ = 0;  // bytes of a block
};

KeptRows::KeptRows(LanguageModel* model) : model_(model) {
  const absl::optional<VocabularyHead> head = model->vocabulary_head();
  if (head.has_value() &&
      head->backend->location() == kernels::Location::kDevice) {
    device_ = std::make_unique<DeviceBlocks>(head->backend);
  }
}

KeptRows::~KeptRows() = default;

absl::Status KeptRows::Check(const TargetRowShape& shape) const {
  const absl::optional<KeptKv> kv = model_->kept_kv();
  const absl::optional<VocabularyHead> head = model_->vocabulary_head();
  if (!kv.has_value() || kv->layers.empty() || !head.has_value()) {
    return absl::UnimplementedError("the target shows no keys and values");
  }
  if (!kv->has_whole_heads) {
    return absl::UnimplementedError(
        "only a part of each of the target's heads turns");
  }
  const kernels::KvLayer& layer = kv->layers.front();
  NACRE_RETURN_IF_ERROR(
      CheckPart("heads", shape.num_key_value_heads, layer.num_kv_heads));
  NACRE_RETURN_IF_ERROR(
      CheckPart("elements a head", shape.head_dim, layer.head_dim));
  if (shape.num_layers >= 1 && shape.num_layers <= model_->info().num_layers) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the draft reads keys of ", shape.num_layers,
                   " layers, the target has ", model_->info().num_layers));
}

bool KeptRows::is_bf16() const {
  const absl::optional<KeptKv> kv = model_->kept_kv();
  return kv.has_value() && !kv->layers.empty() &&
         kv->layers.front().type == kernels::DType::kBF16;
}

void KeptRows::Read(const Sequence& sequence, const TargetRowShape& shape,
                    int first, int count, std::vector<float>* rows) {
  const KeptKv kv = *model_->kept_kv();
  const int32_t* const table = model_->KvTable(sequence);
  const size_t size = static_cast<size_t>(shape.row_size());
  const size_t part = size / static_cast<size_t>(shape.num_layers);
  rows->assign(static_cast<size_t>(count) * size, 0);
  const size_t num_layers = static_cast<size_t>(shape.num_layers);
  const auto layers = kv.layers.subspan(
      static_cast<size_t>(model_->info().num_layers) - num_layers, num_layers);
  if (count == 0) return;
  if (device_ != nullptr && !device_->Bring(layers, table, first, count).ok()) {
    return;  // with zeros: the model's next step says why
  }
  for (size_t layer = 0; layer < num_layers; ++layer) {
    const kernels::KvLayer from = device_ == nullptr
                                      ? layers[layer]
                                      : device_->Layer(layers[layer], layer);
    for (int i = 0; i < count; ++i) {
      ReadSlot(from,
               device_ == nullptr ? SlotOf(from, table, first + i)
                                  : device_->SlotOf(from, first + i),
               rows->data() + static_cast<size_t>(i) * size + layer * part);
    }
  }
}

}  // namespace nacre::model
