// The gateway's page and `nacre chat` over the real service.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "common/json.h"
#include "tests/gateway/http_probe.h"
#include "tests/integration/command_line.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr char kPrompt[] = "def main():";
constexpr int kSkipped = 77;  // exit status of a script that lacks a program

// A service with a gateway and a chat template, whose steps take as long as
// those of larger models do.
class PageTest : public ::testing::Test {
 protected:
  explicit PageTest(const std::string& step_time = "1:24,8:26,32:30") {
    const std::string chat_template = folder_.path() + "/chat.jinja";
    EXPECT_TRUE(
        WriteFile(chat_template,
                  "{% for m in messages %}{{ m.content }}\n{% endfor %}")
            .ok());
    tools::Cluster::Options options = Service::Options();
    options.http_port = 0;
    options.more_args.gateway = {"--chat-template", chat_template};
    options.more_args.draft = {"--step-time", "1:5,4:5.2,8:5.5"};
    options.more_args.coordinator = {"--draft-rows", "4", "--tree-rows", "8"};
    options.more_args.target = {"--suffix-drafter", "on", "--step-time",
                                step_time};
    // What has died stays dead for as long as a test looks.
    options.supervisor.backoff = absl::Minutes(10);
    service_ = std::make_unique<Service>(std::move(options));
  }

  const std::string& http() { return service_->cluster().http_address(); }

  const tools::TemporaryFolder folder_;
  std::unique_ptr<Service> service_;
};

TEST_F(PageTest, ThePageAndTheFleetAreServed) {
  const std::string page = gateway::Get(http(), "/");
  EXPECT_EQ(gateway::StatusOf(page), 200);
  EXPECT_THAT(page, HasSubstr("<title>Nacre</title>"));
  const std::string answer = gateway::Get(http(), "/nacre/fleet");
  ASSERT_EQ(gateway::StatusOf(answer), 200) << answer;
  const Json fleet = Json::parse(gateway::BodyOf(answer));
  ASSERT_EQ(fleet["coordinators"].size(), 1u);
  const Json& coordinator = fleet["coordinators"][0];
  EXPECT_EQ(coordinator["address"], service_->cluster().admin_address());
  ASSERT_EQ(coordinator["workers"].size(), 2u) << answer;
  for (const Json& worker : coordinator["workers"]) {
    EXPECT_TRUE(worker["ready"].get<bool>());
  }
}

// The texts of the tokens make up the text, and the counts those of the report.
TEST_F(PageTest, ATracedStreamSaysHowEachTokenCame) {
  const Json body = {{"prompt", kPrompt},
                     {"max_tokens", 60},
                     {"temperature", 0},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}},
                     {"nacre", {{"trace", true}}}};
  const std::string stream = gateway::Unchunk(
      gateway::BodyOf(gateway::Post(http(), "/v1/completions", body.dump())));
  std::string text;
  std::string of_tokens;
  int tokens = 0;
  int proposed = 0;  // and right
  int verified = 0;
  int accepted = 0;
  size_t spans = 0;
  Json usage;
  Json report;
  for (const absl::string_view event :
       absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
    if (event == "data: [DONE]") continue;
    const Json json = Json::parse(event.substr(event.find('{')));
    if (json.contains("metrics")) {
      usage = json["usage"];
      report = json["metrics"];
      continue;
    }
    const Json& choice = json["choices"][0];
    text += choice["text"].get<std::string>();
    if (!choice.contains("nacre")) continue;
    for (const Json& lane : choice["nacre"]["lanes"]) {
      spans += lane["spans"].size();
    }
    if (!choice["nacre"].contains("tokens")) continue;
    for (const Json& token : choice["nacre"]["tokens"]) {
      of_tokens += token["text"].get<std::string>();
      ++tokens;
      if (token["origin"] != "target") ++proposed;
    }
    verified += choice["nacre"]["verified"].get<int>();
    accepted += choice["nacre"]["accepted"].get<int>();
  }
  EXPECT_EQ(of_tokens, text);
  EXPECT_EQ(text,
            service_->Generate(Request(kPrompt, v1::METHOD_AR, 60))->text());
  ASSERT_FALSE(usage.is_null()) << stream;
  EXPECT_EQ(tokens, usage["completion_tokens"].get<int>());
  // Each step has one token that is the target's.
  EXPECT_EQ(tokens - proposed, report["nacre"]["rounds"].get<int>());
  EXPECT_EQ(verified,
            report["speculative_decoding"]["num_draft_tokens"].get<int>());
  EXPECT_LE(accepted, verified);
  EXPECT_GT(proposed, 0);
  EXPECT_GT(spans, static_cast<size_t>(tokens - proposed));
}

