#include "telemetry/otlp_client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "common/rpc/grpc_status.h"
#include "proto/otlp/trace_service.grpc.pb.h"
#include "telemetry/build_info.h"

namespace nacre::telemetry {
namespace {

namespace common = opentelemetry::proto::common::v1;
namespace trace = opentelemetry::proto::trace::v1;
namespace service = opentelemetry::proto::collector::trace::v1;

struct SetValue {
  common::AnyValue* out;

  void operator()(const std::string& value) { out->set_string_value(value); }
  void operator()(int64_t value) { out->set_int_value(value); }
  void operator()(double value) { out->set_double_value(value); }
  void operator()(bool value) { out->set_bool_value(value); }
  void operator()(const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      out->mutable_array_value()->add_values()->set_string_value(value);
    }
  }
};

template <typename Id>
std::string Bytes(const Id& id) {
  return std::string(id.begin(), id.end());
}

void FillSpan(const Span& span, trace::Span* proto) {
  proto->set_trace_id(Bytes(span.trace_id));
  proto->set_span_id(Bytes(span.span_id));
  if (span.parent_id != SpanId{}) {
    proto->set_parent_span_id(Bytes(span.parent_id));
  }
  proto->set_trace_state(span.trace_state);
  proto->set_name(span.name);
  proto->set_kind(span.server ? trace::Span::SPAN_KIND_SERVER
                              : trace::Span::SPAN_KIND_INTERNAL);
  proto->set_start_time_unix_nano(static_cast<uint64_t>(span.start_ns));
  proto->set_end_time_unix_nano(static_cast<uint64_t>(span.end_ns));
  for (const auto& [key, value] : span.attributes) {
    common::KeyValue* attribute = proto->add_attributes();
    attribute->set_key(key);
    std::visit(SetValue{attribute->mutable_value()}, value);
  }
  for (const SpanLink& link : span.links) {
    trace::Span::Link* out = proto->add_links();
    out->set_trace_id(Bytes(link.trace_id));
    out->set_span_id(Bytes(link.span_id));
    common::KeyValue* attribute = out->add_attributes();
    attribute->set_key("nacre.link");
    attribute->mutable_value()->set_string_value(link.kind);
  }
  proto->set_dropped_links_count(static_cast<uint32_t>(span.dropped_links));
  if (span.error) {
    proto->mutable_status()->set_code(trace::Status::STATUS_CODE_ERROR);
    proto->mutable_status()->set_message(span.error_message);
  }
}

// Not rpc::CreateChannel's: collectors send away a client that pings as often
// as our processes do among themselves.
std::shared_ptr<grpc::Channel> Dial(const Collector& collector) {
  grpc::ChannelArguments arguments;
  if (collector.gzip) {
    arguments.SetCompressionAlgorithm(GRPC_COMPRESS_GZIP);
  }
  return grpc::CreateCustomChannel(collector.endpoint,
                                   collector.security.credentials == nullptr
                                       ? grpc::InsecureChannelCredentials()
                                       : collector.security.credentials,
                                   arguments);
}

}  // namespace

struct OtlpClient::Stub {
  std::unique_ptr<service::TraceService::Stub> stub;
};

OtlpClient::OtlpClient(Collector collector, Resource resource)
    : collector_(std::move(collector)),
      resource_(std::move(resource)),
      stub_(new Stub{service::TraceService::NewStub(Dial(collector_))}) {}

OtlpClient::~OtlpClient() = default;

absl::StatusOr<int64_t> OtlpClient::Send(absl::Span<const Span> spans,
                                         absl::Time deadline) {
  service::ExportTraceServiceRequest request;
  trace::ResourceSpans* resource = request.add_resource_spans();
  for (const auto& [key, value] : resource_) {
    common::KeyValue* attribute =
        resource->mutable_resource()->add_attributes();
    attribute->set_key(key);
    attribute->mutable_value()->set_string_value(value);
  }
  trace::ScopeSpans* scope = resource->add_scope_spans();
  scope->mutable_scope()->set_name("nacre");
  scope->mutable_scope()->set_version(GetBuildInfo().version);
  for (const Span& span : spans) FillSpan(span, scope->add_spans());

  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  for (const auto& [key, value] : collector_.headers) {
    context.AddMetadata(key, value);
  }
  service::ExportTraceServiceResponse response;
  const grpc::Status status = stub_->stub->Export(&context, request, &response);
  if (!status.ok()) return rpc::FromGrpcStatus(status);
  return response.partial_success().rejected_spans();
}

}  // namespace nacre::telemetry
