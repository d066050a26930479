#include "kernels/cuda/device.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace nacre::kernels::cuda {
namespace {

constexpr int kLeastMajor = 8;  // compute capability
constexpr size_t kLeastKept = 64 << 10;

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorInitializationError:
      return absl::StatusCode::kFailedPrecondition;
    case cudaErrorDevicesUnavailable:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

class DeviceBuffer : public Buffer {
 public:
  // `used` counts the bytes of the device's buffers.
  DeviceBuffer(int device, void* data, size_t bytes, int64_t* used)
      : device_(device), data_(data), bytes_(bytes), used_(used) {
    *used_ += static_cast<int64_t>(bytes_);
  }
  // Waits for what uses it. An error is ignored: no caller could act on it.
  ~DeviceBuffer() override {
    cudaSetDevice(device_);
    cudaFree(data_);
    *used_ -= static_cast<int64_t>(bytes_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() override { return data_; }
  size_t size_bytes() const override { return bytes_; }

 private:
  const int device_;
  void* const data_;
  const size_t bytes_;
  int64_t* const used_;
};

class PinnedBuffer : public Buffer {
 public:
  // `kept`: where its memory goes; null: it is freed.
  PinnedBuffer(int device, void* data, size_t bytes, std::vector<void*>* kept)
      : device_(device), data_(data), bytes_(bytes), kept_(kept) {}
  // An error is ignored: no caller could act on it.
  ~PinnedBuffer() override {
    if (kept_ != nullptr) {
      kept_->push_back(data_);
      return;
    }
    cudaSetDevice(device_);
    cudaFreeHost(data_);
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  void* data() override { return data_; }
  size_t size_bytes() const override { return bytes_; }

 private:
  const int device_;
  void* const data_;
  const size_t bytes_;
  std::vector<void*>* const kept_;
};

// "13.0" of CUDA's 13000.
std::string VersionName(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// What is wrong with the driver that CUDA finds insufficient; its message does
// not tell one that is old from none at all.
std::string DriverProblem() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    return "no NVIDIA driver";
  }
  std::string problem = absl::StrCat(
      "the NVIDIA driver is too old: it has CUDA ", VersionName(version),
      ", this program needs ", VersionName(CUDART_VERSION));
  // The first driver for all minor versions of ours, as NVIDIA documents.
  const int major = CUDART_VERSION / 1000;
  const int driver = major == 12 ? 525 : major == 13 ? 580 : 0;
  if (driver > 0) {
    absl::StrAppend(&problem, ", a driver of version ", driver, " or later");
  }
  return problem;
}

}  // namespace

absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  return absl::Status(CodeOf(error),
                      absl::StrCat(what, ": ", cudaGetErrorString(error), " (",
                                   cudaGetErrorName(error), ")"));
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(
    const DeviceOptions& options) {
  const int index = options.index;
  const std::string name = absl::StrCat("CUDA device ", index);
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error == cudaErrorInsufficientDriver) {
    return ToStatus(error, absl::StrCat(name, ": ", DriverProblem()));
  }
  if (error != cudaSuccess) return ToStatus(error, name);
  if (index < 0 || index >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " does not exist: ", count, " found"));
  }
  std::unique_ptr<Device> device(new Device(options));
  cudaDeviceProp properties = {};
  error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) return ToStatus(error, name);
  device->name_ = properties.name;
  device->major_ = properties.major;
  device->minor_ = properties.minor;
  device->multiprocessors_ = properties.multiProcessorCount;
  device->shared_bytes_ = properties.sharedMemPerBlockOptin;
  device->cooperative_ = properties.cooperativeLaunch != 0;
  if (properties.major < kLeastMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " (", properties.name, ") has compute capability ",
                     properties.major, ".", properties.minor, ", the least is ",
                     kLeastMajor, ".0"));
  }
  error = cudaSetDevice(index);
  if (error != cudaSuccess) return ToStatus(error, name);
  error =
      cudaStreamCreateWithFlags(&device->queue_.stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return ToStatus(error, name);
  if (properties.major < 9) device->queue_.overlap = false;
  for (cudaEvent_t& mark : device->marks_) {
    error = cudaEventCreateWithFlags(&mark, cudaEventDisableTiming);
    if (error != cudaSuccess) return ToStatus(error, name);
  }
  return device;
}

Device::~Device() {
  if (queue_.stream == nullptr) return;
  cudaSetDevice(index_);
  for (void* const memory : kept_pinned_) cudaFreeHost(memory);
  for (const cudaEvent_t mark : marks_) {
    if (mark != nullptr) cudaEventDestroy(mark);
  }
  cudaStreamDestroy(queue_.stream);
}

