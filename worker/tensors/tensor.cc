#include "worker/tensors/tensor.h"

#include <utility>

namespace nacre::worker {

void Tensor::Own(std::vector<float> floats) {
  const auto shared =
      std::make_shared<const std::vector<float>>(std::move(floats));
  values = kernels::FloatView(*shared);
  owner = shared;
}

Tensor Tensor::OnHost() const {
  if (owner != nullptr && values.location() == kernels::Location::kHost) {
    return *this;
  }
  Tensor copy;
  copy.tag = tag;
  copy.shape = shape;
  copy.in_bf16 = in_bf16;
  std::vector<float> floats(values.size());
  values.CopyTo(floats.data());
  copy.Own(std::move(floats));
  return copy;
}

}  // namespace nacre::worker
