// One Generate call with metadata, and all that came back.

#ifndef TESTS_INTEGRATION_CALL_H_
#define TESTS_INTEGRATION_CALL_H_

#include <map>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "proto/inference.grpc.pb.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {

struct Answer {
  grpc::Status status;
  std::set<std::string> request_ids;  // of all responses
  v1::Complete complete;

  // The one of all responses; "" where they differ.
  std::string request_id() const {
    return request_ids.size() == 1 ? *request_ids.begin() : "";
  }
};

// `cancel_after_one`: cancels when the first response is there.
inline Answer Call(const std::string& address,
                   const v1::GenerateRequest& request,
                   const std::map<std::string, std::string>& metadata = {},
                   bool cancel_after_one = false) {
  const auto stub = v1::Inference::NewStub(rpc::CreateChannel(address));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  const auto reader = stub->Generate(&context, request);
  Answer answer;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    answer.request_ids.insert(response.request_id());
    if (response.has_complete()) answer.complete = response.complete();
    if (cancel_after_one) context.TryCancel();
  }
  answer.status = reader->Finish();
  return answer;
}

// Whether `text` holds any sixteen bytes in a row of `secret`, or all of it
// where it is shorter.
inline bool HoldsPartOf(absl::string_view text, absl::string_view secret) {
  constexpr size_t kLength = 16;
  if (secret.size() <= kLength) return text.find(secret) != text.npos;
  for (size_t i = 0; i + kLength <= secret.size(); ++i) {
    if (text.find(secret.substr(i, kLength)) != text.npos) return true;
  }
  return false;
}

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_CALL_H_
