#include "common/rpc/callback_threads.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <memory>

namespace nacre::rpc {
namespace {

using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

// A channel takes its share of the threads with its first call. This one has no
// credentials: its calls fail at once and it never connects.
Stub* StubWithThreads() {
  struct Call {
    grpc::ClientContext context;
    grpc::Slice nothing;
    grpc::ByteBuffer request{&nothing, 1};
    grpc::ByteBuffer response;
  };
  auto* stub = new Stub(grpc::CreateChannel("", nullptr));
  const auto call = std::make_shared<Call>();
  stub->UnaryCall(&call->context, "/nacre/None", grpc::StubOptions(),
                  &call->request, &call->response,
                  [call](const grpc::Status&) {});
  return stub;
}

}  // namespace

void KeepCallbackThreads() {
  // Used: the pointer stays, so that it is seen that nothing leaks.
  [[gnu::used]] static Stub* const kStub = StubWithThreads();
}

}  // namespace nacre::rpc
