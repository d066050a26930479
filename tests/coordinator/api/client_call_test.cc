// A call's parts in an order that gRPC may choose, without a connection.

#include "coordinator/api/client_call.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
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

// Whichever of the two limits is shorter, whatever the other one is.
TEST(ClientCallTest, ARequestIsAwaitedForTheShorterOfItsTwoLimits) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto end = [](int64_t client_timeout_ns, int64_t max_request_ns) {
    CallTimers timers(nullptr);
    const auto call = std::make_shared<RecordedCall>();
    grpc::ServerBidiReactor<grpc::ByteBuffer, v1::TokenizeResponse>* const
        grpc = call.get();
    Reception reception;
    reception.timers = &timers;
    reception.arrival_ns = 5 * kSecond;
    reception.client_timeout_ns = client_timeout_ns;
    reception.max_request_ns = max_request_ns;
    call->Receive(std::move(reception));
    timers.Tick(8 * kSecond - 1);
    EXPECT_TRUE(call->refused.empty());
    timers.Tick(8 * kSecond);
    grpc->OnDone();
    return call->refused;
  };
  const std::vector<absl::Status> refused = {absl::DeadlineExceededError(
      "the request had not come 3s after its call")};
  EXPECT_EQ(end(3 * kSecond, 10 * kSecond), refused);
  EXPECT_EQ(end(10 * kSecond, 3 * kSecond), refused);
  EXPECT_EQ(end(kNever, 3 * kSecond), refused);
}

}  // namespace
}  // namespace nacre::coordinator
