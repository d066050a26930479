// A file of hidden states, one after the other, as `nacre calibrate` reads
// them (docs/policies.md, "Recording"). In bytes, little-endian:
//
//   0   "NACREHID"
//   8   uint32 version, 1
//   12  uint32 size, the floats of a state
//   16  state 0: float32[size], state 1, ...
//
// One thread.

#ifndef WORKER_RECORDING_HIDDEN_FILE_H_
#define WORKER_RECORDING_HIDDEN_FILE_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace nacre::worker {

inline constexpr absl::string_view kHiddenMagic = "NACREHID";
inline constexpr uint32_t kHiddenVersion = 1;
inline constexpr size_t kHiddenHeaderBytes = 16;

class HiddenFile {
 public:
  // A new file for states of `size` floats. FAILED_PRECONDITION: a size of 0,
  // of a model that shows no hidden states; ALREADY_EXISTS: the file is there
  // (what refers to its states counts from 0); errors of the disk.
  static absl::StatusOr<std::unique_ptr<HiddenFile>> Create(
      const std::string& path, int size);

  // Logs how many states were lost, if any.
  ~HiddenFile();
  HiddenFile(const HiddenFile&) = delete;
  HiddenFile& operator=(const HiddenFile&) = delete;

  // The number of the state [size] in the file. The first failure is logged;
  // from then on nothing is written and there is none.
  absl::optional<int64_t> Append(absl::Span<const float> state);

 private:
  HiddenFile(std::string path, std::FILE* file, size_t size)
      : path_(std::move(path)), file_(file), size_(size) {}

  const std::string path_;
  std::FILE* const file_;  // owned
  const size_t size_;
  int64_t written_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace nacre::worker

#endif  // WORKER_RECORDING_HIDDEN_FILE_H_
