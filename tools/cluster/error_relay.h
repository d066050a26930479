// The stderr of a child process on its way to that of this one, by whole lines:
// what several children write is not mixed within a line. The last one is kept:
// it says why the process ended.
//
// Thread-safe; runs a thread of its own.

#ifndef TOOLS_CLUSTER_ERROR_RELAY_H_
#define TOOLS_CLUSTER_ERROR_RELAY_H_

#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace nacre::tools {

// The last line of `text` that is not empty; "" if there is none.
std::string LastLine(absl::string_view text);

class ErrorRelay {
 public:
  // RESOURCE_EXHAUSTED: no pipe.
  static absl::StatusOr<std::unique_ptr<ErrorRelay>> Create();
  // Hands on what has been written so far, not what others write later. Gives
  // up after a second in which this process's stderr takes nothing.
  ~ErrorRelay();
  ErrorRelay(const ErrorRelay&) = delete;
  ErrorRelay& operator=(const ErrorRelay&) = delete;

  // For the child. Closed by CloseInput, when the child has its own.
  int input() const { return input_; }
  void CloseInput();

  // Of what the child has written. Waits until the child has closed its end, as
  // an ended process has, but for a second at most.
  std::string LastLine() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  ErrorRelay(int output, int input, int stop_output, int stop_input);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Reads once. Whether there may be more.
  bool Read(size_t most) ABSL_LOCKS_EXCLUDED(mu_);
  // Of what is to be written: the whole lines, or all.
  void HandOn(bool all);
  void Write(absl::string_view text);

  const int output_;  // of the pipe that the child writes to
  int input_;
  const int stop_output_;  // of one that ends the thread
  const int stop_input_;
  // Of the thread.
  std::string unwritten_;
  absl::Time give_up_at_ = absl::InfiniteFuture();  // a while after the stop

  absl::Notification ended_;
  absl::Mutex mu_;
  std::string tail_ ABSL_GUARDED_BY(mu_);  // the end of what was written
  std::thread thread_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_ERROR_RELAY_H_
