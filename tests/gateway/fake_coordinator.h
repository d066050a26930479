// A coordinator that answers as a test says.

#ifndef TESTS_GATEWAY_FAKE_COORDINATOR_H_
#define TESTS_GATEWAY_FAKE_COORDINATOR_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/refusal.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/server.h"
#include "proto/inference.grpc.pb.h"

namespace nacre::gateway {

class FakeCoordinator : public v1::Inference::Service {
 public:
  using Writer = grpc::ServerWriter<v1::GenerateResponse>;
  using OnGenerate = std::function<grpc::Status(
      grpc::ServerContext*, const v1::GenerateRequest&, Writer*)>;

  explicit FakeCoordinator(OnGenerate on_generate)
      : on_generate_(std::move(on_generate)) {
    rpc::RpcServer::Options options;
    options.max_threads = 64;  // each call holds one
    auto server = rpc::RpcServer::Start(options, {this});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~FakeCoordinator() override { server_->Shutdown(absl::ZeroDuration()); }

  const std::string& address() const { return server_->address(); }
  // The last request, and the token that came with it.
  v1::GenerateRequest request() const {
    absl::MutexLock lock(&mu_);
    return request_;
  }
  std::string token() const {
    absl::MutexLock lock(&mu_);
    return token_;
  }

  // From now on GetModel fails as often, as of one that drains.
  void Drain(int answers) { drained_answers_ = answers; }
  bool is_draining() const { return drained_answers_ > 0; }

  void SetName(const std::string& name) {
    absl::MutexLock lock(&mu_);
    name_ = name;
  }
  void SetVocabSize(uint32_t size) { vocab_size_ = size; }
  void SetKvCapacity(uint64_t tokens) { kv_capacity_ = tokens; }
  // From now on GetModel fails without that bearer token.
  void RequireToken(const std::string& token) {
    absl::MutexLock lock(&mu_);
    required_ = "Bearer " + token;
  }

  // As of one whose queue is full. `retry_after_s` 0: it does not know when it
  // will not be.
  static grpc::Status QueueFull(int64_t retry_after_s = 0) {
    return rpc::ToGrpcStatus(WithRefusal(
        absl::ResourceExhaustedError("the queue is full: 5 requests wait"),
        {kQueueFull, retry_after_s}));
  }

  // What an answer of one choice ends with. `tokens`: of all of it, those that
  // came in chunks included.
  static v1::GenerateResponse Complete(const std::string& text, uint32_t index,
                                       uint32_t tokens = 1) {
    v1::GenerateResponse response;
    response.set_index(index);
    v1::Complete* const complete = response.mutable_complete();
    complete->set_text(text);
    complete->set_finish_reason(v1::FINISH_REASON_EOS);
    complete->mutable_usage()->set_prompt_tokens(3);
    complete->mutable_usage()->set_completion_tokens(tokens);
    for (uint32_t i = 0; i < tokens; ++i) complete->add_token_ids(300);
    complete->set_numerics_id("n");
    return response;
  }
  // One token, the choice's number `first`.
  static v1::GenerateResponse Chunk(const std::string& text, uint32_t index,
                                    uint32_t first = 0) {
    v1::GenerateResponse response;
    response.set_index(index);
    response.mutable_chunk()->set_first_index(first);
    response.mutable_chunk()->set_text(text);
    response.mutable_chunk()->add_token_ids(300);
    return response;
  }

 private:
  static std::string TokenOf(const grpc::ServerContext& context) {
    const auto found = context.client_metadata().find("authorization");
    return found == context.client_metadata().end()
               ? ""
               : std::string(found->second.data(), found->second.size());
  }
  grpc::Status GetModel(grpc::ServerContext* context,
                        const v1::GetModelRequest*, v1::Model* model) override {
    {
      absl::MutexLock lock(&mu_);
      model->set_name(name_);
      if (!required_.empty() && TokenOf(*context) != required_) {
        return {grpc::StatusCode::UNAUTHENTICATED, "the token is not accepted"};
      }
    }
    if (is_draining()) {
      --drained_answers_;
      return {grpc::StatusCode::UNAVAILABLE, "draining"};
    }
    model->set_context_length(100);
    model->set_vocab_size(vocab_size_);
    model->set_fingerprint("f");
    model->set_kv_capacity_tokens(kv_capacity_);
    return grpc::Status::OK;
  }
  grpc::Status Generate(grpc::ServerContext* context,
                        const v1::GenerateRequest* request,
                        Writer* writer) override {
    {
      absl::MutexLock lock(&mu_);
      request_ = *request;
      token_ = TokenOf(*context);
    }
    return on_generate_(context, *request, writer);
  }

  const OnGenerate on_generate_;
  std::atomic<int> drained_answers_{0};
  std::atomic<uint32_t> vocab_size_{4096};
  std::atomic<uint64_t> kv_capacity_{0};
  std::unique_ptr<rpc::RpcServer> server_;
  mutable absl::Mutex mu_;
  v1::GenerateRequest request_ ABSL_GUARDED_BY(mu_);
  std::string token_ ABSL_GUARDED_BY(mu_);
  std::string required_ ABSL_GUARDED_BY(mu_);  // empty: none
  std::string name_ ABSL_GUARDED_BY(mu_) = "target";
};

}  // namespace nacre::gateway

#endif  // TESTS_GATEWAY_FAKE_COORDINATOR_H_
