// The last things that happened in a schedule, for its failure report. Cheap to
// record: nothing is formatted before it is asked for.

#ifndef TESTS_SIMULATION_PROTOCOL_TRACE_H_
#define TESTS_SIMULATION_PROTOCOL_TRACE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nacre::protocol {

class Trace {
 public:
  // Keeps the last 40 entries, or all.
  explicit Trace(bool keep_all) : keep_all_(keep_all) {
    if (!keep_all) entries_.resize(kSize);
  }

  // `what` is a literal that names the numbers after it.
  void Add(int64_t time_ns, const char* what, int64_t a = 0, int64_t b = 0,
           int64_t c = 0, int64_t d = 0) {
    const Entry entry = {time_ns, what, {a, b, c, d}};
    if (keep_all_) {
      entries_.push_back(entry);
    } else {
      entries_[count_ % kSize] = entry;
    }
    ++count_;
  }

  // One line each. A '#' in `what` stands for the next number.
  std::string Format() const {
    std::string text;
    const size_t size = keep_all_ ? entries_.size() : kSize;
    for (size_t i = count_ - std::min(count_, size); i < count_; ++i) {
      const Entry& entry = entries_[i % size];
      absl::StrAppend(&text, "  ", entry.time_ns / 1000, " us  ");
      int number = 0;
      for (const char* at = entry.what; *at != '\0'; ++at) {
        if (*at == '#') {
          absl::StrAppend(&text, entry.numbers[number++]);
        } else {
          text.push_back(*at);
        }
      }
      text.push_back('\n');
    }
    return text;
  }

 private:
  static constexpr size_t kSize = 40;
  struct Entry {
    int64_t time_ns;
    const char* what;
    int64_t numbers[4];
  };
  const bool keep_all_;
  size_t count_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_TRACE_H_
