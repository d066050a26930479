// What one render may use, and the objects it makes.
//
// Used by one thread at a time.

#ifndef CHAT_RENDER_CONTEXT_H_
#define CHAT_RENDER_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "chat/chat_template.h"
#include "chat/text.h"
#include "chat/value.h"

namespace nacre::chat {

class RenderContext {
 public:
  RenderContext(const Limits& limits, absl::Time now, absl::TimeZone zone)
      : limits_(limits), now_(now), zone_(zone) {}

  const Limits& limits() const { return limits_; }
  absl::Time now() const { return now_; }
  absl::TimeZone time_zone() const { return zone_; }

  // RESOURCE_EXHAUSTED: the render has no `steps` left. Call it before the
  // work.
  absl::Status Charge(int64_t steps);

  // Nested evaluations of any kind, also of ours within a value. Calls of Leave
  // follow those of Enter that succeeded.
  absl::Status Enter();
  void Leave() { --depth_; }

  // Owns a new object until the render ends.
  template <typename T>
  T* New() {
    auto object = std::make_unique<T>();
    T* raw = object.get();
    heap_.push_back(std::move(object));
    return raw;
  }

  TextBuilder NewText() const { return TextBuilder(limits_.output_bytes); }
  // RESOURCE_EXHAUSTED: the builder overflowed, or no steps are left.
  absl::StatusOr<Value> Finish(TextBuilder builder);
  // A text that is all the user's or all not.
  absl::StatusOr<Value> String(std::string_view bytes, bool user = false);
  absl::StatusOr<Value> Slice(const Text& text, size_t begin, size_t end);
  absl::StatusOr<Value> NewList(Kind kind, std::vector<Value> items);
  Value NewUndefined(std::string message, bool security = false);

 private:
  const Limits limits_;
  const absl::Time now_;
  const absl::TimeZone zone_;
  int64_t steps_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Object>> heap_;
};

// Enters while it lives.
class Nested {
 public:
  explicit Nested(RenderContext& context)
      : context_(context), status_(context.Enter()) {}
  ~Nested() {
    if (status_.ok()) context_.Leave();
  }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  RenderContext& context_;
  const absl::Status status_;
};

}  // namespace nacre::chat

#endif  // CHAT_RENDER_CONTEXT_H_
