// A call that can wait in its middle. It runs on a stack of its own, so that an
// engine's forward takes virtual time while the rest of the world goes on.
//
// One thread uses a fiber and all that it calls.

#ifndef SIMULATION_FIBER_H_
#define SIMULATION_FIBER_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace nacre::simulation {

class Fiber {
 public:
  Fiber();
  // Requires: done().
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs `body` until it waits or returns. Requires: done().
  void Start(std::function<void()> body);
  // Lets a body that waits go on, until it waits again or returns.
  void Resume();
  // Called by the body: returns when Resume is called. `this` must run.
  void Wait();
  // Whether no body is under way.
  bool done() const { return done_; }
  // Whether the caller runs on this fiber.
  bool is_running() const { return running_; }

 private:
  struct Context;
  static void Enter(unsigned high, unsigned low);
  void Run();

  std::unique_ptr<Context> context_;
  std::function<void()> body_;
  bool done_ = true;
  bool running_ = false;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_FIBER_H_
