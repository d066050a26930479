#include "kernels/float_view.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/memory_ops.h"

namespace nacre::kernels {

FloatView::FloatView(MemoryOps* backend, const float* data, size_t size)
    : device_(backend->location() == Location::kDevice ? backend : nullptr),
      data_(data),
      size_(size) {}

FloatView FloatView::subview(size_t first, size_t count) const {
  NACRE_CHECK(first <= size_ && count <= size_ - first,
              "a view of more than there is");
  FloatView view = *this;
  view.data_ += first;
  view.size_ = count;
  return view;
}

absl::Span<const float> FloatView::host() const {
  NACRE_CHECK(location() == Location::kHost,
              "memory of a device is read as the host's");
  return {data_, size_};
}

void FloatView::CopyTo(float* out) const {
  if (size_ == 0) return;
  if (device_ == nullptr) {
    std::copy_n(data_, size_, out);
  } else {
    device_->CopyToHost(data_, size_ * sizeof(float), out);
  }
}

absl::Span<const float> FloatView::OnHost(std::vector<float>* scratch) const {
  if (device_ == nullptr) return host();
  scratch->resize(size_);
  CopyTo(scratch->data());
  return *scratch;
}

}  // namespace nacre::kernels
