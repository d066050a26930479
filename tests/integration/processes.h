// The three programs as processes on loopback with the flags of a test, where
// the cluster of service_fixture.h has none for it: logs of their own,
// /metrics, an environment.
//
// Not thread-safe.

#ifndef TESTS_INTEGRATION_PROCESSES_H_
#define TESTS_INTEGRATION_PROCESSES_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "tests/integration/service_fixture.h"
#include "tests/telemetry/http_get.h"
#include "tools/cluster/child_process.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {

class Processes {
 public:
  struct Options {
    std::vector<std::string> environment = {};  // of all, NAME=VALUE
    std::vector<std::string> common = {};       // more flags of all
    std::vector<std::string> coordinator = {};
    std::vector<std::string> workers = {};
    std::map<std::string, std::vector<std::string>> by_role = {};
  };

  // Starts the coordinator. It has no workers yet.
  explicit Processes(Options options) : options_(std::move(options)) {
    std::vector<std::string> flags = {"--tokenizer",
                                      TargetModel(),
                                      "--listen",
                                      "127.0.0.1:0",
                                      "--registry-listen",
                                      "127.0.0.1:0",
                                      "--admin-listen",
                                      "127.0.0.1:0",
                                      "--registry-address-file",
                                      File("registry.address"),
                                      "--admin-address-file",
                                      File("admin.address"),
                                      "--address-file",
                                      File("coordinator.address")};
    Append(options_.coordinator, &flags);
    Start("coordinator", "nacre-coordinator", std::move(flags));
    address_ = AwaitFile("coordinator.address");
    AwaitFile("coordinator.metrics");
  }

  // Starts "target" and "draft" and waits until both are attached.
  void StartWorkers() {
    StartWorker("target", "target");
    StartWorker("draft", "draft");
    AwaitReady(2);
  }

  // Starts a worker as `name`. It attaches when it has loaded its model.
  void StartWorker(const std::string& name, const std::string& role,
                   const std::vector<std::string>& own_flags = {}) {
    std::vector<std::string> flags = {
        "--model",       absl::StrCat(NACRE_MODELS "/", role),
        "--coordinator", AwaitFile("registry.address"),
        "--cpus",        "0"};
    Append(options_.workers, &flags);
    const auto more = options_.by_role.find(role);
    if (more != options_.by_role.end()) Append(more->second, &flags);
    Append(own_flags, &flags);
    Start(name, absl::StrCat("nacre-", role, "-worker"), std::move(flags));
  }

  // Waits until as many workers take new sessions.
  void AwaitReady(int count) {
    ASSERT_TRUE(Service::Eventually([this, count] {
      return telemetry::Sum(Scrape("coordinator"), "nacre_workers", "ready") ==
             count;
    }));
  }

  // Ends the workers and then the coordinator, as an operator would.
  void Stop() {
    for (const char* name : {"draft", "target", "coordinator"}) {
      if (!processes_.contains(name)) continue;
      Signal(name, SIGTERM);
      AwaitExit(name);
    }
  }

  // Waits until it ends by itself, without an error.
  void AwaitExit(const std::string& name) {
    EXPECT_EQ(AwaitEnd(name), "exit code 0") << name << ":\n" << Log(name);
  }

  // Waits until it ends, and says how.
  std::string AwaitEnd(const std::string& name) {
    tools::ChildProcess& process = *processes_.at(name);
    EXPECT_TRUE(process.WaitForEnd(absl::Minutes(1))) << name;
    return process.Poll().value_or("still running");
  }

  // "coordinator", "target", "draft" or what StartWorker named.
  void Signal(const std::string& name, int signal_number) {
    processes_.at(name)->Signal(signal_number);
  }

  // host:port for clients, and for operators.
  const std::string& address() const { return address_; }
  std::string admin_address() const { return AwaitFile("admin.address"); }

  // host:port of its /metrics.
  std::string MetricsAddress(const std::string& name) const {
    return AwaitFile(name + ".metrics");
  }
  telemetry::Samples Scrape(const std::string& name) const {
    return telemetry::Scrape(MetricsAddress(name));
  }

  // host:port of a worker, as its metrics name it.
  std::string WorkerAddress(const std::string& name) const {
    const std::string label = "worker=\"";
    for (const auto& [sample, value] : Scrape(name)) {
      const size_t at = sample.find(label);
      if (at == std::string::npos) continue;
      const size_t begin = at + label.size();
      return sample.substr(begin, sample.find('"', begin) - begin);
    }
    ADD_FAILURE() << "no metrics of " << name;
    return "";
  }

  // stdout and stderr so far.
  std::string Log(const std::string& name) const {
    return ReadFile(File(name + ".log")).value_or("");
  }

 private:
  static void Append(const std::vector<std::string>& from,
                     std::vector<std::string>* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  std::string File(const std::string& name) const {
    return folder_.path() + "/" + name;
  }

  // The word in a file that a process writes once.
  std::string AwaitFile(const std::string& name) const {
    std::string text;
    EXPECT_TRUE(Service::Eventually([&] {
      const auto content = ReadFile(File(name));
      if (content.ok()) text = *content;
      return content.ok();
    })) << name;
    return std::string(absl::StripAsciiWhitespace(text));
  }

  void Start(const std::string& name, const std::string& program,
             std::vector<std::string> flags) {
    // env becomes the program: same process.
    std::vector<std::string> argv = {"/usr/bin/env"};
    // What the shell around the test wants traced is not this.
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string text = *variable;
      if (text.rfind("OTEL_", 0) == 0) {
        Append({"-u", text.substr(0, text.find('='))}, &argv);
      }
    }
    Append(options_.environment, &argv);
    argv.push_back(absl::StrCat(NACRE_BIN "/", program));
    Append(flags, &argv);
    Append({"--metrics-listen", "127.0.0.1:0", "--metrics-address-file",
            File(name + ".metrics")},
           &argv);
    Append(options_.common, &argv);
    auto process = tools::ChildProcess::Start(
        {.argv = std::move(argv), .log_file = File(name + ".log")});
    ASSERT_TRUE(process.ok()) << process.status();
    processes_[name] = *std::move(process);
  }

  const Options options_;
  const tools::TemporaryFolder folder_;
  std::map<std::string, std::unique_ptr<tools::ChildProcess>> processes_;
  std::string address_;
};

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_PROCESSES_H_
