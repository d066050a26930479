// The metrics of a whole coordinator against the answers that it gave.

#include "coordinator/observe/observability.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "coordinator/observe/fleet_metrics.h"
#include "tests/coordinator/coordinator_fixture.h"
#include "tests/telemetry/fake_collector.h"
#include "tests/telemetry/http_get.h"

namespace nacre::coordinator {
namespace {

class ObservabilityTest : public CoordinatorFixture {
 protected:
  ObservabilityTest() : stub_(v1::Inference::NewStub(Channel())) {}

  // The target verifies two draft tokens a step and accepts one, until it has
  // said "done", a word a step.
  void Script() {
    target_.target.SetScript([this](const v1::TargetControl& control) {
      for (const v1::OpenTarget& open : control.open()) {
        uint32_t length = open.token_ids_size();
        const std::vector<std::string> words = {"well ", "it ", "is ", "done"};
        for (const std::string& word : words) {
          v1::TargetEvent event;
          v1::Verdict* verdict = event.add_verdicts();
          verdict->set_session_id(open.session_id());
          verdict->set_base_length(length);
          for (const int32_t id : Bytes(word)) verdict->add_token_ids(id);
          length += word.size();
          if (open.has_draft()) {
            verdict->set_window(2);
            verdict->set_verified(2);
            verdict->set_accepted(1);
          }
          verdict->set_degraded(!open.has_draft());
          if (&word == &words.back()) {
            verdict->set_finish(v1::FINISH_REASON_LENGTH);
          }
          target_.target.Send(std::move(event));
        }
      }
    });
  }

  grpc::Status Generate(const v1::GenerateRequest& request,
                        v1::Complete* complete) {
    grpc::ClientContext context;
    SetDeadline(&context);
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) *complete = response.complete();
    return reader->Finish();
  }

  double Sum(const std::string& name, const std::string& part = "") {
    return telemetry::Sum(
        telemetry::Collect(*observability_.metrics().collectable()), name,
        part);
  }

  FakeWorker target_{v1::WORKER_ROLE_TARGET};
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST_F(ObservabilityTest, SumsReconcileWithTheAnswers) {
  target_.Attach(address());
  ASSERT_TRUE(target_.AwaitAccepted());
  // Gone again: from now on one is missing.
  FakeWorker draft(v1::WORKER_ROLE_DRAFT);
  draft.Attach(address());
  ASSERT_TRUE(draft.AwaitAccepted());
  draft.Detach();
  ASSERT_TRUE(Eventually([&] { return dispatcher_.workers().size() == 1; }));
  Script();
  uint64_t prompt = 0, completion = 0, rounds = 0, verified = 0, accepted = 0,
           degraded = 0, drafted = 0;
  constexpr int kRequests = 8;
  for (int i = 0; i < kRequests; ++i) {
    v1::GenerateRequest request;
    request.set_text(std::string(static_cast<size_t>(i + 1), 'x'));
    // Cut off in the middle of a round: what follows is no part of the answer.
    if (i % 2 == 1) request.mutable_stop()->add_stop("is");
    if (i % 4 == 3) request.mutable_speculation()->set_method(v1::METHOD_AR);
    v1::Complete complete;
    const grpc::Status status = Generate(request, &complete);
    ASSERT_TRUE(status.ok()) << status.error_message();
    prompt += complete.usage().prompt_tokens();
    completion += complete.usage().completion_tokens();
    rounds += complete.speculation().rounds();
    drafted += complete.speculation().drafted();
    verified += complete.speculation().verified();
    accepted += complete.speculation().accepted();
    degraded += complete.speculation().degraded_rounds();
  }
  // And one that never became a request.
  v1::Complete none;
  EXPECT_FALSE(Generate(v1::GenerateRequest(), &none).ok());

  EXPECT_GT(completion, 0u);
  EXPECT_GT(degraded, 0u);
  EXPECT_EQ(Sum("nacre_prompt_tokens_total"), prompt);
  EXPECT_EQ(Sum("nacre_generation_tokens_total"), completion);
  EXPECT_EQ(Sum("nacre_spec_decode_mode_rounds_total"), rounds);
  EXPECT_EQ(Sum("nacre_spec_decode_num_draft_tokens_total"), drafted);
  EXPECT_EQ(Sum("nacre_spec_decode_num_verified_tokens_total"), verified);
  EXPECT_EQ(Sum("nacre_spec_decode_num_accepted_tokens_total"), accepted);
  EXPECT_EQ(Sum("nacre_spec_decode_degraded_rounds_total"), degraded);
  EXPECT_EQ(Sum("nacre_requests_total", "finish_reason=\"length\""), 4);
  EXPECT_EQ(Sum("nacre_requests_total", "finish_reason=\"stop\""), 4);
  EXPECT_EQ(Sum("nacre_requests_total", "INVALID_ARGUMENT"), 1);
  EXPECT_EQ(Sum("nacre_requests_total"), kRequests + 1);
  EXPECT_EQ(Sum("nacre_e2e_request_latency_seconds_count"), kRequests);
  EXPECT_EQ(Sum("nacre_time_to_first_token_seconds_count"), kRequests);
  EXPECT_EQ(Sum("nacre_num_requests_running"), 0);
}

TEST_F(ObservabilityTest, ServesRequestsAndFleetOnOnePage) {
  Observability served({.model = "pearl", .metrics = {"127.0.0.1:0", ""}});
  ASSERT_TRUE(served.Start(&registry_, &dispatcher_).ok());
  const auto text = [&served] {
    return telemetry::HttpGet(served.metrics_address(), "/metrics");
  };
  EXPECT_NE(text().find("nacre_num_requests_running{model=\"pearl\"} 0"),
            std::string::npos);
  EXPECT_NE(text().find("nacre_workers{role=\"target\",state=\"ready\"} 0"),
            std::string::npos);
  // There has been none: none is missing.
  EXPECT_EQ(text().find("nacre_workers{role=\"draft\""), std::string::npos);
  EXPECT_NE(text().find("nacre_build_info{"), std::string::npos);
  served.Stop();
  EXPECT_EQ(text(), "");
}

// A request's span says where its client called.
TEST(ObservabilityServerTest, AllAddressesAreTheHostsName) {
  std::string host_name(256, '\0');
  ASSERT_EQ(gethostname(host_name.data(), host_name.size()), 0);
  host_name.resize(host_name.find('\0'));
  for (const auto& [listen, host] :
       {std::pair<std::string, std::string>{"127.0.0.1:77", "127.0.0.1"},
        {"[::1]:77", "::1"},
        {"0.0.0.0:77", host_name},
        {"[::]:77", host_name}}) {
    telemetry::FakeCollector collector;
    {
      Observability::Options options;
      options.traces.collector.endpoint = collector.address();
      Observability observability(std::move(options));
      observability.SetServer(listen);
      observability.observer()->OnStarted(1, RequestSpec(), {}, 0);
      observability.observer()->OnFinished(
          1, RequestSpec(), absl::CancelledError("gone"), nullptr);
    }
    const auto spans = collector.spans();
    ASSERT_FALSE(spans.empty());
    EXPECT_EQ(telemetry::AttributeText(spans.back(), "server.address"), host);
    EXPECT_EQ(telemetry::AttributeText(spans.back(), "server.port"), "77");
  }
}

TEST_F(ObservabilityTest, WithoutAnAddressNothingIsServed) {
  Observability unserved({.model = "pearl"});
  EXPECT_TRUE(unserved.Start(&registry_, &dispatcher_).ok());
  EXPECT_EQ(unserved.metrics_address(), "");
}

}  // namespace
}  // namespace nacre::coordinator
