// Bytes as the JSON body of a request: what is taken keeps the service's limits
// and can be sent to it. The first byte chooses completion or chat.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "gateway/request_convert.h"

namespace {

namespace gateway = nacre::gateway;

void CheckTaken(const gateway::ApiRequest& request) {
  NACRE_CHECK(request.n >= 1 && request.n <= 16, "n");
  NACRE_CHECK(request.is_chat == request.prompts.empty(), "prompts");
  NACRE_CHECK(request.prompts.size() <= gateway::kMaxPrompts, "too many");
  NACRE_CHECK(request.prompts.size() * static_cast<size_t>(request.n) <=
                  gateway::kMaxBatchChoices,
              "too many choices");
  const auto& output = request.generate.output();
  NACRE_CHECK(output.logprobs() <= 20 && output.prompt_logprobs() <= 20,
              "logprobs");
  NACRE_CHECK(!output.omit_streamed() || output.stream(), "nothing is said");
  NACRE_CHECK(request.generate.stop().stop_size() <= 16, "stop");
  // Text that is no UTF-8 would not travel.
  nacre::v1::GenerateRequest again;
  NACRE_CHECK(again.ParseFromString(request.generate.SerializeAsString()),
              "the service cannot read it");
}

void CheckRefused(const gateway::ApiError& error) {
  NACRE_CHECK(error.status == 400, "another status");
  NACRE_CHECK(error.message.size() < 2000, "it echoes the request");
  gateway::OrderedJson body;
  NACRE_CHECK(!gateway::ParseBody(gateway::ErrorBody(error), &body),
              "the error is no JSON");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view text(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  gateway::OrderedJson body;
  if (const auto error = gateway::ParseBody(text, &body)) {
    CheckRefused(*error);
    return 0;
  }
  gateway::ApiRequest request;
  const auto error = data[0] % 2 == 0
                         ? gateway::ConvertCompletion(body, {}, &request)
                         : gateway::ConvertChat(body, {}, &request);
  if (error) {
    CheckRefused(*error);
  } else {
    CheckTaken(request);
  }
  return 0;
}
