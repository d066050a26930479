// A backend whose memory is a device's, as far as it says: in truth it is the
// host's, so that tests see what is copied.

#ifndef TESTS_TESTING_DEVICE_BACKEND_H_
#define TESTS_TESTING_DEVICE_BACKEND_H_

#include <cstddef>

#include "kernels/reference/reference_backend.h"
#include "kernels/weight_type.h"

namespace nacre::testing {

class DeviceBackend final : public kernels::ReferenceBackend {
 public:
  DeviceBackend() : ReferenceBackend(kernels::WeightType::kAuto) {}
  kernels::Location location() const override {
    return kernels::Location::kDevice;
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    ++num_copies;
    num_bytes += bytes;
    ReferenceBackend::CopyToHost(device, bytes, host);
  }

  int num_copies = 0;  // to the host
  size_t num_bytes = 0;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_DEVICE_BACKEND_H_
