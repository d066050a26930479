// Why the choices of a call end, as logs and traces are told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/synchronization/mutex.h"
#include "tests/coordinator/coordinator_fixture.h"

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class EndObserver : public Observer {
 public:
  void OnFinished(uint64_t, const RequestSpec& request,
                  const absl::Status& status, const Completion*) override {
    absl::MutexLock lock(&mu_);
    ends_[request.choice] = std::string(status.message());
  }
  // By choice.
  std::map<int, std::string> ends() const {
    absl::MutexLock lock(&mu_);
    return ends_;
  }

 private:
  mutable absl::Mutex mu_;
  std::map<int, std::string> ends_;
};

// The observer outlives the dispatcher: a worker's events may come while the
// test is being destroyed.
struct WithEndObserver {
  EndObserver observer;
};

// Four choices, each of which says one token and goes on.
class ChoicesEndTest : public WithEndObserver, public CoordinatorFixture {
 protected:
  ChoicesEndTest()
      : CoordinatorFixture([this](Dispatcher::Options* options) {
          options->observer = &observer;
        }),
        stub_(v1::Inference::NewStub(Channel())) {
    request_.set_text("hi");
    request_.set_n(4);
    request_.mutable_output()->set_stream(true);
  }

  // The last one to be opened fails, if it is to.
  void Attach(bool last_fails) {
    worker_.Attach(address());
    ASSERT_TRUE(worker_.AwaitAccepted());
    worker_.target.SetScript(
        [this, last_fails](const v1::TargetControl& control) {
          v1::TargetEvent event;
          for (const v1::OpenTarget& open : control.open()) {
            v1::Verdict* verdict = event.add_verdicts();
            verdict->set_session_id(open.session_id());
            verdict->set_base_length(open.token_ids_size());
            verdict->add_token_ids(Bytes("a")[0]);
            if (++num_opened_ < 4 || !last_fails) continue;
            v1::SessionError* error = event.add_errors();
            error->set_session_id(open.session_id());
            error->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
            error->set_message("a broken block");
          }
          worker_.target.Send(std::move(event));
        });
  }

  int num_opened_ = 0;  // of the worker's thread
  FakeWorker worker_{v1::WORKER_ROLE_TARGET};
  std::unique_ptr<v1::Inference::Stub> stub_;
  v1::GenerateRequest request_;
};

TEST_F(ChoicesEndTest, TheOthersOfAFailedOneSayThatItFailed) {
  Attach(/*last_fails=*/true);
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = stub_->Generate(&context, request_);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_TRUE(Eventually([&] { return observer.ends().size() == 4; }));
  const std::string others = "cancelled: another choice of the request failed";
  EXPECT_THAT(observer.ends(),
              ElementsAre(Pair(0, others), Pair(1, others), Pair(2, others),
                          Pair(3, "a broken block")));
}

TEST_F(ChoicesEndTest, ACancelOfTheClientIsTheReasonOfThemAll) {
  Attach(/*last_fails=*/false);
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto reader = stub_->Generate(&context, request_);
  v1::GenerateResponse response;
  std::set<uint32_t> begun;
  while (begun.size() < 4) {
    ASSERT_TRUE(reader->Read(&response));
    begun.insert(response.index());
  }
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return observer.ends().size() == 4; }));
  for (const auto& [choice, reason] : observer.ends()) {
    EXPECT_EQ(reason, "cancelled by the client") << choice;
  }
}

}  // namespace
}  // namespace nacre::coordinator
