#include "coordinator/fleet/signs_of_life.h"

#include <algorithm>

namespace nacre::coordinator {

void SignsOfLife::OnAttached(int64_t now_ns) {
  attached_ns_ = answer_ns_ = now_ns;
}

void SignsOfLife::OnHeartbeat(int64_t now_ns) { heartbeat_ns_ = now_ns; }

void SignsOfLife::OnAnswer(int64_t now_ns) { answer_ns_ = now_ns; }

int64_t SignsOfLife::silent_since_ns() const {
  return std::min(std::max(attached_ns_, heartbeat_ns_), answer_ns_);
}

bool SignsOfLife::IsLost(int64_t now_ns, int64_t timeout_ns) const {
  return now_ns - silent_since_ns() >= timeout_ns;
}

}  // namespace nacre::coordinator
