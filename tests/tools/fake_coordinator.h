// The public API of a coordinator, answering as a test says: for tests of the
// commands that talk to one.

#ifndef TESTS_TOOLS_FAKE_COORDINATOR_H_
#define TESTS_TOOLS_FAKE_COORDINATOR_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/rpc/server.h"
#include "proto/admin.grpc.pb.h"
#include "proto/inference.grpc.pb.h"

namespace nacre::tools {

// Thread-safe. `generate` runs on the server's threads.
class FakeCoordinator final : public v1::Inference::Service,
                              public v1::Admin::Service {
 public:
  using Writer = grpc::ServerWriter<v1::GenerateResponse>;
  using GenerateFunction =
      std::function<grpc::Status(const v1::GenerateRequest& request,
                                 grpc::ServerContext* context, Writer* writer)>;

  // Null credentials: plaintext.
  explicit FakeCoordinator(
      GenerateFunction generate,
      std::shared_ptr<grpc::ServerCredentials> credentials = nullptr)
      : generate_(std::move(generate)) {
    v1::Inference::Service* inference = this;
    v1::Admin::Service* admin = this;
    auto server = rpc::RpcServer::Start(
        {.credentials = std::move(credentials), .max_threads = 64},
        {inference, admin});
    NACRE_CHECK(server.ok(), server.status().ToString().c_str());
    server_ = *std::move(server);
  }
  ~FakeCoordinator() override { server_->Shutdown(absl::ZeroDuration()); }

  const std::string& address() const { return server_->address(); }

  // What ListWorkers answers from now on, all ready.
  void SetWorkers(std::vector<v1::WorkerRole> roles) {
    absl::MutexLock lock(&mu_);
    roles_ = std::move(roles);
  }

  // What the last ListWorkers, and the last GetModel, showed as authorization.
  std::string operator_authorization() {
    absl::MutexLock lock(&mu_);
    return operator_authorization_;
  }
  std::string client_authorization() {
    absl::MutexLock lock(&mu_);
    return client_authorization_;
  }

  // Called by each GetModel before it answers.
  void OnGetModel(std::function<void(grpc::ServerContext*)> on_get_model) {
    absl::MutexLock lock(&mu_);
    on_get_model_ = std::move(on_get_model);
  }

  std::vector<v1::GenerateRequest> requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

  // Sends one answer with these tokens.
  static void SendComplete(Writer* writer, const v1::Complete& complete) {
    v1::GenerateResponse response;
    *response.mutable_complete() = complete;
    writer->Write(response);
  }

 private:
  grpc::Status Generate(grpc::ServerContext* context,
                        const v1::GenerateRequest* request,
                        Writer* writer) override {
    {
      absl::MutexLock lock(&mu_);
      requests_.push_back(*request);
    }
    return generate_(*request, context, writer);
  }

  static std::string Authorization(const grpc::ServerContext& context) {
    const auto& metadata = context.client_metadata();
    const auto it = metadata.find("authorization");
    if (it == metadata.end()) return "";
    return std::string(it->second.data(), it->second.size());
  }

  grpc::Status GetModel(grpc::ServerContext* context,
                        const v1::GetModelRequest*, v1::Model* model) override {
    std::function<void(grpc::ServerContext*)> on_get_model;
    {
      absl::MutexLock lock(&mu_);
      client_authorization_ = Authorization(*context);
      on_get_model = on_get_model_;
    }
    if (on_get_model != nullptr) on_get_model(context);
    model->set_name("fake");
    model->set_numerics_id("fake-numerics");
    return grpc::Status::OK;
  }

  // A token for each byte.
  grpc::Status Tokenize(grpc::ServerContext*,
                        const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    for (const char byte : request->text()) {
      response->add_token_ids(static_cast<unsigned char>(byte));
    }
    return grpc::Status::OK;
  }

  grpc::Status ListWorkers(grpc::ServerContext* context,
                           const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse* response) override {
    absl::MutexLock lock(&mu_);
    operator_authorization_ = Authorization(*context);
    for (const v1::WorkerRole role : roles_) {
      v1::WorkerInfo* worker = response->add_workers();
      worker->mutable_hello()->set_role(role);
      worker->set_ready(true);
    }
    return grpc::Status::OK;
  }

  const GenerateFunction generate_;
  absl::Mutex mu_;
  std::vector<v1::WorkerRole> roles_ ABSL_GUARDED_BY(mu_);
  std::function<void(grpc::ServerContext*)> on_get_model_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::GenerateRequest> requests_ ABSL_GUARDED_BY(mu_);
  std::string operator_authorization_ ABSL_GUARDED_BY(mu_);
  std::string client_authorization_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<rpc::RpcServer> server_;
};

}  // namespace nacre::tools

#endif  // TESTS_TOOLS_FAKE_COORDINATOR_H_
