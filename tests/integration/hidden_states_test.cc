// The channel for the target's hidden states between real processes: cali-ts
// drafts with them, says how many there were, and goes on when they stop. No
// token depends on any of it.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/rpc/channel.h"
#include "model/config.h"
#include "proto/tensors.grpc.pb.h"
#include "tests/integration/proxied_pair.h"
#include "tests/integration/random_policy.h"
#include "tests/integration/streams.h"
#include "tests/testing/certificates.h"

namespace nacre::integration {
namespace {

constexpr v1::Method kMethods[] = {v1::METHOD_SD, v1::METHOD_PEARL,
                                   v1::METHOD_ASYNC};

// A calibration of the bundled pair.
class Calibration {
 public:
  Calibration() {
    folder_.WriteJson("cali-ts", Fingerprint(DraftModel()),
                      Fingerprint(TargetModel()));
    folder_.WriteTensors(Shuffled(
        testing::CaliTsTensors(model::ReadConfig(TargetModel())->hidden_size,
                               model::ReadConfig(DraftModel())->hidden_size)));
  }
  const std::string& path() const { return folder_.path(); }

 private:
  testing::PolicyFolder folder_;
};

class HiddenStatesTest : public ProxiedPairTest {
 protected:
  HiddenStatesTest()
      : hidden_size_(model::ReadConfig(TargetModel())->hidden_size) {
    Start({"--policy-file", "cali-ts=" + calibration_.path()});
  }

  static v1::GenerateRequest CaliTs(int kind, v1::Method method,
                                    int max_tokens) {
    v1::GenerateRequest request = StreamRequest(kind, method, max_tokens);
    request.mutable_speculation()->set_policy("cali-ts");
    return request;
  }
  // Requests until the draft has dialled the target; how many bytes came.
  uint64_t Dial() {
    uint64_t bytes = 0;
    EXPECT_TRUE(Service::Eventually([&] {
      bytes =
          Generate(CaliTs(0, v1::METHOD_SD, 40)).speculation().hidden_bytes();
      return bytes > 0;
    }));
    return bytes;
  }

