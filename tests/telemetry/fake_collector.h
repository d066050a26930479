// An OpenTelemetry collector for tests: real gRPC on a free port, with TLS or
// without; remembers what it is sent. Thread-safe.

#ifndef TESTS_TELEMETRY_FAKE_COLLECTOR_H_
#define TESTS_TELEMETRY_FAKE_COLLECTOR_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/otlp/trace_service.grpc.pb.h"

namespace nacre::telemetry {

class FakeCollector final : public opentelemetry::proto::collector::trace::v1::
                                TraceService::CallbackService {
 public:
  using Request =
      opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
  using Response =
      opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;
  using Span = opentelemetry::proto::trace::v1::Span;

  explicit FakeCollector(
      std::shared_ptr<grpc::ServerCredentials> credentials = nullptr) {
    // Not our own server: collectors take compressed messages.
    if (credentials == nullptr) credentials = grpc::InsecureServerCredentials();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeCollector() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  const std::string& address() const { return address_; }

  // What the next calls answer.
  void Answer(const grpc::Status& status, int64_t rejected_spans = 0) {
    absl::MutexLock lock(&mu_);
    status_ = status;
    rejected_spans_ = rejected_spans;
  }

  // Waits until so many spans have come; false after a minute without them.
  bool AwaitSpans(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto there = [&]() { return Count() >= count; };
    return mu_.AwaitWithTimeout(absl::Condition(&there), absl::Minutes(1));
  }
  std::vector<Request> requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }
  // Of the calls so far, one after the other.
  std::multimap<std::string, std::string> metadata() {
    absl::MutexLock lock(&mu_);
    return metadata_;
  }
  std::vector<Span> spans() {
    std::vector<Span> spans;
    for (const Request& request : requests()) {
      for (const auto& resource : request.resource_spans()) {
        for (const auto& scope : resource.scope_spans()) {
          spans.insert(spans.end(), scope.spans().begin(), scope.spans().end());
        }
      }
    }
    return spans;
  }

  grpc::ServerUnaryReactor* Export(grpc::CallbackServerContext* context,
                                   const Request* request,
                                   Response* response) override {
    absl::MutexLock lock(&mu_);
    requests_.push_back(*request);
    for (const auto& [key, value] : context->client_metadata()) {
      metadata_.emplace(std::string(key.data(), key.size()),
                        std::string(value.data(), value.size()));
    }
    response->mutable_partial_success()->set_rejected_spans(rejected_spans_);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status_);
    return reactor;
  }

 private:
  size_t Count() const {
    size_t count = 0;
    for (const Request& request : requests_) {
      count += request.resource_spans(0).scope_spans(0).spans_size();
    }
    return count;
  }

  absl::Mutex mu_;
  std::vector<Request> requests_;
  std::multimap<std::string, std::string> metadata_;
  grpc::Status status_;
  int64_t rejected_spans_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// What the process that sent it says of itself.
inline std::map<std::string, std::string> ResourceOf(
    const FakeCollector::Request& request) {
  std::map<std::string, std::string> resource;
  for (const auto& attribute :
       request.resource_spans(0).resource().attributes()) {
    resource[attribute.key()] = attribute.value().string_value();
  }
  return resource;
}

// The value of an attribute in text; "" without it.
inline std::string AttributeText(const FakeCollector::Span& span,
                                 const std::string& key) {
  for (const auto& attribute : span.attributes()) {
    if (attribute.key() != key) continue;
    const auto& value = attribute.value();
    if (value.has_string_value()) return value.string_value();
    if (value.has_int_value()) return std::to_string(value.int_value());
    if (value.has_bool_value()) return value.bool_value() ? "true" : "false";
    if (value.has_double_value()) return std::to_string(value.double_value());
    return value.array_value().values(0).string_value();
  }
  return "";
}

}  // namespace nacre::telemetry

#endif  // TESTS_TELEMETRY_FAKE_COLLECTOR_H_