// Steps so slow that an answer takes minutes: beside other work a browser took
// one to see the click that stops it.
class PageVisitTest : public PageTest {
 protected:
  PageVisitTest() : PageTest("1:150,8:155,32:160") {}
};

TEST_F(PageVisitTest, AUserFindsAllOfItInABrowser) {
  const std::string log = folder_.path() + "/visit.log";
  const pid_t draft = service_->cluster().supervisor().PidOf("draft-0");
  ASSERT_NE(draft, 0);
  std::vector<std::string> argv = {
      "/usr/bin/env",     "python3", "tests/browser/visit_page.py",
      "--address",        http(),    "--draft-pid",
      absl::StrCat(draft)};
  // Those of the documents are made so.
  if (const char* pictures = std::getenv("NACRE_PICTURES")) {
    argv.insert(argv.end(), {"--pictures", pictures});
  }
  auto visit =
      tools::ChildProcess::Start({.argv = std::move(argv), .log_file = log});
  ASSERT_TRUE(visit.ok()) << visit.status();
  EXPECT_TRUE((*visit)->WaitForEnd(absl::Minutes(30)));
  const std::string end = (*visit)->Poll().value_or("still running");
  const std::string said = ReadFile(log).value_or("");
  if (end == absl::StrCat("exit code ", kSkipped)) GTEST_SKIP() << said;
  EXPECT_EQ(end, "exit code 0") << said;
  std::cout << said;
}

// Whom the fleet is shown to, where clients and operators have tokens.
TEST(PageTokensTest, TheFleetIsForOperators) {
  const tools::TemporaryFolder folder;
  const auto tokens = [&folder](const std::string& name) {
    const std::string file = absl::StrCat(folder.path(), "/", name);
    EXPECT_TRUE(WriteFile(file, name + ":0123456789abcdef-" + name).ok());
    return file;
  };
  const auto bearer = [](const std::string& name) {
    return absl::StrCat("Authorization: Bearer 0123456789abcdef-", name,
                        "\r\n");
  };
  tools::Cluster::Options options = Service::Options();
  options.http_port = 0;
  options.auth_tokens_file = tokens("client");
  {
    // No token of an operator is there to ask for.
    Service service(options);
    const std::string& http = service.cluster().http_address();
    EXPECT_EQ(gateway::StatusOf(gateway::Get(http, "/")), 200);
    EXPECT_EQ(
        gateway::StatusOf(gateway::Get(http, "/nacre/fleet", bearer("client"))),
        404);
  }
  options.admin_tokens_file = tokens("operator");
  Service service(options);
  const std::string& http = service.cluster().http_address();
  EXPECT_EQ(gateway::StatusOf(gateway::Get(http, "/nacre/fleet")), 401);
  EXPECT_EQ(
      gateway::StatusOf(gateway::Get(http, "/nacre/fleet", bearer("client"))),
      401);
  const std::string answer =
      gateway::Get(http, "/nacre/fleet", bearer("operator"));
  EXPECT_EQ(gateway::StatusOf(answer), 200);
  EXPECT_THAT(answer, HasSubstr("\"role\":\"draft\""));
}

