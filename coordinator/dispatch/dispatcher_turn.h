// One caller's turn at the dispatcher: holds its lock, and when it lets go of
// it does what is to be done then. Only for the dispatcher's own sources.

#ifndef COORDINATOR_DISPATCH_DISPATCHER_TURN_H_
#define COORDINATOR_DISPATCH_DISPATCHER_TURN_H_

#include "absl/base/thread_annotations.h"
#include "coordinator/dispatch/dispatcher.h"

namespace nacre::coordinator {

class ABSL_SCOPED_LOCKABLE Dispatcher::Turn {
 public:
  explicit Turn(Dispatcher* dispatcher)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(dispatcher->mu_)
          ABSL_NO_THREAD_SAFETY_ANALYSIS : dispatcher_(dispatcher) {
    dispatcher_->BeginTurn();
  }
  ~Turn() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    dispatcher_->Deliver(dispatcher_->EndTurn());
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Dispatcher* const dispatcher_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_DISPATCHER_TURN_H_
