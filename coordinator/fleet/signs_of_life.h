// When each of a worker's two streams last said something. Heartbeats come on
// the one, on the other answers to the pings that follow them. A host that is
// gone, a process that hangs and a network that carries one direction only
// close no connection; they show here.
//
// Plain value; its holder locks. Times: nanoseconds of the coordinator's clock.

#ifndef COORDINATOR_FLEET_SIGNS_OF_LIFE_H_
#define COORDINATOR_FLEET_SIGNS_OF_LIFE_H_

#include <cstdint>

namespace nacre::coordinator {

class SignsOfLife {
 public:
  // It has come into service: both streams count as heard.
  void OnAttached(int64_t now_ns);
  void OnHeartbeat(int64_t now_ns);
  // Anything on the session stream.
  void OnAnswer(int64_t now_ns);

  // Since when the stream that is silent for longer has been so.
  int64_t silent_since_ns() const;
  // Whether that makes the worker count as lost.
  bool IsLost(int64_t now_ns, int64_t timeout_ns) const;
  int64_t heartbeat_ns() const { return heartbeat_ns_; }  // 0: none yet

 private:
  int64_t attached_ns_ = 0;
  int64_t heartbeat_ns_ = 0;
  int64_t answer_ns_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_FLEET_SIGNS_OF_LIFE_H_
