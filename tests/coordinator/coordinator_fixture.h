// A whole coordinator in the test's process, served on a free port.

#ifndef TESTS_COORDINATOR_COORDINATOR_FIXTURE_H_
#define TESTS_COORDINATOR_COORDINATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "coordinator/api/admin_service.h"
#include "coordinator/api/inference_service.h"
#include "coordinator/api/registry_service.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/observe/observability.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/fake_worker.h"

namespace nacre::coordinator {

class CoordinatorFixture : public ::testing::Test {
 protected:
  // Changes the dispatcher's options before it is made.
  using Adjust = std::function<void(Dispatcher::Options*)>;
  explicit CoordinatorFixture(const Adjust& adjust =
                                  [](Dispatcher::Options*) {})
      : dispatcher_(MakeOptions(adjust)) {}

  // Polls: for what ends without an event that a test could wait for.
  template <typename Condition>
  static bool Eventually(const Condition& condition) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }

  const std::string& address() const { return server_->address(); }
  std::shared_ptr<grpc::Channel> Channel() const {
    return rpc::CreateChannel(address());
  }

  // Sets what ends a call that hangs.
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  }

  const ByteTokenizer tokenizer_;
  Observability observability_{{.model = "pearl"}};
  Dispatcher dispatcher_;
  // Silence passes as fast as a test wants.
  std::atomic<int64_t> silence_ns_{0};
  RegistryService registry_{&dispatcher_, &tokenizer_, {.now_ns = [this] {
                              return MonotonicNs() + silence_ns_;
                            }}};
  InferenceService inference_{&dispatcher_, &tokenizer_,
                              observability_.observer()};
  AdminService admin_{&dispatcher_, &registry_};
  std::unique_ptr<rpc::RpcServer> server_ = *rpc::RpcServer::Start(
      {"127.0.0.1:0", ""}, {&registry_, &inference_, &admin_});

 private:
  // A lost target ends its sessions at once: failover has tests of its own.
  Dispatcher::Options MakeOptions(const Adjust& adjust) {
    Dispatcher::Options options;
    options.tokenizer = &tokenizer_;
    options.observer = observability_.observer();
    options.failover_timeout_ns = 0;
    adjust(&options);
    return options;
  }
};

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_COORDINATOR_FIXTURE_H_
