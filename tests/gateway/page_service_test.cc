// The page and the fleet over HTTP.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/gateway/fake_admin.h"
#include "tests/gateway/gateway_fixture.h"

namespace nacre::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PageServiceTest : public GatewayServiceTest {
 protected:
  ~PageServiceTest() override {
    if (fleet_ != nullptr) fleet_->Close();
  }

  void ShowFleet(FakeAdmin* admin) {
    fleet_ = std::make_unique<FleetClient>(
        FleetClient::Options{{admin->address()}, {}, absl::Minutes(1)}, &loop_);
    options_.fleet = fleet_.get();
  }
  std::string GetPath(const std::string& path,
                      const std::string& headers = "") {
    return Get(server_->address(), path, headers);
  }
  static std::unique_ptr<rpc::BearerTokens> Tokens(const std::string& name) {
    const std::string file = absl::StrCat(::testing::TempDir(), "/page_tokens_",
                                          name, "_", getpid());
    EXPECT_TRUE(
        WriteFile(file, name + ":0123456789abcdef-" + name + "\n").ok());
    return *rpc::BearerTokens::Load(file);
  }
  static std::string Bearer(const std::string& name) {
    return "Authorization: Bearer 0123456789abcdef-" + name + "\r\n";
  }

  std::unique_ptr<FleetClient> fleet_;
};

TEST_F(PageServiceTest, ThePageIsAtTheRootAndNeedsNoToken) {
  const auto tokens = Tokens("client");
  options_.tokens = tokens.get();
  StartGateway();
  const std::string page = GetPath("/");
  EXPECT_EQ(StatusOf(page), 200) << page;
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(BodyOf(page), HasSubstr("<title>Nacre</title>"));
  EXPECT_EQ(StatusOf(GetPath("/ui/app.js")), 200);
  EXPECT_EQ(StatusOf(GetPath("/?query")), 200);
}

TEST_F(PageServiceTest, AStarAsksWhatTheServerCanDo) {
  StartGateway();
  for (const char* target : {"*", "http://h"}) {
    const std::string answer =
        Exchange(server_->address(), absl::StrCat("OPTIONS ", target,
                                                  " HTTP/1.1\r\nHost: h\r\n"
                                                  "Connection: close\r\n\r\n"));
    EXPECT_EQ(StatusOf(answer), 200) << target;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD, POST, OPTIONS\r\n"));
  }
  EXPECT_EQ(StatusOf(GetPath("*")), 400);
}

TEST_F(PageServiceTest, OtherPathsAndMethodsAreRefused) {
  StartGateway();
  const std::string none = GetPath("/ui/none.js");
  EXPECT_EQ(StatusOf(none), 404);
  EXPECT_THAT(none, HasSubstr("\"code\":\"unknown_url\""));
  for (const char* path : {"/", "/ui/app.js", "/nacre/fleet"}) {
    const std::string answer = PostJson(path, "{}");
    EXPECT_EQ(StatusOf(answer), 405) << path;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n"));
  }
  const std::string head =
      Exchange(server_->address(),
               "HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(StatusOf(head), 200);
  EXPECT_EQ(BodyOf(head), "");
}

TEST_F(PageServiceTest, ThePageMayBeOff) {
  options_.serves_page = false;
  StartGateway();
  EXPECT_EQ(StatusOf(GetPath("/")), 404);
  EXPECT_EQ(StatusOf(GetPath("/ui/app.js")), 404);
  EXPECT_EQ(StatusOf(GetPath("/health")), 200);
}

TEST_F(PageServiceTest, TheFleetIsWhatOperatorsSee) {
  FakeAdmin admin;
  ShowFleet(&admin);
  StartGateway();
  const std::string answer = GetPath("/nacre/fleet");
  ASSERT_EQ(StatusOf(answer), 200) << answer;
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(answer, HasSubstr("Cache-Control: no-store\r\n"));
  const OrderedJson json = JsonOf(BodyOf(answer))["coordinators"][0];
  EXPECT_EQ(json["address"], admin.address());
  EXPECT_EQ(json["workers"][1]["draining"], true);
  EXPECT_EQ(json["sessions"][0]["request_id"], "<b>running</b>");
  EXPECT_EQ(json["sessions"][1]["queue_position"], 0);
  EXPECT_EQ(admin.authorization(), "");
}

TEST_F(PageServiceTest, WithoutAdminTheFleetIsNotShown) {
  StartGateway();
  const std::string answer = GetPath("/nacre/fleet");
  EXPECT_EQ(StatusOf(answer), 404);
  EXPECT_THAT(answer, HasSubstr("\"code\":\"fleet_not_shown\""));
}

TEST_F(PageServiceTest, TheFleetNeedsTheTokenOfAnOperator) {
  const auto clients = Tokens("client");
  const auto operators = Tokens("operator");
  options_.tokens = clients.get();
  options_.admin_tokens = operators.get();
  FakeAdmin admin;
  ShowFleet(&admin);
  StartGateway();
  for (const std::string& header :
       {std::string(), Bearer("client"), Bearer("other")}) {
    const std::string answer = GetPath("/nacre/fleet", header);
    EXPECT_EQ(StatusOf(answer), 401) << header;
    EXPECT_THAT(answer, Not(HasSubstr("target:1")));
  }
  EXPECT_EQ(StatusOf(GetPath("/nacre/fleet", Bearer("operator"))), 200);
  EXPECT_EQ(admin.authorization(), "Bearer 0123456789abcdef-operator");
  EXPECT_EQ(StatusOf(GetPath("/v1/models", Bearer("operator"))), 401);
}

TEST_F(PageServiceTest, ACoordinatorThatRefusesTheTokenIsBelieved) {
  FakeAdmin admin(grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "who?"));
  ShowFleet(&admin);
  StartGateway();
  EXPECT_EQ(StatusOf(GetPath("/nacre/fleet", Bearer("any"))), 401);
  EXPECT_EQ(admin.authorization(), "Bearer 0123456789abcdef-any");
}

TEST_F(PageServiceTest, AStreamMayBeTraced) {
  AddCoordinator([](auto*, const v1::GenerateRequest& request,
                    FakeCoordinator::Writer* writer) {
    v1::GenerateResponse response = FakeCoordinator::Chunk("ab", 0);
    if (request.output().trace_chunks()) {
      v1::ChunkTrace* const trace = response.mutable_chunk()->mutable_trace();
      trace->add_origins(v1::TOKEN_ORIGIN_BRANCH);
      trace->add_text_bytes(2);
    }
    writer->Write(response);
    writer->Write(FakeCoordinator::Complete("ab", 0));
    return grpc::Status::OK;
  });
  StartGateway();
  for (const bool traced : {false, true}) {
    const auto events =
        Events(absl::StrCat(R"({"prompt":"a","stream":true,"nacre":{"trace":)",
                            traced ? "true" : "false", "}}"));
    ASSERT_GE(events.size(), 2u);
    const OrderedJson choice = JsonOf(events[0])["choices"][0];
    EXPECT_EQ(choice["text"], "ab");
    EXPECT_EQ(choice.contains("nacre"), traced);
    if (traced) {
      EXPECT_EQ(Dump(choice["nacre"]["tokens"]),
                R"([{"text":"ab","origin":"branch"}])");
    }
  }
}

}  // namespace
}  // namespace nacre::gateway
