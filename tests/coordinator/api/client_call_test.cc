// A call's parts in an order that gRPC may choose, without a connection.

#include "coordinator/api/client_call.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "coordinator/dispatch/work_pool.h"
#include "proto/inference.pb.h"

namespace nacre::coordinator {
namespace {

class RecordedCall final : public ClientCall<v1::TokenizeResponse> {
 public:
  std::vector<absl::Status> refused;

 private:
  void OnRefused(const absl::Status& status) override {
    refused.push_back(status);
  }
};

// The pool's one thread is busy all the time.
TEST(ClientCallTest, ACallThatWasCancelledBeforeItsRequestCameIsNotHandled) {
  absl::Notification begun, go;
  bool is_handled = false;
  const auto call = std::make_shared<RecordedCall>();
  grpc::ServerBidiReactor<grpc::ByteBuffer, v1::TokenizeResponse>* const grpc =
      call.get();
  {
    WorkPool pool({.threads = 1});
    pool.TrySubmit(1, [&] {
      begun.Notify();
      go.WaitForNotification();
    });
    begun.WaitForNotification();
    Reception reception;
    reception.now_ns = MonotonicNs;
    reception.pool = &pool;
    reception.handle = [&](const grpc::ByteBuffer&) { is_handled = true; };
    call->Receive(std::move(reception));
    grpc->OnCancel();
    EXPECT_TRUE(call->refused.empty());  // its read ends first
    grpc->OnReadDone(true);
    EXPECT_EQ(call->refused, std::vector<absl::Status>{absl::CancelledError(
                                 "cancelled by the client")});
    go.Notify();
  }
  EXPECT_FALSE(is_handled);
  grpc->OnDone();
}

}  // namespace
}  // namespace nacre::coordinator
