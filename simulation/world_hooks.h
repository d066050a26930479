// What makes a world (world.h) one of its kind: what its models compute and for
// how long, and what it hears of at every joint.

#ifndef SIMULATION_WORLD_HOOKS_H_
#define SIMULATION_WORLD_HOOKS_H_

#include <cstdint>
#include <memory>

#include "coordinator/dispatch/dispatcher.h"
#include "simulation/world_parts.h"

namespace nacre::simulation {

class WorldHooks {
 public:
  virtual ~WorldHooks() = default;

 protected:
  // What a world says of its workers:
  virtual std::unique_ptr<model::LanguageModel> NewModel(Process& process) = 0;
  virtual coordinator::WorkerInfo InfoOf(const Process& process) = 0;
  virtual LinkDelay HopOf(const Process& process) const = 0;
  // From an arrival until the engine looks, if it is idle: what arrives
  // meanwhile, it takes together.
  virtual int64_t DelayToLook(const Process&) { return 0; }
  // Whether one that hangs does so before it looks; else in the step that it
  // then begins, or when it looks again.
  virtual bool HangsIdle(const Process&) { return true; }
  // The worker's clock minus the virtual time.
  virtual int64_t ClockOffsetOf(const Process&) const { return 0; }
  // The KV that it divides among its coordinators; 0: each may use all.
  virtual int64_t SharedKvOf(const Process&) const { return 0; }
  // From a heartbeat of one that shares its KV to the next; 0: none follows.
  virtual int64_t HeartbeatPeriodNs() const { return 0; }
  // Options that are not the world's own.
  virtual void Equip(const Process&, target_worker::TargetEngine::Options*) {}
  virtual void Equip(const Process&, draft_worker::DraftEngine::Options*) {}

  // What a dispatcher says, when it says it:
  virtual void OnOpening(Connection&, const coordinator::TargetOpening&) {}
  virtual void OnOpening(Connection&, const coordinator::DraftOpening&) {}
  virtual void OnClosing(Connection&, uint64_t /*session_id*/) {}
  virtual void OnCommands(Connection&, wire::TargetCommands*) {}
  virtual void OnCommands(Connection&, wire::DraftCommands*) {}
  // When it gets to the worker's engine:
  virtual void OnArrived(Connection&, const wire::TargetCommands&) {}
  virtual void OnArrived(Connection&, const wire::DraftCommands&) {}
  // What a worker says, when it says it (and may be changed). Then as the codec
  // gives it back; that may get a note for its arrival:
  virtual void OnSaid(Connection&, wire::TargetEvents*) {}
  virtual void OnSaid(Connection&, wire::DraftEvents*) {}
  virtual std::shared_ptr<const void> NoteOf(Connection&,
                                             const wire::TargetEvents&) {
    return nullptr;
  }
  virtual std::shared_ptr<const void> NoteOf(Connection&,
                                             const wire::DraftEvents&) {
    return nullptr;
  }
  // Just before the dispatcher gets it:
  virtual void OnGranted(Connection&, const coordinator::KvGrant&) {}
  virtual void OnHeard(Connection&, const void* /*note*/,
                       const wire::TargetEvents&) {}
  virtual void OnHeard(Connection&, const void* /*note*/,
                       const wire::DraftEvents&) {}
  // The codec has changed a message, which holds nothing that is not equal to
  // itself: only asked where ChecksCodec().
  virtual bool ChecksCodec() const { return false; }
  virtual void OnCodecError(Connection&) {}
  // Just before the dispatcher is told of its loss:
  virtual void OnLosing(Connection&) {}
  // The engine has run once and is not in a step; its device has failed.
  virtual void OnRan(Process&) {}
  virtual void OnDeviceError(Process&) = 0;
  // An idle target's gate opens by time.
  virtual void OnGateTimeout(Process&) {}
};

}  // namespace nacre::simulation

#endif  // SIMULATION_WORLD_HOOKS_H_
