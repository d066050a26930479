#include "gateway/sse.h"

#include "absl/strings/str_cat.h"

namespace nacre::gateway {

std::string SseEvent(absl::string_view data) {
  std::string event;
  event.reserve(data.size() + 8);
  for (;;) {
    // Readers take LF, CR and CR LF for ends of lines.
    const size_t end = data.find_first_of("\r\n");
    absl::StrAppend(&event, "data: ", data.substr(0, end), "\n");
    if (end == absl::string_view::npos) break;
    const bool is_pair = data.substr(end, 2) == "\r\n";
    data.remove_prefix(end + (is_pair ? 2 : 1));
  }
  absl::StrAppend(&event, "\n");
  return event;
}

}  // namespace nacre::gateway
