// The gateway over HTTP, for tests of what it answers.

#ifndef TESTS_GATEWAY_GATEWAY_FIXTURE_H_
#define TESTS_GATEWAY_GATEWAY_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gateway/cors.h"
#include "gateway/gateway_service.h"
#include "gateway/http_server.h"
#include "tests/gateway/fake_coordinator.h"
#include "tests/gateway/http_probe.h"

namespace nacre::gateway {

// The gateway over HTTP with coordinators that say what a test wants.
class GatewayServiceTest : public ::testing::Test {
 protected:
  ~GatewayServiceTest() override {
    server_.reset();
    loop_.StopWork();
    if (client_ != nullptr) client_->Close();
    loop_.Stop();
  }

  void AddCoordinator(FakeCoordinator::OnGenerate on_generate) {
    coordinators_.push_back(
        std::make_unique<FakeCoordinator>(std::move(on_generate)));
    client_options_.addresses.push_back(coordinators_.back()->address());
  }

  void StartGateway() {
    if (coordinators_.empty()) {
      AddCoordinator([](auto*, const v1::GenerateRequest& request,
                        FakeCoordinator::Writer* writer) {
        for (uint32_t i = request.n(); i-- > 0;) {
          if (request.output().stream()) {
            writer->Write(FakeCoordinator::Chunk(absl::StrCat("t", i), i));
          }
          writer->Write(FakeCoordinator::Complete(absl::StrCat("t", i), i));
        }
        return grpc::Status::OK;
      });
    }
    client_ = std::make_unique<InferenceClient>(client_options_, &loop_);
    auto tokenizer = tokenizer::LoadTokenizer(NACRE_MODELS "/target");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    chat::TemplateFiles files{.model_dir = NACRE_MODELS "/target"};
    std::string file = ::testing::TempDir() + "/chat_templateXXXXXX";
    if (!chat_template_.empty()) {
      close(mkstemp(file.data()));
      std::ofstream(file) << chat_template_;
      files.file = file;
    }
    auto chats = ChatPrompts::Load(files, *tokenizer_);
    ASSERT_TRUE(chats.ok()) << chats.status();
    chats_ = std::make_unique<ChatPrompts>(*std::move(chats));
    options_.loop = &loop_;
    options_.client = client_.get();
    options_.tokenizer = tokenizer_.get();
    options_.chats = chats_.get();
    options_.metrics = &metrics_;
    service_ = std::make_unique<GatewayService>(options_);
    auto server = HttpServer::Start(
        {.listen = "127.0.0.1:0",
         .on_answer = [this](
                          const std::string& path,
                          int status) { metrics_.CountAnswer(path, status); },
         .refusal_headers =
             [](const std::string& origin) { return CorsHeaders({}, origin); }},
        &loop_, [this](HttpRequest request, const auto& reply) {
          service_->Handle(std::move(request), reply);
        });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_->AwaitFirstAnswers(absl::Minutes(1));
    ASSERT_TRUE(client_->ready());
  }

  std::string PostJson(const std::string& path, const std::string& body,
                       const std::string& headers = "") {
    return Post(server_->address(), path, body,
                "Content-Type: application/json\r\n" + headers);
  }
  // The data of the events of a stream.
  std::vector<std::string> Events(const std::string& body) {
    const std::string text = Unchunk(BodyOf(PostJson("/v1/completions", body)));
    std::vector<std::string> events;
    for (const absl::string_view event :
         absl::StrSplit(text, "\n\n", absl::SkipEmpty())) {
      events.push_back(std::string(event));
    }
    return events;
  }
  static OrderedJson JsonOf(const std::string& event) {
    return OrderedJson::parse(event.substr(event.find('{')));
  }

  EventLoop loop_;
  std::vector<std::unique_ptr<FakeCoordinator>> coordinators_;
  InferenceClient::Options client_options_;
  std::unique_ptr<InferenceClient> client_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::string chat_template_;  // empty: there is none
  std::unique_ptr<ChatPrompts> chats_;
  GatewayMetrics metrics_;
  GatewayService::Options options_;
  std::unique_ptr<GatewayService> service_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace nacre::gateway

#endif  // TESTS_GATEWAY_GATEWAY_FIXTURE_H_
