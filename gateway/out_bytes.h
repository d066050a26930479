// What is to be written to a client: bytes on their way, and those after them.
//
// On the thread of the event loop.

#ifndef GATEWAY_OUT_BYTES_H_
#define GATEWAY_OUT_BYTES_H_

#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace nacre::gateway {

class OutBytes {
 public:
  // Where more is appended.
  std::string& tail() { return tail_; }

  bool empty() const { return tail_.empty() && !is_writing_; }
  // Not yet written.
  size_t size() const { return tail_.size() + (writing_.size() - written_); }
  // Whether `unwritten` is on its way.
  bool is_writing() const { return is_writing_; }

  // Sends what has been appended on its way. False: something is, or there is
  // nothing.
  bool Begin() {
    if (is_writing_ || tail_.empty()) return false;
    is_writing_ = true;
    Next();
    return true;
  }
  // Of what is on its way, so many bytes have been written; what was appended
  // meanwhile goes next.
  void Written(size_t bytes) {
    written_ += bytes;
    if (written_ < writing_.size()) return;
    Next();
    is_writing_ = !writing_.empty();
  }
  absl::string_view unwritten() const {
    return absl::string_view(writing_).substr(written_);
  }

 private:
  void Next() {
    writing_ = std::exchange(tail_, {});
    written_ = 0;
  }

  std::string tail_;
  std::string writing_;
  size_t written_ = 0;  // of writing_
  bool is_writing_ = false;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_OUT_BYTES_H_
