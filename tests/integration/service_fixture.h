// A running service for tests: the real coordinator and workers as processes on
// loopback, free ports, and a client.

#ifndef TESTS_INTEGRATION_SERVICE_FIXTURE_H_
#define TESTS_INTEGRATION_SERVICE_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files.h"
#include "common/rpc/channel.h"
#include "proto/admin.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "tests/telemetry/http_get.h"
#include "tools/cluster/cluster.h"
#include "tools/cluster/readiness.h"
#include "tools/generate/generation_client.h"
#include "tools/generate/prompts_file.h"

namespace nacre::integration {

inline constexpr absl::Duration kCallTimeout = absl::Minutes(2);

inline std::string TargetModel() { return NACRE_MODELS "/target"; }
inline std::string DraftModel() { return NACRE_MODELS "/draft"; }

class Service {
 public:
  explicit Service(int drafts = 1, const std::string& target = TargetModel(),
                   const std::string& draft = DraftModel())
      : Service(Options(drafts, target, draft)) {}

  static tools::Cluster::Options Options(
      int drafts = 1, const std::string& target = TargetModel(),
      const std::string& draft = DraftModel()) {
    tools::Cluster::Options options;
    options.target_model = target;
    options.draft_model = draft;
    options.drafts = drafts;
    options.bin_dir = NACRE_BIN;
    options.supervisor.backoff = absl::Milliseconds(50);
    return options;
  }

  explicit Service(tools::Cluster::Options options) {
    auto cluster = tools::Cluster::Start(std::move(options));
    if (!cluster.ok()) {
      ADD_FAILURE() << cluster.status();
      std::abort();
    }
    cluster_ = *std::move(cluster);
    Connect(cluster_->address(), cluster_->security(),
            cluster_->admin_address(), cluster_->operator_security());
  }

  // One that another process runs, in plaintext: it has no cluster().
  Service(const std::string& address, const std::string& admin_address) {
    Connect(address, {}, admin_address, {});
  }

  tools::Cluster& cluster() { return *cluster_; }
  tools::GenerationClient& client() { return *client_; }

  absl::StatusOr<v1::Complete> Generate(const v1::GenerateRequest& request) {
    return client_->Generate(request, kCallTimeout, [](const v1::Chunk&) {});
  }

  std::vector<v1::WorkerInfo> Workers() {
    grpc::ClientContext context;
    operator_security_.Apply(&context);
    v1::ListWorkersResponse response;
    const grpc::Status status =
        admin_->ListWorkers(&context, v1::ListWorkersRequest(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.workers().begin(), response.workers().end()};
  }

  v1::ServerInfo ServerInfo() {
    grpc::ClientContext context;
    operator_security_.Apply(&context);
    v1::ServerInfo info;
    const grpc::Status status =
        admin_->GetServerInfo(&context, v1::GetServerInfoRequest(), &info);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return info;
  }

  // Of a coordinator with Options::metrics_port: nodes of finished requests
  // that drafts sent beside the path that the text took. Chains have none.
  double WastedBranches() {
    return telemetry::Sum(telemetry::Scrape(cluster_->metrics_address()),
                          "nacre_spec_decode_draft_tokens_wasted_total",
                          "reason=\"branch\"");
  }

  // Polls until `condition` holds; fails the test after a minute.
  static bool Eventually(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (absl::Now() < deadline) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  }

  // Waits until every attached worker has reported, in a heartbeat sent after
  // this call began, no session and all of its KV free.
  bool KvReturnsToEmpty() {
    const absl::Time start = absl::Now();
    return Eventually([&] {
      for (const v1::WorkerInfo& worker : Workers()) {
        const absl::Duration age = absl::Nanoseconds(worker.heartbeat_age_ns());
        if (worker.heartbeat_age_ns() == 0 || age > absl::Now() - start ||
            worker.heartbeat().sessions() != 0 ||
            worker.heartbeat().kv_free_tokens() !=
                worker.hello().kv_capacity_tokens()) {
          return false;
        }
      }
      return true;
    });
  }

 private:
  void Connect(const std::string& address,
               const tools::ClientSecurity& security,
               const std::string& admin_address,
               const tools::ClientSecurity& operator_security) {
    client_ = std::make_unique<tools::GenerationClient>(address, security);
    operator_security_ = operator_security;
    admin_ = v1::Admin::NewStub(
        rpc::CreateChannel(admin_address, operator_security.channel));
  }

  std::unique_ptr<tools::Cluster> cluster_;
  std::unique_ptr<tools::GenerationClient> client_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  tools::ClientSecurity operator_security_;
};

// The first `count` prompts of a file of tests/data.
inline std::vector<tools::Prompt> LoadPrompts(const std::string& name,
                                              size_t count) {
  const std::string path = std::string(NACRE_TEST_DATA "/") + name;
  auto content = ReadFile(path);
  EXPECT_TRUE(content.ok()) << content.status();
  auto prompts = tools::ParsePrompts(name, *content);
  EXPECT_TRUE(prompts.ok()) << prompts.status();
  if (prompts->size() > count) prompts->resize(count);
  return *prompts;
}

inline v1::GenerateRequest Request(const std::string& prompt, v1::Method method,
                                   int max_tokens) {
  v1::GenerateRequest request;
  request.set_text(prompt);
  request.mutable_speculation()->set_method(method);
  request.mutable_stop()->set_max_tokens(max_tokens);
  return request;
}

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_SERVICE_FIXTURE_H_
