#include "coordinator/api/admin_service.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/api/attachment.h"
#include "tests/coordinator/coordinator_fixture.h"
#include "tests/coordinator/recording_sink.h"
#include "tests/testing/raw_call.h"
#include "wire/hello.h"

namespace nacre::coordinator {
namespace {

class AdminServiceTest : public CoordinatorFixture {
 protected:
  AdminServiceTest() : stub_(v1::Admin::NewStub(Channel())) {}

  v1::ServerInfo ServerInfo() {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::ServerInfo info;
    EXPECT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
    return info;
  }
  grpc::Status DrainWorker(const std::string& worker) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::DrainWorkerRequest request;
    request.set_address(worker);
    v1::DrainWorkerResponse response;
    return stub_->DrainWorker(&context, request, &response);
  }

  std::unique_ptr<v1::Admin::Stub> stub_;
};

TEST_F(AdminServiceTest, TheServerTellsItsVersionsAndItsLoad) {
  v1::ServerInfo info = ServerInfo();
  EXPECT_EQ(info.protocol_version(), wire::kProtocolVersion);
  EXPECT_FALSE(info.version().empty());
  EXPECT_EQ(info.running_requests(), 0u);
  EXPECT_EQ(info.policies_size(), 9);  // without files
  EXPECT_FALSE(info.draining());
  dispatcher_.Drain(absl::ZeroDuration());
  EXPECT_TRUE(ServerInfo().draining());
}

TEST_F(AdminServiceTest, WorkersAndSessionsAreListed) {
  FakeWorker target(v1::WORKER_ROLE_TARGET);
  FakeWorker draft(v1::WORKER_ROLE_DRAFT);
  target.Attach(address());
  draft.Attach(address());
  ASSERT_TRUE(target.AwaitAccepted());
  ASSERT_TRUE(draft.AwaitAccepted());
  RequestSpec request;
  request.request_id = "mine";
  request.num_choices = 2;
  request.choice = 1;
  request.prompt_ids = {7, 8};
  request.max_tokens = 10;
  request.method = speculation::Method::kSd;
  const auto session =
      dispatcher_.Start(request, std::make_shared<RecordingSink>());
  ASSERT_TRUE(session.ok());

  grpc::ClientContext workers_context;
  SetDeadline(&workers_context);
  v1::ListWorkersResponse workers;
  ASSERT_TRUE(stub_->ListWorkers(&workers_context, {}, &workers).ok());
  ASSERT_EQ(workers.workers_size(), 2);
  for (const v1::WorkerInfo& worker : workers.workers()) {
    EXPECT_TRUE(worker.ready());
    EXPECT_EQ(worker.sessions(), 1u);
    EXPECT_EQ(worker.hello().address(),
              worker.hello().role() == v1::WORKER_ROLE_DRAFT
                  ? draft.address()
                  : target.address());
  }

  grpc::ClientContext sessions_context;
  SetDeadline(&sessions_context);
  v1::ListSessionsResponse sessions;
  ASSERT_TRUE(stub_->ListSessions(&sessions_context, {}, &sessions).ok());
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.sessions(0).session_id(), *session);
  EXPECT_EQ(sessions.sessions(0).request_id(), "mine");
  EXPECT_EQ(sessions.sessions(0).choice(), 1u);
  EXPECT_EQ(sessions.sessions(0).method(), v1::METHOD_SD);
  EXPECT_EQ(sessions.sessions(0).prompt_tokens(), 2u);
  EXPECT_EQ(sessions.sessions(0).generated_tokens(), 0u);
  EXPECT_EQ(sessions.sessions(0).target_address(), target.address());
  EXPECT_EQ(sessions.sessions(0).draft_address(), draft.address());
  EXPECT_EQ(ServerInfo().running_requests(), 1u);
}

TEST_F(AdminServiceTest, AWorkerIsDrainedByItsAddress) {
  FakeWorker target(v1::WORKER_ROLE_TARGET);
  EXPECT_EQ(DrainWorker(target.address()).error_code(),
            grpc::StatusCode::NOT_FOUND);
  target.Attach(address());
  ASSERT_TRUE(target.AwaitAccepted());
  EXPECT_TRUE(DrainWorker(target.address()).ok());
  EXPECT_TRUE(target.commands.Await(
      [](const v1::WorkerCommand& command) { return command.has_drain(); }));
  EXPECT_EQ(DrainWorker("host:1").error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(AdminServiceTest, BytesThatAreNoRequestAreUnimplemented) {
  const auto* service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
          "nacre.v1.Admin");
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string& method = service->method(i)->name();
    EXPECT_EQ(nacre::testing::CallWithBytes(
                  Channel(), absl::StrCat("/nacre.v1.Admin/", method),
                  nacre::testing::kNoMessage)
                  .error_code(),
              grpc::StatusCode::UNIMPLEMENTED)
        << method;
  }
  EXPECT_FALSE(ServerInfo().draining());
}

}  // namespace
}  // namespace nacre::coordinator
