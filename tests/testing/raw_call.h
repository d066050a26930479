// A call whose request is any bytes, well-formed or not.

#ifndef TESTS_TESTING_RAW_CALL_H_
#define TESTS_TESTING_RAW_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace nacre::testing {

// No protobuf message begins like this.
inline constexpr char kNoMessage[] =
    "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";

// Calls `method`, as in "/nacre.v1.Admin/ListWorkers", sends `bytes` as its
// only message, or nothing at all and leaves its side open where there are
// none; reads all answers and tells how it ended.
inline grpc::Status CallWithBytes(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
    const std::optional<std::string>& bytes,
    const std::map<std::string, std::string>& metadata = {}) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::minutes(1));
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  const auto call = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  if (bytes.has_value()) {
    const grpc::Slice slice(*bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    queue.Next(&tag, &ok);
  }
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
    queue.Next(&tag, &ok);
  } while (ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

}  // namespace nacre::testing

#endif  // TESTS_TESTING_RAW_CALL_H_
