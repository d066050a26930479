// Shows ThreadSanitizer that an operation handed to gRPC happens before its
// completion is taken from a queue; see tsan_abseil.cc for why and how. gRPC's
// own threads take the completions of the callback API from such a queue too,
// so this orders a Start... call before the On...Done reaction that follows.

#include <dlfcn.h>
#include <grpc/grpc.h>

#include <cstdio>
#include <cstdlib>

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}

namespace {

// The next definition of `name` after this program's own.
template <typename Function>
Function* Real(Function*, const char* name) {
  void* real = dlsym(RTLD_NEXT, name);
  if (real == nullptr) {
    std::fprintf(stderr, "tsan_grpc: no function %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(real);
}

grpc_event Taken(grpc_event event) {
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops,
                                      size_t count, void* tag, void* reserved) {
  static auto* const real = Real(&grpc_call_start_batch, __func__);
  if (tag != nullptr) __tsan_release(tag);
  return real(call, ops, count, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                      gpr_timespec deadline, void* reserved) {
  static auto* const real = Real(&grpc_completion_queue_next, __func__);
  return Taken(real(queue, deadline, reserved));
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const real = Real(&grpc_completion_queue_pluck, __func__);
  return Taken(real(queue, tag, deadline, reserved));
}

}  // extern "C"
