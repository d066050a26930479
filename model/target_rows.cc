#include "model/target_rows.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/status_macros.h"
#include "kernels/backend.h"
#include "kernels/kv_address.h"

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
  if (head->backend->location() != kernels::Location::kHost) {
    return absl::UnimplementedError(
        absl::StrCat("the target's backend ", head->backend->numerics_id(),
                     " shows no keys and values; \"cpu\" does"));
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
  rows->resize(static_cast<size_t>(count) * size);
  float* out = rows->data();
  const auto first_layer =
      static_cast<size_t>(model_->info().num_layers - shape.num_layers);
  for (int i = 0; i < count; ++i) {
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      const kernels::KvLayer& from =
          kv.layers[first_layer + static_cast<size_t>(layer)];
      ReadSlot(from, kernels::SlotOf(from, table, first + i), out);
      out += part;
    }
  }
}

}  // namespace nacre::model