// Writes lines and reads the answers, as a user of a terminal does. An answer
// takes long: a token a step.
class ChatProcess {
 public:
  ChatProcess(const std::string& address, const std::string& folder)
      : folder_(folder), terminal_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_GE(terminal_, 0);
    EXPECT_EQ(grantpt(terminal_), 0);
    EXPECT_EQ(unlockpt(terminal_), 0);
    auto process = tools::ChildProcess::Start(
        {.argv = {"/bin/sh", "-c",
                  "tty=$1; shift; exec \"$@\" <\"$tty\" >\"$0/out\" "
                  "2>\"$0/err\"",
                  folder, ptsname(terminal_), NACRE_BIN "/nacre", "chat",
                  "--address", address, "--max-tokens", "1900", "--method",
                  "ar"},
         .sees_flags = true});
    EXPECT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
  }
  ~ChatProcess() { close(terminal_); }

  void Write(const std::string& line) {
    const std::string typed = line + "\n";
    EXPECT_EQ(write(terminal_, typed.data(), typed.size()),
              static_cast<ssize_t>(typed.size()));
  }
  std::string out() const { return ReadFile(folder_ + "/out").value_or(""); }
  std::string err() const { return ReadFile(folder_ + "/err").value_or(""); }
  tools::ChildProcess& process() { return *process_; }

 private:
  const std::string folder_;
  const int terminal_;  // the end that a user types at
  std::unique_ptr<tools::ChildProcess> process_;
};

TEST_F(PageTest, InATerminalCtrlCStopsTheAnswerAndNotTheChat) {
  ChatProcess chat(service_->cluster().address(), folder_.path());
  chat.Write(kPrompt);
  ASSERT_TRUE(Service::Eventually([&] { return !chat.out().empty(); }));
  chat.process().Signal(SIGINT);
  EXPECT_TRUE(Service::Eventually([&] {
    return chat.err().find("stopped\n") != std::string::npos;
  })) << chat.err();
  EXPECT_TRUE(service_->KvReturnsToEmpty());
  // Between answers it stops nothing.
  chat.process().Signal(SIGINT);
  chat.Write("/reset");
  chat.Write("/method sd");
  chat.Write("/quit");
  EXPECT_TRUE(chat.process().WaitForEnd(absl::Minutes(1)));
  EXPECT_EQ(chat.process().Poll().value_or("still running"), "exit code 0");
  EXPECT_THAT(chat.err(), HasSubstr("method sd"));
}

TEST_F(PageTest, InATerminalSigtermEndsTheChat) {
  ChatProcess chat(service_->cluster().address(), folder_.path());
  chat.Write(kPrompt);
  ASSERT_TRUE(Service::Eventually([&] { return !chat.out().empty(); }));
  chat.process().Signal(SIGTERM);
  EXPECT_TRUE(chat.process().WaitForEnd(absl::Minutes(1)));
  EXPECT_THAT(chat.process().Poll().value_or("still running"),
              HasSubstr("signal 15"));
}

// A pipe's answers are those of `nacre generate`, with a line on their speed.
TEST_F(PageTest, ThroughAPipeEachLineIsAnswered) {
  const std::string in = folder_.path() + "/lines";
  ASSERT_TRUE(WriteFile(in, absl::StrCat(kPrompt, "\n/reset\n/method ar\n",
                                         kPrompt, "\n"))
                  .ok());
  auto process = tools::ChildProcess::Start(
      {.argv = {"/bin/sh", "-c",
                "exec \"$@\" <\"$0/lines\" >\"$0/out\" 2>\"$0/err\"",
                folder_.path(), NACRE_BIN "/nacre", "chat", "--address",
                service_->cluster().address(), "--max-tokens", "20"},
       .sees_flags = true});
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_TRUE((*process)->WaitForEnd(absl::Minutes(5)));
  const std::string err = ReadFile(folder_.path() + "/err").value_or("");
  EXPECT_EQ((*process)->Poll().value_or("still running"), "exit code 0") << err;
  const std::string answer =
      service_->Generate(Request(kPrompt, v1::METHOD_AR, 20))->text();
  EXPECT_EQ(*ReadFile(folder_.path() + "/out"),
            absl::StrCat(answer, "\n", answer, "\n"));
  EXPECT_THAT(err, HasSubstr("20 tokens, "));
  EXPECT_THAT(err, HasSubstr("acceptance "));
  EXPECT_THAT(err, HasSubstr("target waiting "));
}

}  // namespace
}  // namespace nacre::integration
