// A coordinator's service for operators that answers as a test says.

#ifndef TESTS_GATEWAY_FAKE_ADMIN_H_
#define TESTS_GATEWAY_FAKE_ADMIN_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/server.h"
#include "proto/admin.grpc.pb.h"

namespace nacre::gateway {

// Has a target, a draft that drains, a session and one in the queue.
class FakeAdmin : public v1::Admin::Service {
 public:
  // `status`: of ListSessions; the other calls are OK.
  explicit FakeAdmin(grpc::Status status = grpc::Status::OK)
      : status_(std::move(status)) {
    rpc::RpcServer::Options options;
    options.max_threads = 64;  // each call holds one
    auto server = rpc::RpcServer::Start(options, {this});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~FakeAdmin() override { server_->Shutdown(absl::ZeroDuration()); }

  const std::string& address() const { return server_->address(); }
  // That came with the last ListSessions.
  std::string authorization() const {
    absl::MutexLock lock(&mu_);
    return authorization_;
  }

 private:
  grpc::Status GetServerInfo(grpc::ServerContext*,
                             const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    info->set_version("1.2.3");
    info->set_running_requests(1);
    info->set_queued_requests(1);
    return grpc::Status::OK;
  }
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse* response) override {
    v1::WorkerInfo* worker = response->add_workers();
    worker->mutable_hello()->set_role(v1::WORKER_ROLE_TARGET);
    worker->mutable_hello()->set_address("target:1");
    worker->set_ready(true);
    worker = response->add_workers();
    worker->mutable_hello()->set_role(v1::WORKER_ROLE_DRAFT);
    worker->mutable_hello()->set_address("draft:1");
    worker->mutable_heartbeat()->set_draining(true);
    return grpc::Status::OK;
  }
  grpc::Status ListSessions(grpc::ServerContext* context,
                            const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse* response) override {
    {
      absl::MutexLock lock(&mu_);
      const auto found = context->client_metadata().find("authorization");
      authorization_ =
          found == context->client_metadata().end()
              ? ""
              : std::string(found->second.data(), found->second.size());
    }
    response->add_sessions()->set_request_id("<b>running</b>");
    response->add_sessions()->set_queue_position(0);
    return status_;
  }

  const grpc::Status status_;
  std::unique_ptr<rpc::RpcServer> server_;
  mutable absl::Mutex mu_;
  std::string authorization_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::gateway

#endif  // TESTS_GATEWAY_FAKE_ADMIN_H_
