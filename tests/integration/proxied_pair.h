// A pair of real processes whose target is reached through a proxy: first by
// the coordinator, then by the draft, which reads the target's tensors. A test
// cuts that connection, and no other.

#ifndef TESTS_INTEGRATION_PROXIED_PAIR_H_
#define TESTS_INTEGRATION_PROXIED_PAIR_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/files.h"
#include "tests/integration/processes.h"
#include "tests/integration/streams.h"
#include "tests/testing/fault_proxy.h"

namespace nacre::integration {

inline constexpr v1::Method kDraftingMethods[] = {
    v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC};

class ProxiedPairTest : public ::testing::Test {
 protected:
  ProxiedPairTest()
      : to_target_([file = AddressFile()] {
          const auto content = ReadFile(file);
          return std::string(content.ok() ? absl::StripAsciiWhitespace(*content)
                                          : "");
        }) {}

  // Before all else. More flags of the workers.
  void Start(const std::vector<std::string>& draft_args,
             const std::vector<std::string>& target_args = {}) {
    Processes::Options options;
    std::vector<std::string>& target = options.by_role["target"];
    target = {"--advertise", to_target_.address(), "--address-file",
              AddressFile()};
    target.insert(target.end(), target_args.begin(), target_args.end());
    options.by_role["draft"] = draft_args;
    processes_ = std::make_unique<Processes>(options);
    processes_->StartWorkers();
    client_ = std::make_unique<tools::GenerationClient>(processes_->address());
  }

  v1::Complete Generate(
      const v1::GenerateRequest& request,
      const std::function<void(const v1::Chunk&)>& on_chunk = {}) {
    const auto complete =
        client_->Generate(request, kCallTimeout, [&](const v1::Chunk& chunk) {
          if (on_chunk) on_chunk(chunk);
        });
    EXPECT_TRUE(complete.ok()) << complete.status();
    return complete.value_or(v1::Complete());
  }
  // What the target says by itself.
  Tokens Expected(int kind, int max_tokens) {
    return Ids(Generate(StreamRequest(kind, v1::METHOD_AR, max_tokens)));
  }
  static v1::GenerateRequest Drafted(int kind, v1::Method method,
                                     int max_tokens) {
    v1::GenerateRequest request = StreamRequest(kind, method, max_tokens);
    request.mutable_speculation()->set_suffixes(false);
    return request;
  }
  // In each method, of each kind of request; returns how many were accepted.
  uint64_t ExpectWhatArSays() {
    uint64_t accepted = 0;
    for (const int kind : {0, 1, 2}) {
      const Tokens expected = Expected(kind, 60);
      for (const v1::Method method : kDraftingMethods) {
        for (const std::string tree : {"chain", "best"}) {
          if (tree == "best" && method != v1::METHOD_ASYNC) continue;
          v1::GenerateRequest request = Drafted(kind, method, 60);
          request.mutable_speculation()->set_tree(tree);
          const v1::Complete complete = Generate(request);
          EXPECT_EQ(Ids(complete), expected) << method << tree;
          accepted += complete.speculation().accepted();
        }
      }
    }
    return accepted;
  }
  // Accepted tokens of a request whose channel is cut, one after that, as long
  // as it cannot be opened anew, and one when it can. All say what the target
  // says.
  struct AroundACut {
    uint64_t cut = 0;
    uint64_t without = 0;
    uint64_t with = 0;
  };
  AroundACut CutTheChannel(v1::Method method) {
    constexpr int kTokens = 200;
    AroundACut accepted;
    const Tokens expected = Expected(1, kTokens);
    const auto generate =
        [&](const std::function<void(const v1::Chunk&)>& on_chunk) {
          const v1::Complete complete =
              Generate(Drafted(1, method, kTokens), on_chunk);
          EXPECT_EQ(Ids(complete), expected) << method;
          return complete.speculation().accepted();
        };
    Generate(Drafted(1, v1::METHOD_ASYNC, 20));  // the draft dials the target
    bool was_cut = false;
    accepted.cut = generate([&](const v1::Chunk& chunk) {
      if (chunk.first_index() < 60 || std::exchange(was_cut, true)) return;
      to_target_.SetLimit(1);
    });
    EXPECT_TRUE(was_cut);
    accepted.without = generate({});
    to_target_.SetLimit(2);
    accepted.with = generate({});
    return accepted;
  }
  // A worker that does not start says so in its log.
  void ExpectRefused(const std::string& role,
                     const std::vector<std::string>& args,
                     const std::string& why) {
    tools::ChildProcess::Options options;
    options.argv = {std::string(NACRE_BIN "/nacre-") + role + "-worker",
                    "--coordinator", "127.0.0.1:1", "--cpus", "0"};
    options.argv.insert(options.argv.end(), args.begin(), args.end());
    options.log_file = folder_.path() + "/refused.log";
    auto process = tools::ChildProcess::Start(options);
    ASSERT_TRUE(process.ok()) << process.status();
    EXPECT_TRUE((*process)->WaitForEnd(absl::Minutes(1)));
    EXPECT_EQ((*process)->Poll().value_or("runs"), "exit code 1");
    const auto log = ReadFile(options.log_file);
    EXPECT_THAT(log.value_or(""), ::testing::HasSubstr(why));
  }
  double Metric(const std::string& name,
                const std::string& process = "coordinator",
                const std::string& label = "") {
    return telemetry::Sum(processes_->Scrape(process), name, label);
  }
  // What a draft has received. A target counts it when it is gone, which may be
  // later.
  void ExpectSent(double received) {
    EXPECT_TRUE(Service::Eventually([&] {
      return Metric("nacre_target_tensors_sent_total", "target") >= received;
    }));
  }
  // How often a process has logged this.
  int CountInLog(const std::string& name, const std::string& text) {
    const std::string log = processes_->Log(name);
    int count = 0;
    for (size_t at = log.find(text); at != std::string::npos;
         at = log.find(text, at + 1)) {
      ++count;
    }
    return count;
  }
  std::string AddressFile() const { return folder_.path() + "/address"; }

  const tools::TemporaryFolder folder_;  // before what it names a file for
  nacre::testing::FaultProxy to_target_;
  std::unique_ptr<Processes> processes_;
  std::unique_ptr<tools::GenerationClient> client_;
};

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_PROXIED_PAIR_H_
