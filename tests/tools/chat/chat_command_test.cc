// `nacre chat` with a pipe as its user.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <streambuf>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/files.h"
#include "common/rpc/signals.h"
#include "tests/tools/run_command.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Before any thread runs, as main does: else a thread of gRPC would take the
// signals of the tests.
const bool kBlocked = (rpc::BlockTerminationSignals(), true);

// What a chat says, and when its user has seen "half".
class Screen : public std::stringbuf {
 public:
  void AwaitHalf() const { half_.WaitForNotification(); }

 private:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::streamsize shown = std::stringbuf::xsputn(text, size);
    if (std::string(text, static_cast<size_t>(size)) == "half") half_.Notify();
    return shown;
  }

  absl::Notification half_;
};

Outcome Chat(const std::string& input, std::vector<std::string> args,
             bool is_tty = false, Screen* screen = nullptr) {
  Screen own;
  if (screen == nullptr) screen = &own;
  std::ostream out(screen);
  std::ostringstream err;
  std::istringstream in(input);
  args.insert(args.begin(), "chat");
  Terminal terminal{out, err};
  terminal.in = &in;
  terminal.in_is_tty = is_tty;
  const int code = RunNacre(args, terminal);
  return {code, screen->str(), err.str()};
}

TEST(ChatCommandTest, EachLineIsAnsweredAndTheChatGoesOn) {
  FakeCoordinator server(OneTwo);
  const Outcome outcome =
      Chat("a\n\nb\n", {"--address", server.address(), "--max-tokens", "9"});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out, "one two\none two\n");
  EXPECT_THAT(outcome.err, HasSubstr("model fake, without a chat template"));
  EXPECT_THAT(outcome.err, HasSubstr("3 tokens, 0.0 tokens/s, target waiting"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("> "))) << "the input is no terminal";
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].text(), "a");
  EXPECT_EQ(requests[1].text(), "aone twob");
  EXPECT_TRUE(requests[0].output().stream());
  EXPECT_EQ(requests[0].stop().max_tokens(), 9u);
}

TEST(ChatCommandTest, ATerminalGetsNoControlCharacterOfTheModel) {
  FakeCoordinator server([](const auto&, auto*, auto* writer) {
    v1::GenerateResponse response;
    response.mutable_chunk()->set_text("\x1b]0;owned\x07");
    writer->Write(response);
    FakeCoordinator::SendComplete(writer, v1::Complete());
    return grpc::Status::OK;
  });
  for (const bool is_tty : {true, false}) {
    std::ostringstream out;
    std::ostringstream err;
    std::istringstream in("a\n");
    Terminal terminal{out, err};
    terminal.in = &in;
    terminal.out_is_tty = is_tty;
    EXPECT_EQ(RunNacre({"chat", "--address", server.address()}, terminal),
              kExitOk)
        << err.str();
    EXPECT_EQ(out.str().find('\x1b') == std::string::npos, is_tty);
    EXPECT_THAT(out.str(), HasSubstr("]0;owned"));
  }
}

TEST(ChatCommandTest, CommandsAreObeyedAndNotSent) {
  FakeCoordinator server(OneTwo);
  const Outcome outcome =
      Chat("a\n/reset\n/method pearl\nb\n//c\n/help\n/quit\nd\n",
           {"--address", server.address()});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u) << "what follows /quit is not read";
  EXPECT_EQ(requests[0].speculation().method(), v1::METHOD_ASYNC);
  EXPECT_EQ(requests[1].text(), "b");
  EXPECT_EQ(requests[1].speculation().method(), v1::METHOD_PEARL);
  EXPECT_EQ(requests[2].text(), "bone two/c");
  EXPECT_THAT(outcome.err, HasSubstr("/method NAME"));
}

TEST(ChatCommandTest, WhatIsWrongIsSaidAndTheChatGoesOn) {
  FakeCoordinator server(OneTwo);
  const Outcome outcome = Chat("/methods\n/method fast\n\xff\na\n",
                               {"--address", server.address()});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_EQ(outcome.out, "one two\n");
  EXPECT_THAT(outcome.err, HasSubstr("there is no command \"/methods\""));
  EXPECT_THAT(outcome.err, HasSubstr("\"fast\""));
  EXPECT_THAT(outcome.err, HasSubstr("the message: byte 0 is not UTF-8"));
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(ChatCommandTest, AnAnswerThatFailsIsNoPartOfTheChat) {
  int calls = 0;
  FakeCoordinator server([&calls](const v1::GenerateRequest& request,
                                  grpc::ServerContext* context,
                                  FakeCoordinator::Writer* writer) {
    if (++calls > 1) return OneTwo(request, context, writer);
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
  });
  const Outcome outcome = Chat("a\nb\n", {"--address", server.address()});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err, HasSubstr("RESOURCE_EXHAUSTED: full"));
  EXPECT_EQ(server.requests()[1].text(), "b");
}

void Interrupt() { kill(getpid(), SIGINT); }

