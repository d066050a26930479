// The answers that their clients have yet to take. So clients that read nothing
// hold no more memory than there is for all, nor the share of others.

#ifndef COORDINATOR_API_HELD_ANSWERS_H_
#define COORDINATOR_API_HELD_ANSWERS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"

namespace nacre::coordinator {

// Thread-safe.
class HeldAnswers {
 public:
  struct Answer {
    const void* owner = nullptr;
    std::string client;
    int64_t bytes = 0;
    // Called once at most: others need the room more. The answer may be leaving
    // meanwhile.
    std::function<void()> cut_off;
  };

  explicit HeldAnswers(int64_t max_bytes) : max_bytes_(max_bytes) {}
  HeldAnswers(const HeldAnswers&) = delete;
  HeldAnswers& operator=(const HeldAnswers&) = delete;

  // The answer is about to be sent. Where there is too little room, the last
  // answers of the client with most are cut off; RESOURCE_EXHAUSTED where no
  // client holds more than this one would, and then none is cut off. One larger
  // than all the room is taken if no other is there.
  absl::Status Enter(Answer answer) ABSL_LOCKS_EXCLUDED(mu_);
  // It was taken, or never will be. Answers that were cut off, or never
  // entered, may leave, too.
  void Leave(const void* owner) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Share {
    std::list<Answer> answers;
    int64_t bytes = 0;
  };

  // The owners of the answers to cut off; nullopt: others would keep less than
  // the client of `answer`.
  absl::optional<std::vector<const void*>> MakesRoomFor(
      const Answer& answer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Answer Remove(const void* owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_bytes_;
  absl::Mutex mu_;
  absl::flat_hash_map<std::string, Share> clients_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const void*, std::list<Answer>::iterator> answers_
      ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_HELD_ANSWERS_H_
