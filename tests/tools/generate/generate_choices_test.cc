// `nacre generate --n`: several choices of one prompt.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/json.h"
#include "tests/tools/fake_coordinator.h"
#include "tools/cluster/temporary_folder.h"
#include "tools/commands.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome Nacre(const std::vector<std::string>& args) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = RunNacre(args, Terminal{out, err});
  return {code, out.str(), err.str()};
}

// Each choice says its index, the last one first.
grpc::Status Backwards(const v1::GenerateRequest& request, grpc::ServerContext*,
                       FakeCoordinator::Writer* writer) {
  for (uint32_t i = request.n(); i-- > 0;) {
    v1::GenerateResponse response;
    response.set_index(i);
    response.mutable_complete()->set_text(absl::StrCat("text ", i));
    if (request.output().trace()) {
      v1::TraceLane* lane = response.mutable_complete()->add_trace();
      lane->set_address(absl::StrCat("host:", i));
      lane->add_spans()->set_kind(v1::Span::KIND_VERIFY);
    }
    writer->Write(response);
  }
  return grpc::Status::OK;
}

TEST(GenerateChoicesTest, PrintsSeveralChoicesInTheirOrder) {
  const TemporaryFolder folder;
  const std::string trace = folder.path() + "/trace.json";
  FakeCoordinator server(Backwards);
  const Outcome outcome =
      Nacre({"generate", "--address", server.address(), "--prompt", "a", "--n",
             "3", "--trace", trace});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out,
            "[choice 0]\ntext 0\n[choice 1]\ntext 1\n[choice 2]\ntext 2\n");
  EXPECT_THAT(outcome.err, HasSubstr("[choice 2] 0 prompt tokens"));
  EXPECT_EQ(server.requests()[0].n(), 3);
  EXPECT_FALSE(server.requests()[0].output().stream());
  for (const char* host : {"host:0", "host:1", "host:2"}) {
    EXPECT_THAT(*ReadFile(trace), HasSubstr(host));
  }

  const Outcome json = Nacre({"generate", "--address", server.address(),
                              "--prompt", "a", "--n", "2", "--json"});
  EXPECT_EQ(json.code, kExitOk) << json.err;
  const auto object = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << json.out;
  ASSERT_EQ(object["choices"].size(), 2);
  EXPECT_EQ(object["choices"][1]["index"], 1);
  EXPECT_EQ(object["choices"][1]["text"], "text 1");
}

// "alone" in one chunk, then complete.
grpc::Status Alone(const v1::GenerateRequest& request, grpc::ServerContext*,
                   FakeCoordinator::Writer* writer) {
  v1::GenerateResponse response;
  if (request.output().stream()) {
    response.mutable_chunk()->set_text("alone");
    writer->Write(response);
  }
  response.mutable_complete()->set_text("alone");
  writer->Write(response);
  return grpc::Status::OK;
}

TEST(GenerateChoicesTest, OneChoiceIsPrintedAsWithoutTheFlag) {
  FakeCoordinator server(Alone);
  const Outcome outcome = Nacre(
      {"generate", "--address", server.address(), "--prompt", "a", "--n", "1"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out, "alone\n");
  EXPECT_TRUE(server.requests()[0].output().stream());
  const Outcome json = Nacre({"generate", "--address", server.address(),
                              "--prompt", "a", "--n", "1", "--json"});
  EXPECT_THAT(json.out, ::testing::StartsWith("{\"text\":\"alone\""));
}

// A server that knows no choices gives one answer.
TEST(GenerateChoicesTest, ReportsChoicesThatAreMissing) {
  FakeCoordinator server(Alone);
  const Outcome outcome = Nacre({"generate", "--address", server.address(),
                                 "--prompt", "a", "--n", "4000000000"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err,
              HasSubstr("INTERNAL: the server's answer completes 1 of "
                        "4000000000 choices"));
}

}  // namespace
}  // namespace nacre::tools