  const uint64_t hidden_size_;
  const Calibration calibration_;
};

TEST_F(HiddenStatesTest, EveryMethodReadsThemAndSaysWhatArSays) {
  uint64_t bytes = Dial();
  for (const int kind : {0, 1, 2}) {
    const Tokens expected = Expected(kind, 80);
    for (const v1::Method method : kMethods) {
      v1::GenerateRequest request = CaliTs(kind, method, 80);
      request.mutable_output()->set_trace(true);
      // On a busy machine a draft may come too late for a whole answer.
      v1::Complete complete;
      EXPECT_TRUE(Service::Eventually([&] {
        complete = Generate(request);
        EXPECT_EQ(Ids(complete), expected) << method;
        return complete.speculation().hidden_bytes() > 0;
      }));
      const v1::SpeculationReport& report = complete.speculation();
      EXPECT_EQ(report.policy(), "cali-ts");
      EXPECT_GT(report.accepted(), 0u);
      // One a round at most, each of them whole.
      const uint64_t size = hidden_size_ * sizeof(float);
      EXPECT_GT(report.hidden_bytes(), 0u) << method;
      EXPECT_EQ(report.hidden_bytes() % size, 0u);
      EXPECT_LT(report.hidden_bytes() / size, report.rounds());
      uint64_t span_bytes = 0, span_ns = 0;
      for (const v1::TraceLane& lane : complete.trace()) {
        for (const v1::Span& span : lane.spans()) {
          if (span.kind() != v1::Span::KIND_HIDDEN) continue;
          EXPECT_EQ(lane.role(), v1::WORKER_ROLE_DRAFT);
          span_bytes += span.bytes();
          span_ns += span.duration_ns();
        }
      }
      EXPECT_EQ(report.hidden_bytes(), span_bytes);
      EXPECT_EQ(report.hidden_ns(), span_ns);
      bytes += report.hidden_bytes();
    }
  }
  EXPECT_EQ(Metric("nacre_hidden_state_bytes_total"),
            static_cast<double>(bytes));
  EXPECT_GE(Metric("nacre_hidden_state_seconds_total"), 0.0);
  // Both ends' own counts agree with it.
  const double size = static_cast<double>(hidden_size_ * sizeof(float));
  const double used = Metric("nacre_draft_tensors_used_total", "draft");
  // What a draft says of a request that has just ended is not counted there.
  EXPECT_GE(used * size, static_cast<double>(bytes));
  EXPECT_GT(used, 0);
  EXPECT_GE(Metric("nacre_draft_tensor_lag_seconds_total", "draft"),
            Metric("nacre_hidden_state_seconds_total") - 1e-6);
  const double received = Metric("nacre_draft_tensors_received_total", "draft");
  EXPECT_GE(received, used);
  EXPECT_EQ(Metric("nacre_draft_tensor_bytes_received_total", "draft"),
            received * size);
  EXPECT_EQ(Metric("nacre_draft_tensors_dropped_total", "draft", "malformed"),
            0);
  EXPECT_EQ(Metric("nacre_draft_tensor_channels_lost_total", "draft"), 0);
  ExpectSent(received);
  EXPECT_TRUE(Service::Eventually([&] {
    return Metric("nacre_target_tensor_bytes_sent_total", "target") ==
           Metric("nacre_target_tensors_sent_total", "target") * size;
  }));
  EXPECT_GE(Metric("nacre_target_tensors_replaced_total", "target"), 0);
  // The coordinator's connection and the draft's.
  EXPECT_EQ(to_target_.connections(), 2);
  EXPECT_EQ(CountInLog("draft", "going on without"), 0);
  processes_->Stop();
}

TEST_F(HiddenStatesTest, ALostChannelCostsTheScoreAndNoToken) {
  constexpr int kTokens = 300;
  Dial();
  for (const v1::Method method : kMethods) {
    const Tokens expected = Expected(1, kTokens);
    bool cut = false;
    const v1::Complete complete =
        Generate(CaliTs(1, method, kTokens), [&](const v1::Chunk& chunk) {
          if (chunk.first_index() < 60 || std::exchange(cut, true)) return;
          EXPECT_EQ(to_target_.connections(), 2);
          to_target_.SetLimit(1);
        });
    EXPECT_TRUE(cut);
    EXPECT_EQ(Ids(complete), expected) << method;
    EXPECT_EQ(complete.speculation().policy(),
              "cali-ts (no model score: the target's hidden states stopped "
              "coming)");
    EXPECT_GT(complete.speculation().hidden_bytes(), 0u);
    // It cannot be opened anew yet: without any state from the start.
    const v1::Complete without = Generate(CaliTs(1, method, kTokens));
    EXPECT_EQ(Ids(without), expected) << method;
    EXPECT_EQ(without.speculation().policy(), complete.speculation().policy());
    EXPECT_EQ(without.speculation().hidden_bytes(), 0u);
    // And now it can.
    to_target_.SetLimit(2);
    const v1::Complete again = Generate(CaliTs(1, method, kTokens));
    EXPECT_EQ(Ids(again), expected) << method;
    EXPECT_EQ(again.speculation().policy(), "cali-ts");
    EXPECT_GT(again.speculation().hidden_bytes(), 0u);
  }
  // Each outage is said with its cause: the cut, then the refusal.
  EXPECT_EQ(CountInLog("draft", "going on without"), 6);
  EXPECT_EQ(Metric("nacre_draft_tensor_channels_lost_total", "draft"), 6);
  processes_->Stop();
}

// With the draft's own flags, as the coordinator is dialled: one name in all
// certificates.
TEST(SecureHiddenStates, TheyComeOverTlsToWhoHasACertificate) {
  const nacre::testing::Authority authority("authority");
  const tools::TemporaryFolder folder;
  const rpc::TlsFiles files = authority.Issue(
      folder.path(), "own", {.alternative_names = "DNS:nacre.internal"});
  const Calibration calibration;
  tools::Cluster::Options options = Service::Options();
  options.tls = files;
  options.tls_server_name = "nacre.internal";
  options.more_args.draft = {"--policy-file", "cali-ts=" + calibration.path()};
  Service service(options);
  v1::GenerateRequest request = StreamRequest(0, v1::METHOD_SD, 300);
  request.mutable_speculation()->set_policy("cali-ts");
  const auto complete = service.Generate(request);
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_EQ(complete->speculation().policy(), "cali-ts");
  EXPECT_GT(complete->speculation().hidden_bytes(), 0u);

  for (const v1::WorkerInfo& worker : service.Workers()) {
    grpc::ClientContext context;
    const auto stub =
        v1::Tensors::NewStub(rpc::CreateChannel(worker.hello().address()));
    const auto stream = stub->Read(&context);
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

}  // namespace
}  // namespace nacre::integration
