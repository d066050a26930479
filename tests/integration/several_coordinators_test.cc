// Two coordinators that share two targets and two drafts: one dies under
// streams, and every answer is whole and exact.

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "tests/gateway/http_probe.h"
#include "tests/integration/service_fixture.h"
#include "tests/telemetry/http_get.h"

namespace nacre::integration {
namespace {

using Json = nlohmann::json;

constexpr int kMaxTokens = 300;
constexpr char kPrompt[] = "def main():";

v1::GenerateRequest StreamRequest(v1::Method method) {
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

class SeveralCoordinatorsTest : public ::testing::Test {
 protected:
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
    const Json body = {{"prompt", kPrompt},
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
      const Json json = Json::parse(std::string(event.substr(event.find('{'))),
                                    nullptr, false);
      EXPECT_TRUE(json.is_object() && json.contains("choices")) << event;
      if (!json.is_object() || !json.contains("choices")) continue;
      for (const Json& choice : json["choices"]) {
        text += choice["text"].get<std::string>();
      }
    }
    EXPECT_TRUE(done) << answer;
    return text;
  }

  // Every coordinator has all workers.
  bool AllAreBack() {
    for (const auto& coordinator : coordinators()) {
      const auto admin =
          v1::Admin::NewStub(rpc::CreateChannel(coordinator.admin));
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
      v1::ListWorkersResponse response;
      if (!admin->ListWorkers(&context, {}, &response).ok()) return false;
      int ready = 0;
      for (const auto& worker : response.workers()) ready += worker.ready();
      if (ready != 4) return false;
    }
    return true;
  }

  // No worker has granted more than it has.
  void CheckGrants() {
    int num_workers = 0;
    for (const std::string& line : service_.cluster().WorkerLines()) {
      const std::vector<std::string> parts = absl::StrSplit(line, "  metrics ");
      ASSERT_EQ(parts.size(), 2u) << line;
      const telemetry::Samples samples = telemetry::Scrape(parts[1]);
      for (const v1::WorkerInfo& worker : service_.Workers()) {
        const std::string label =
            absl::StrCat("worker=\"", worker.hello().address(), "\"");
        double granted = 0;
        int num_grants = 0;
        for (const auto& [sample, value] : samples) {
          if (sample.rfind("nacre_worker_kv_granted_tokens{", 0) != 0 ||
              sample.find(label) == std::string::npos) {
            continue;
          }
          granted += value;
          ++num_grants;
        }
        if (num_grants == 0) continue;  // of another worker
        EXPECT_EQ(num_grants, 2) << line;
        EXPECT_GT(granted, 0) << line;
        EXPECT_LE(granted,
                  static_cast<double>(worker.hello().kv_capacity_tokens()))
            << line;
        ++num_workers;
      }
    }
    EXPECT_EQ(num_workers, 4);
  }

  Service service_{Options()};
};

TEST_F(SeveralCoordinatorsTest, ACoordinatorThatDiesCutsNoAnswer) {
  const Answer expected = Stream(0, StreamRequest(v1::METHOD_AR));
  ASSERT_TRUE(expected.complete);
  ASSERT_EQ(expected.ids.size(), size_t{kMaxTokens});
  for (size_t victim = 0; victim < 2; ++victim) {
    std::vector<std::thread> clients;
    const char* const methods[] = {"ar", "sd", "pearl", "async"};
    for (const char* method : methods) {
      clients.emplace_back(
          [&, method] { EXPECT_EQ(TextOverHttp(method), expected.text); });
    }
    std::atomic<int> cut{0};
    for (const v1::Method method :
         {v1::METHOD_AR, v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
      for (const size_t first : {victim, 1 - victim}) {
        clients.emplace_back([&, method, first] {
          const Answer answer = Stream(first, StreamRequest(method));
          EXPECT_EQ(answer.ids, expected.ids);
          EXPECT_EQ(answer.text, expected.text);
          cut += answer.calls - 1;
        });
      }
    }
    bool killed = false;
    const Answer answer =
        Stream(victim, StreamRequest(v1::METHOD_ASYNC), [&](size_t have) {
          if (have < 10 || std::exchange(killed, true)) return;
          CheckGrants();
          const pid_t pid = service_.cluster().supervisor().PidOf(
              coordinators()[victim].name);
          ASSERT_GT(pid, 0);
          kill(pid, SIGKILL);
        });
    EXPECT_EQ(answer.ids, expected.ids);
    EXPECT_EQ(answer.text, expected.text);
    for (std::thread& client : clients) client.join();
    EXPECT_TRUE(killed);
    EXPECT_GT(answer.calls, 1);
    RecordProperty(absl::StrCat("cut_", victim), cut.load());
    ASSERT_TRUE(Service::Eventually([this] { return AllAreBack(); }));
    EXPECT_TRUE(service_.KvReturnsToEmpty());
    CheckGrants();
  }
}

}  // namespace
}  // namespace nacre::integration
