// Floats to and from a backend's memory, for tests of what ranks exchange
// there.

#ifndef TESTS_KERNELS_DEVICE_VALUES_H_
#define TESTS_KERNELS_DEVICE_VALUES_H_

#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace nacre::kernels {

// A new buffer with these values.
inline std::unique_ptr<Buffer> ToDevice(Backend* backend,
                                        const std::vector<float>& values) {
  auto buffer = *backend->Allocate(values.size() * sizeof(float));
  backend->CopyFromHost(values.data(), values.size() * sizeof(float),
                        buffer->data());
  return buffer;
}

// All that a buffer has.
inline std::vector<float> ToHost(Backend* backend, Buffer* buffer) {
  std::vector<float> values(buffer->size_bytes() / sizeof(float));
  backend->CopyToHost(buffer->data(), buffer->size_bytes(), values.data());
  return values;
}

}  // namespace nacre::kernels

#endif  // TESTS_KERNELS_DEVICE_VALUES_H_
