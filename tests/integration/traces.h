// The trace of a request as a collector got it, against the answer.

#ifndef TESTS_INTEGRATION_TRACES_H_
#define TESTS_INTEGRATION_TRACES_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "tests/integration/call.h"
#include "tests/telemetry/fake_collector.h"

namespace nacre::integration {

using Span = telemetry::FakeCollector::Span;
using Spans = std::vector<Span>;

inline constexpr char kRootName[] = "nacre.v1.Inference/Generate";

// Those of this name, and those of a trace, its id in hexadecimal.
Spans Named(const Spans& spans, const std::string& name);
Spans OfTrace(const Spans& spans, const std::string& trace_id);

inline double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

// What a client knows of a request that was not moved.
struct TracedRequest {
  std::string method;
  v1::GenerateRequest request;
  Answer answer;
  std::string parent_id;  // in hexadecimal; empty: none
  std::string trace_state;
  std::string target;  // host:port
  std::string draft;   // empty: it had none
  std::string server;  // host:port that clients call
  // Absent: it did not wait.
  absl::optional<int> queue_position = absl::nullopt;
};

// Expects the spans to be the whole trace of the request, and to say what its
// answer says. The request asked for detailed statistics.
void CheckTrace(const Spans& spans, const TracedRequest& traced);

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_TRACES_H_
