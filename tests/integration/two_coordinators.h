// Two coordinators that share two targets and two drafts behind a gateway, and
// clients whose answers go on wherever they are cut.

#ifndef TESTS_INTEGRATION_TWO_COORDINATORS_H_
#define TESTS_INTEGRATION_TWO_COORDINATORS_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/json.h"
#include "common/rpc/channel.h"
#include "tests/gateway/http_probe.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {

inline constexpr int kMaxTokens = 300;
inline constexpr char kPrompt[] = "def main():";

inline v1::GenerateRequest MethodRequest(v1::Method method) {
  v1::GenerateRequest request = Request(kPrompt, method, kMaxTokens);
  request.mutable_output()->set_stream(true);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0.8f);
  request.mutable_sampling()->set_seed(5);
  return request;
}

// An answer of one choice as its client puts it together, over any number of
// calls.
struct Answer {
  std::vector<uint32_t> ids;
  std::string text;
  bool complete = false;
  int calls = 0;
};

class TwoCoordinatorsTest : public ::testing::Test {
 protected:
  explicit TwoCoordinatorsTest(tools::Cluster::Options options = Options())
      : service_(std::move(options)) {}

  static tools::Cluster::Options Options() {
    tools::Cluster::Options options = Service::Options(/*drafts=*/2);
    options.coordinators = 2;
    options.targets = 2;
    options.http_port = 0;
    options.metrics_port = 0;
    // On a busy machine the other one may not answer at once, either.
    options.more_args.gateway = {"--resume-timeout", "1h"};
    return options;
  }

  const std::vector<tools::Cluster::Coordinator>& coordinators() {
    return service_.cluster().coordinators();
  }

  // Reads one call to its end.
  void Read(size_t coordinator, const v1::GenerateRequest& request,
            Answer* answer, v1::Start* start,
            const std::function<void(size_t)>& on_tokens) {
    const auto inference = v1::Inference::NewStub(
        rpc::CreateChannel(coordinators()[coordinator].clients));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    const auto reader = inference->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      if (response.has_start()) *start = response.start();
      if (response.has_complete()) {
        EXPECT_FALSE(answer->complete) << "the answer ends twice";
        answer->complete = true;
        continue;
      }
      const v1::Chunk& chunk = response.chunk();
      // Neither shorter nor doubled.
      EXPECT_EQ(chunk.first_index(), answer->ids.size());
      answer->ids.insert(answer->ids.end(), chunk.token_ids().begin(),
                         chunk.token_ids().end());
      answer->text += chunk.text();
      on_tokens(answer->ids.size());
    }
    reader->Finish();
    ++answer->calls;
  }

  // Begins at a coordinator and goes on at the next one wherever it is cut.
  Answer Stream(
      size_t coordinator, const v1::GenerateRequest& request,
      const std::function<void(size_t)>& on_tokens = [](size_t) {}) {
    Answer answer;
    v1::Start start;
    v1::GenerateRequest next = request;
    const absl::Time deadline = absl::Now() + kCallTimeout;
    while (!answer.complete && absl::Now() < deadline) {
      Read(coordinator, next, &answer, &start, on_tokens);
      if (answer.complete) break;
      coordinator = (coordinator + 1) % coordinators().size();
      if (start.numerics_id().empty()) continue;
      *next.mutable_token_ids()->mutable_ids() = start.prompt_token_ids();
      next.mutable_sampling()->set_seed(start.seed());
      v1::Resume* const resume = next.mutable_resume();
      resume->set_model_fingerprint(start.model_fingerprint());
      resume->set_numerics_id(start.numerics_id());
      resume->clear_choices();
      resume->add_choices()->mutable_token_ids()->Add(answer.ids.begin(),
                                                      answer.ids.end());
    }
    return answer;
  }

  std::string TextOverHttp(const char* method) {
    const nlohmann::json body = {{"prompt", kPrompt},
                                 {"max_tokens", kMaxTokens},
                                 {"temperature", 0.8},
                                 {"seed", 5},
                                 {"ignore_eos", true},
                                 {"stream", true},
                                 {"nacre", {{"method", method}}}};
    const std::string answer = gateway::Post(service_.cluster().http_address(),
                                             "/v1/completions", body.dump());
    EXPECT_EQ(gateway::StatusOf(answer), 200) << answer;
    std::string text;
    bool done = false;
    for (const absl::string_view event :
         absl::StrSplit(gateway::Unchunk(gateway::BodyOf(answer)), "\n\n",
                        absl::SkipEmpty())) {
      EXPECT_FALSE(done) << "more after the end";
      done = event == "data: [DONE]";
      if (done) continue;
      const nlohmann::json json = nlohmann::json::parse(
          std::string(event.substr(event.find('{'))), nullptr, false);
      EXPECT_TRUE(json.is_object() && json.contains("choices")) << event;
      if (!json.is_object() || !json.contains("choices")) continue;
      for (const nlohmann::json& choice : json["choices"]) {
        text += choice["text"].get<std::string>();
      }
    }
    EXPECT_TRUE(done) << answer;
    return text;
  }

  Service service_;
};

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_TWO_COORDINATORS_H_
