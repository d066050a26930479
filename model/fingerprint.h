// SHA-256 of a checkpoint: of all bytes of all tensors, so that two models
// count as equal only where each of their weights is. Several threads hash
// chunks of fixed size. The digests of the chunks are hashed again, in order.
// So the result does not depend on how many threads there are.
//
// Begin it before the weights are loaded and end it after. Both read the same
// file, which comes from the disk once while the system caches it.
//
// Thread-compatible: one thread owns it.

#ifndef MODEL_FINGERPRINT_H_
#define MODEL_FINGERPRINT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/mapped_file.h"
#include "model/progress.h"

namespace nacre::model {

class FingerprintJob {
 public:
  // What is hashed of a tensor.
  struct Part {
    absl::string_view name;
    absl::string_view dtype;
    std::string shape;
    absl::string_view bytes;
    // Which has them, if one does: they are given back as they are hashed.
    const MappedFile* file = nullptr;
  };

  // `num_threads` threads begin to hash; with 0 all is done in Finish. The
  // bytes, files and names outlive this.
  FingerprintJob(absl::string_view config_json, std::vector<Part> parts,
                 int num_threads);

  // Stops the threads, wherever they are.
  ~FingerprintJob();
  FingerprintJob(const FingerprintJob&) = delete;
  FingerprintJob& operator=(const FingerprintJob&) = delete;

  // As many as a load leaves idle.
  static int DefaultThreads();

  // 64 hex digits, once all is hashed: this thread helps and reports the stage
  // "fingerprint". `progress` may be empty.
  std::string Finish(const ProgressCallback& progress = {});

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Chunk {
    absl::string_view bytes;
    const MappedFile* file;  // of its Part
  };

  // Hashes the next chunk that no thread has taken; false: there is none.
  bool HashNext();
  void JoinAll();

  const std::string config_json_;
  const std::vector<Part> parts_;
  std::vector<Chunk> chunks_;    // of all parts, in their order
  std::vector<Digest> digests_;  // of the chunks
  std::atomic<size_t> next_{0};
  std::vector<std::thread> threads_;
};

}  // namespace nacre::model

#endif  // MODEL_FINGERPRINT_H_