// Says half of the first answer, which lasts until its client cancels it, and
// all of the later ones. The client is interrupted once its user has seen the
// half: a cancelled call loses what is on its way.
FakeCoordinator::GenerateFunction HalfThenWhole(const Screen* screen) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  return [calls, screen](const v1::GenerateRequest& request,
                         grpc::ServerContext* context,
                         FakeCoordinator::Writer* writer) {
    if ((*calls)++ > 0) return OneTwo(request, context, writer);
    v1::GenerateResponse response;
    response.mutable_chunk()->set_text("half");
    writer->Write(response);
    screen->AwaitHalf();
    Interrupt();
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  };
}

TEST(ChatCommandTest, AStoppedAnswerStaysAsFarAsItCame) {
  Screen screen;
  FakeCoordinator server(HalfThenWhole(&screen));
  const Outcome outcome = Chat("a\nb\n", {"--address", server.address()},
                               /*is_tty=*/true, &screen);
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_EQ(outcome.out, "half\none two\n");
  EXPECT_THAT(outcome.err, HasSubstr("stopped\n"));
  EXPECT_EQ(server.requests()[1].text(), "ahalfb");
}

TEST(ChatCommandTest, CtrlCEndsAllOfAnInputThatNoUserTypes) {
  Screen screen;
  FakeCoordinator server(HalfThenWhole(&screen));
  const Outcome outcome = Chat("a\nb\n", {"--address", server.address()},
                               /*is_tty=*/false, &screen);
  EXPECT_EQ(outcome.code, kExitInterrupted);
  EXPECT_EQ(outcome.out, "half\n");
  EXPECT_EQ(server.requests().size(), 1u);
}

// An input that says nothing more, and whose user presses Ctrl-C.
class SilentInput : public std::streambuf {
  int_type underflow() override {
    Interrupt();
    while (true) pause();
  }
};

TEST(ChatCommandDeathTest, CtrlCEndsAnInputThatSaysNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto chat = [] {
    FakeCoordinator server(OneTwo);
    SilentInput silence;
    std::istream in(&silence);
    Terminal terminal{std::cout, std::cerr};
    terminal.in = &in;
    std::exit(RunNacre({"chat", "--address", server.address()}, terminal));
  };
  EXPECT_EXIT(chat(), ::testing::ExitedWithCode(kExitInterrupted), "");
}

TEST(ChatCommandTest, AnAnswerThatTheServiceCancelsHasFailed) {
  FakeCoordinator server([](const v1::GenerateRequest&, grpc::ServerContext*,
                            FakeCoordinator::Writer*) {
    return grpc::Status(grpc::StatusCode::CANCELLED, "too slow");
  });
  const Outcome outcome = Chat("a\n", {"--address", server.address()});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err, HasSubstr("CANCELLED: too slow"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("stopped")));
}

TEST(ChatCommandTest, AFullContextIsAnsweredWithTheWayOut) {
  FakeCoordinator server([](const v1::GenerateRequest&, grpc::ServerContext*,
                            FakeCoordinator::Writer*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        "CONTEXT_LENGTH_EXCEEDED: the prompt has 9 tokens");
  });
  const Outcome outcome = Chat("a\n", {"--address", server.address()});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err, HasSubstr("/reset forgets what was said"));
}

TEST(ChatCommandTest, ATemplatesPromptGoesAsTokens) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/chat.jinja";
  ASSERT_TRUE(WriteFile(file,
                        "{% for m in messages %}{{ m.content }}|"
                        "{% endfor %}")
                  .ok());
  FakeCoordinator server(OneTwo);
  const Outcome outcome =
      Chat("ab\n", {"--address", server.address(), "--tokenizer",
                    NACRE_MODELS "/target", "--chat-template", file});
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("without a chat template")));
  // The fake's tokens are the bytes.
  EXPECT_THAT(server.requests()[0].token_ids().ids(),
              ::testing::ElementsAre('a', 'b', '|'));
}

TEST(ChatCommandTest, BadFlagsEndItBeforeItBegins) {
  EXPECT_EQ(Chat("", {"--method", "fast"}).code, kExitUsage);
  EXPECT_THAT(Chat("", {"--chat-template", "f"}).err,
              HasSubstr("--chat-template needs --tokenizer"));
  EXPECT_EQ(Chat("", {"--tokenizer", "nowhere"}).code, kExitUsage);
  EXPECT_EQ(Chat("", {"--verification", "maybe"}).code, kExitUsage);
  EXPECT_EQ(Chat("", {"--address", "nowhere"}).code, kExitUsage);
}

TEST(ChatCommandTest, NoServiceIsOneLine) {
  const Outcome outcome =
      Chat("a\n", {"--address", "127.0.0.1:1", "--timeout", "5"});
  EXPECT_EQ(outcome.code, kExitError);
  EXPECT_THAT(outcome.err, HasSubstr("error: UNAVAILABLE"));
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace nacre::tools