void Device::MakeCurrent() { Check(cudaSetDevice(index_), "cudaSetDevice"); }

std::string Device::sm() const { return absl::StrCat("sm", major_, minor_); }

std::string Device::description() const {
  return absl::StrCat(name_, ", device ", index_, ", ", sm());
}

cudaStream_t Device::stream() {
  ++queued_;
  QueueRecorded();
  return queue_.stream;
}

void Device::BeginStep(StepQueue* steps) {
  NACRE_CHECK(record_ == nullptr, "a step in a step");
  steps_ = steps;
  steps_->BeginStep();
  record_ = &recorded_;
}

void Device::EndStep() {
  QueueRecorded();
  record_ = nullptr;
}

void Device::QueueRecorded() {
  if (recorded_.empty()) return;
  // Nothing is recorded when what queues them asks for the stream.
  RecordedLaunches launches = std::exchange(recorded_, {});
  if (ok()) {
    Check(steps_->Launch(launches, queue_.stream), "kernels of a step");
  }
  launches.clear();
  recorded_ = std::move(launches);  // its memory
}

DeviceMemory Device::Memory() {
  size_t free = 0;
  size_t total = 0;
  Check(cudaSetDevice(index_), "cudaSetDevice");
  Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  DeviceMemory memory = {
      static_cast<int64_t>(total), static_cast<int64_t>(free), used_bytes_, {}};
  if (max_bytes_ > 0) memory.limit = max_bytes_;
  return memory;
}

absl::StatusOr<std::unique_ptr<Buffer>> Device::Allocate(size_t bytes) {
  const auto no_room = [&] {
    return absl::StrCat("no room for ", bytes, " bytes on device ", index_,
                        ", ", Memory().ToString());
  };
  if (max_bytes_ > 0 &&
      static_cast<int64_t>(bytes) > max_bytes_ - used_bytes_) {
    return absl::ResourceExhaustedError(no_room());
  }
  void* data = nullptr;
  cudaError_t error = cudaSetDevice(index_);
  // Of no bytes there would be no address.
  if (error == cudaSuccess)
    error = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // says the same to the next launch
    return ToStatus(error, no_room());
  }
  if (error != cudaSuccess) return ToStatus(error, "cudaMalloc");
  auto buffer =
      std::make_unique<DeviceBuffer>(index_, data, bytes, &used_bytes_);
  error = cudaMemsetAsync(data, 0, bytes, stream());
  if (error != cudaSuccess) return ToStatus(error, "cudaMemset");
  return buffer;
}

absl::StatusOr<std::unique_ptr<Buffer>> Device::AllocatePinned(size_t bytes) {
  void* data = nullptr;
  if (keeps_pinned_) bytes = std::bit_ceil(std::max(bytes, kLeastKept));
  cudaError_t error = cudaSetDevice(index_);
  if (error == cudaSuccess) {
    error = cudaMallocHost(&data, std::max<size_t>(bytes, 1));
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // says the same to the next launch
    return ToStatus(error, absl::StrCat(bytes, " bytes of pinned memory"));
  }
  std::memset(data, 0, bytes);
  return std::make_unique<PinnedBuffer>(
      index_, data, bytes, keeps_pinned_ ? &kept_pinned_ : nullptr);
}

bool Device::Grow(size_t bytes, std::unique_ptr<Buffer>* buffer) {
  const size_t old_bytes = *buffer == nullptr ? 0 : (*buffer)->size_bytes();
  if (*buffer != nullptr && old_bytes >= bytes) return true;
  QueueRecorded();  // what still uses it
  buffer->reset();
  bytes = std::max(bytes, 2 * old_bytes);
  absl::StatusOr<std::unique_ptr<Buffer>> larger = Allocate(bytes);
  if (larger.ok()) {
    *buffer = *std::move(larger);
  } else if (first_error_.ok()) {
    first_error_ = larger.status();
  }
  return *buffer != nullptr;
}

bool Device::Check(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return true;
  if (first_error_.ok()) first_error_ = ToStatus(error, what);
  return false;
}

absl::Status Device::Synchronize() {
  Check(cudaStreamSynchronize(stream()), "the device");
  return first_error_;
}

int64_t Device::Mark() {
  ++last_mark_;
  Check(cudaEventRecord(marks_[last_mark_ % kMarks], stream()),
        "cudaEventRecord");
  return last_mark_;
}

absl::Status Device::WaitFor(int64_t mark) {
  NACRE_CHECK(mark <= last_mark_ && mark > last_mark_ - kMarks,
              "a mark that is forgotten");
  Check(cudaEventSynchronize(marks_[mark % kMarks]), "the device");
  return first_error_;
}

}  // namespace nacre::kernels::cuda
