// Asks a real server for its health, as a probe would.

#ifndef TESTS_TESTING_HEALTH_CHECK_H_
#define TESTS_TESTING_HEALTH_CHECK_H_

#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "common/rpc/channel.h"

namespace nacre::testing {

inline constexpr uint32_t kServing = 1;
inline constexpr uint32_t kNotServing = 2;

// grpc.health.v1.Health/Check, on a connection of its own. Its messages are not
// packaged as code; the wrapper types have the same bytes: one string, one
// number, both field 1.
inline absl::StatusOr<uint32_t> CheckHealth(
    const std::string& address, const std::string& service,
    std::chrono::milliseconds patience = std::chrono::minutes(1)) {
  using google::protobuf::StringValue;
  using google::protobuf::UInt32Value;
  grpc::TemplatedGenericStub<StringValue, UInt32Value> stub(
      rpc::CreateChannel(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + patience);
  StringValue request;
  request.set_value(service);
  UInt32Value response;
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(),
                 &request, &response, [&](grpc::Status result) {
                   status = std::move(result);
                   done.Notify();
                 });
  done.WaitForNotification();
  if (!status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        status.error_message());
  }
  return response.value();
}

}  // namespace nacre::testing

#endif  // TESTS_TESTING_HEALTH_CHECK_H_
