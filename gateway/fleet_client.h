// What operators see of the coordinators: asks nacre.v1.Admin of each. Calls
// hold no thread.
//
// For the thread of the event loop, but for Close.

#ifndef GATEWAY_FLEET_CLIENT_H_
#define GATEWAY_FLEET_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "gateway/event_loop.h"
#include "proto/admin.pb.h"

namespace nacre::gateway {

// One coordinator as it says it is.
struct CoordinatorView {
  std::string address;  // for operators
  absl::Status status;  // of the first call that failed; the rest is empty then
  v1::ServerInfo info;
  v1::ListWorkersResponse workers;
  v1::ListSessionsResponse sessions;
};

class FleetClient {
 public:
  struct Options {
    std::vector<std::string> addresses;  // host:port of coordinators
    rpc::ChannelSecurity security;
    // Of all calls of one question: a page asks again soon.
    absl::Duration timeout = absl::Milliseconds(1500);
  };
  // Questions whose answer has not come: more are not asked.
  static constexpr int kMaxOpen = 32;
  using OnAnswer = std::function<void(std::vector<CoordinatorView>)>;

  // The loop must outlive the client.
  FleetClient(Options options, EventLoop* loop);
  // Closes.
  ~FleetClient();

  // Cancels what runs and waits for its end; what is asked later is answered
  // with UNAVAILABLE. Not on the loop's thread; answers may come after it.
  // Idempotent.
  void Close();

  // Asks all coordinators at once, with the token of an operator (empty: none).
  // `on_answer` is called once, on the loop, with a view of each in their
  // order. False where kMaxOpen wait already: nothing is asked.
  bool Ask(const std::string& token, OnAnswer on_answer);

 private:
  class State;  // keeps gRPC out of this header

  const std::shared_ptr<State> state_;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_FLEET_CLIENT_H_
