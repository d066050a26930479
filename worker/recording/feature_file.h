// A file of what length policies are calibrated from, one JSON object a line
// (docs/policies.md, "Recording"). Where asked for, also the hidden states that
// the lines refer to.
//
// Serves all sessions of the process and outlives them. One thread, the
// engine's.

#ifndef WORKER_RECORDING_FEATURE_FILE_H_
#define WORKER_RECORDING_FEATURE_FILE_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/recording/hidden_file.h"

namespace nacre::worker {

class FeatureFile {
 public:
  // Appends to `path`. Errors of the disk, naming it.
  static absl::StatusOr<std::unique_ptr<FeatureFile>> Open(
      const std::string& path);

  // Logs how many lines were lost, if any.
  ~FeatureFile();
  FeatureFile(const FeatureFile&) = delete;
  FeatureFile& operator=(const FeatureFile&) = delete;

  // Records hidden states too, in a file of their own. Before the first
  // session. Errors: HiddenFile::Create's.
  absl::Status AddHidden(const std::string& path, int hidden_size);
  HiddenFile* hidden() const { return hidden_.get(); }  // null: not recorded

  // Whole lines, `num_lines` of them. The first failure is logged. From then on
  // nothing is written, so that the file holds no line of half a write after
  // another. What should have been is counted.
  void Write(const std::string& lines, int num_lines);

  uint64_t lost_lines() const { return lost_lines_; }

 private:
  FeatureFile(std::string path, std::FILE* file)
      : path_(std::move(path)), file_(file) {}

  const std::string path_;
  std::FILE* const file_;  // owned
  std::unique_ptr<HiddenFile> hidden_;
  bool failed_ = false;
  uint64_t lost_lines_ = 0;
};

// A request's id is the client's own choice and may hold any bytes.
std::string JsonString(const std::string& text);

}  // namespace nacre::worker

#endif  // WORKER_RECORDING_FEATURE_FILE_H_
