// OpenAI's API of the real service: the text is that of gRPC.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/json.h"
#include "tests/gateway/http_probe.h"
#include "tests/gateway/stream_so_far.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {
namespace {

using Json = nlohmann::json;

tools::Cluster::Options WithHttp() {
  tools::Cluster::Options options = Service::Options();
  options.http_port = 0;
  // A coordinator that starts anew takes its time on a busy machine.
  options.more_args.gateway = {"--resume-timeout", "1h"};
  return options;
}

class HttpTest : public ::testing::Test {
 protected:
  // The texts of the choices, whichever way they come.
  std::vector<std::string> Texts(const Json& body) {
    const std::string answer = gateway::Post(service_.cluster().http_address(),
                                             "/v1/completions", body.dump());
    return TextsOf(answer, body.value("n", 1), body.value("stream", false));
  }

  static std::vector<std::string> TextsOf(const std::string& answer, int n,
                                          bool stream) {
    EXPECT_EQ(gateway::StatusOf(answer), 200) << answer;
    std::vector<std::string> texts(static_cast<size_t>(n));
    const auto add = [&texts](const std::string& json) {
      const Json event = Json::parse(json, nullptr, false);
      EXPECT_TRUE(event.is_object()) << json;
      for (const Json& choice : event["choices"]) {
        texts.at(choice["index"].get<size_t>()) +=
            choice["text"].get<std::string>();
      }
    };
    if (!stream) {
      add(gateway::BodyOf(answer));
      return texts;
    }
    bool done = false;
    for (const absl::string_view event :
         absl::StrSplit(gateway::Unchunk(gateway::BodyOf(answer)), "\n\n",
                        absl::SkipEmpty())) {
      done = event == "data: [DONE]";
      if (!done) add(std::string(event.substr(event.find('{'))));
    }
    EXPECT_TRUE(done);
    return texts;
  }

  Service service_{WithHttp()};
};

TEST_F(HttpTest, TextsAreThoseOfGrpc) {
  for (const tools::Prompt& prompt : LoadPrompts("humaneval.jsonl", 3)) {
    for (const char* method : {"ar", "sd", "pearl", "async"}) {
      v1::GenerateRequest request = Request(prompt.text, v1::METHOD_AR, 40);
      request.mutable_sampling()->set_temperature(0.9f);
      request.mutable_sampling()->set_seed(11);
      request.mutable_stop()->add_stop("\n\n");
      request.set_n(2);
      const auto choices = service_.client().GenerateChoices(
          request, kCallTimeout, [](uint32_t, const v1::Chunk&) {});
      ASSERT_TRUE(choices.ok()) << choices.status();
      const std::vector<std::string> expected = {(*choices)[0].text(),
                                                 (*choices)[1].text()};
      Json body = {{"prompt", prompt.text},
                   {"max_tokens", 40},
                   {"temperature", 0.9},
                   {"seed", 11},
                   {"stop", "\n\n"},
                   {"n", 2},
                   {"nacre", {{"method", method}}}};
      EXPECT_EQ(Texts(body), expected) << method;
      body["stream"] = true;
      EXPECT_EQ(Texts(body), expected) << method;
    }
  }
}

TEST_F(HttpTest, TreesChangeNoTextAndAWrongOneIsRefused) {
  Json body = {{"prompt", "def main():"},
               {"max_tokens", 30},
               {"temperature", 0.8},
               {"seed", 5}};
  const std::vector<std::string> expected = Texts(body);
  for (const char* tree : {"", "chain", "best", "cape", "eagle2:k=2,depth=3",
                           "static:[[0],[1],[0,0]]"}) {
    body["nacre"] = {{"tree", tree}, {"suffixes", false}};
    EXPECT_EQ(Texts(body), expected) << tree;
    body["nacre"]["method"] = "sd";
    EXPECT_EQ(Texts(body), expected) << tree << " with sd";
  }
  const auto refusal = [&](const Json& nacre) {
    body["nacre"] = nacre;
    const std::string answer = gateway::Post(service_.cluster().http_address(),
                                             "/v1/completions", body.dump());
    EXPECT_EQ(gateway::StatusOf(answer), 400) << answer;
    const Json error = Json::parse(gateway::BodyOf(answer), nullptr, false);
    if (!error.is_object()) return answer;
    EXPECT_EQ(error["error"]["param"], "nacre.tree") << answer;
    return error["error"]["message"].get<std::string>();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal({{"tree", "oak"}}),
              HasSubstr("tree \"oak\" is unknown; there are chain, best"));
  EXPECT_THAT(refusal({{"tree", "eagle2:k=99"}}),
              HasSubstr("k \"99\" is no number from 1 to 16"));
  EXPECT_THAT(refusal({{"tree", "best"}, {"policy", "svip"}}),
              HasSubstr("use tree chain, or name none"));
  EXPECT_THAT(refusal({{"tree", 3}}),
              HasSubstr("nacre.tree is 3, expected a string"));
}

// Only the coordinator knows the vocabulary's size.
TEST_F(HttpTest, AnErrorOfTheCoordinatorNamesItsField) {
  const std::pair<Json, const char*> cases[] = {
      {{{"prompt", {1, 999999}}}, "prompt"},
      {{{"prompt", "a"}, {"stop_token_ids", {999999}}}, "stop_token_ids"},
      {{{"prompt", "a"}, {"logit_bias", {{"999999", 1}}}}, "logit_bias"}};
  for (const auto& [body, param] : cases) {
    const std::string answer = gateway::Post(service_.cluster().http_address(),
                                             "/v1/completions", body.dump());
    EXPECT_EQ(gateway::StatusOf(answer), 400) << answer;
    const Json error = Json::parse(gateway::BodyOf(answer), nullptr, false);
    ASSERT_TRUE(error.is_object()) << answer;
    EXPECT_EQ(error["error"]["param"], param) << answer;
  }
}

// What the gateway refuses by itself, as its program is built. A connection
// that it has open shows that it lives on.
TEST_F(HttpTest, MalformedRequestsHarmNoOtherConnection) {
  const std::string address = service_.cluster().http_address();
  nacre::testing::LoopbackConnection witness(address);
  const auto is_there = [&] {
    if (!witness.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n")) return false;
    std::string answer;
    while (!absl::StrContains(answer, "HTTP/1.1 200")) {
      const std::string bytes = witness.Read();
      if (bytes.empty()) return false;
      answer += bytes;
    }
    return true;
  };
  ASSERT_TRUE(is_there());
  const std::string post = "POST /v1/completions HTTP/1.1\r\n";
  const std::pair<std::string, int> requests[] = {
      {"nonsense\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {post + "Host: h\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
       415},
      {post + "Host: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
       400},
      {post + "Host: h\r\nExpect: tea\r\nContent-Length: 1\r\n\r\nx", 417},
      {post + "Host: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {post + "Host: h\r\nContent-Length: 999999999\r\n\r\n", 413},
      {absl::StrCat("GET / HTTP/1.1\r\nHost: h\r\nX: ", std::string(99999, 'x'),
                    "\r\n\r\n"),
       431}};
  for (const auto& [bytes, status] : requests) {
    EXPECT_EQ(gateway::StatusOf(gateway::Exchange(address, bytes)), status)
        << bytes.substr(0, 200);
    EXPECT_TRUE(is_there()) << bytes.substr(0, 200);
  }
}

TEST_F(HttpTest, ManyStreamsAtOnceAreAllRight) {
  const Json body = {{"prompt", "def main():"},
                     {"max_tokens", 30},
                     {"temperature", 0.8},
                     {"seed", 5},
                     {"stream", true}};
  const std::vector<std::string> expected = Texts(body);
  std::vector<std::thread> clients;
  for (int i = 0; i < 32; ++i) {
    clients.emplace_back([&] { EXPECT_EQ(Texts(body), expected); });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(HttpTest, AClientThatGoesFreesItsKv) {
  {
    nacre::testing::LoopbackConnection connection(
        service_.cluster().http_address());
    ASSERT_TRUE(connection.Send(gateway::PostBytes(
        "/v1/completions",
        R"({"prompt":"def","max_tokens":1500,"ignore_eos":true,
            "stream":true})")));
    ASSERT_FALSE(connection.Read().empty());
  }
  EXPECT_TRUE(service_.KvReturnsToEmpty());
}

// Answers that last longer than it waits for them are cut off.
TEST(HttpShutdownTest, AGatewayEndsWhileStreamsRun) {
  tools::Cluster::Options options = WithHttp();
  options.more_args.gateway = {"--drain-timeout", "0s"};
  Service service(std::move(options));
  const std::string address = service.cluster().http_address();
  std::vector<nacre::testing::LoopbackConnection> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back(address);
    ASSERT_TRUE(clients.back().Send(gateway::PostBytes(
        "/v1/completions",
        R"({"prompt":"def","max_tokens":1500,"ignore_eos":true,
            "stream":true})")));
  }
  for (auto& client : clients) ASSERT_FALSE(client.Read().empty());
  tools::Supervisor& supervisor = service.cluster().supervisor();
  const pid_t stopped = supervisor.PidOf("gateway");
  ASSERT_NE(stopped, 0);
  kill(stopped, SIGTERM);
  EXPECT_TRUE(Service::Eventually(
      [&] { return supervisor.PidOf("gateway") != stopped; }));
  for (auto& client : clients) {
    EXPECT_FALSE(absl::StrContains(client.ReadAll(), "[DONE]"));
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

// The gateway goes on with its streams when the coordinator is there again.
TEST_F(HttpTest, ADeadCoordinatorCutsNoStream) {
  constexpr int kStreams = 8;
  const auto body = [](int i) {
    const char* const methods[] = {"ar", "sd", "pearl", "async"};
    return Json{{"prompt", absl::StrCat("def main", i, "():")},
                {"max_tokens", 700},
                {"ignore_eos", true},
                {"temperature", 0.9},
                {"seed", i},
                {"n", 1 + i % 2},
                {"stream", true},
                {"nacre", {{"method", methods[i % 4]}}}};
  };
  std::vector<std::vector<std::string>> expected;
  for (int i = 0; i < kStreams; ++i) expected.push_back(Texts(body(i)));
  std::vector<nacre::testing::LoopbackConnection> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back(service_.cluster().http_address());
    ASSERT_TRUE(clients.back().Send(
        gateway::PostBytes("/v1/completions", body(i).dump())));
  }
  // All have begun to say something.
  std::vector<std::string> answers(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    while (!absl::StrContains(answers[i], "\"text\":")) {
      const std::string more = clients[i].Read();
      ASSERT_FALSE(more.empty());
      answers[i] += more;
    }
  }
  const pid_t killed = service_.cluster().supervisor().PidOf("coordinator");
  ASSERT_NE(killed, 0);
  kill(killed, SIGKILL);
  for (int i = 0; i < kStreams; ++i) {
    answers[i] += clients[i].ReadAll();
    EXPECT_EQ(TextsOf(answers[i], 1 + i % 2, /*stream=*/true), expected[i]);
  }
  EXPECT_TRUE(Service::Eventually([&] {
    return service_.cluster().supervisor().PidOf("coordinator") != killed;
  }));
  EXPECT_TRUE(service_.KvReturnsToEmpty());
}

// Streams of n = 3 that their client resumes, at a gateway that takes two
// coordinators in turn, and at one that was not there when they began.
class HttpResumeTest : public ::testing::Test {
 protected:
  static tools::Cluster::Options TwoCoordinators() {
    tools::Cluster::Options options = WithHttp();
    options.coordinators = 2;
    return options;
  }
  static Json Body(const char* method, bool logprobs) {
    Json body = {{"prompt", "def main():"},
                 {"max_tokens", 40},
                 {"temperature", 0.9},
                 {"n", kChoices},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}},
                 {"stop", {"\n\n", "return"}},
                 {"nacre", {{"method", method}, {"resumable", true}}}};
    if (logprobs) body["logprobs"] = 2;
    return body;
  }
  std::vector<Json> EventsOf(const Json& body) {
    return gateway::StreamSoFar::EventsOf(gateway::Post(
        service_.cluster().http_address(), "/v1/completions", body.dump()));
  }
  // All that came of the request.
  gateway::StreamSoFar WholeOf(const std::vector<Json>& events, size_t n) {
    gateway::StreamSoFar whole(n);
    for (const Json& event : events) whole.Add(event);
    return whole;
  }
  // A short answer of ar, each event of which has at most one token of one
  // choice. Choice 0 meets a stop string of several tokens in its middle, and
  // the beginning of another one.
  Json ShortBody(size_t n) {
    Json body = Body("ar", /*logprobs=*/true);
    body["n"] = n;
    body["max_tokens"] = 12;
    body["seed"] = 20250101;
    body.erase("stop");
    const std::string text =
        WholeOf(EventsOf(body), n).Shown()["choices"][0]["text"];
    body["stop"] = {text.substr(text.size() / 2, 9),
                    text.substr(text.size() / 2, 6) + "~~"};
    return body;
  }
  // Events with a token whose text is kept back: it may become a stop string.
  static int64_t KeptBack(const std::vector<Json>& events) {
    return std::count_if(events.begin(), events.end(), [](const Json& event) {
      if (event["choices"].empty()) return false;
      // The first and the last event of a choice have no tokens.
      const Json& choice = event["choices"][0];
      return choice["text"] == "" &&
             !choice.value("token_ids", Json::array()).empty();
    });
  }
  // Goes on with what has come until the stream has ended.
  void GoOn(Json body, gateway::StreamSoFar* so_far) {
    body["nacre"]["resume"] = so_far->Resume();
    for (const Json& event : EventsOf(body)) so_far->Add(event);
  }

  static constexpr int kChoices = 3;
  Service service_{TwoCoordinators()};
};

TEST_F(HttpResumeTest, AStreamCutAnywhereGoesOnAsTheUncutOne) {
  for (const char* method : {"ar", "sd", "pearl", "async"}) {
    const Json body = Body(method, /*logprobs=*/true);
    const std::vector<Json> events = EventsOf(body);
    gateway::StreamSoFar uncut(kChoices);
    for (const Json& event : events) uncut.Add(event);
    int resumed = 0;
    for (size_t k = 1; k < events.size(); k += 1 + events.size() / 12) {
      gateway::StreamSoFar so_far(kChoices);
      for (size_t i = 0; i < k; ++i) so_far.Add(events[i]);
      if (!so_far.has_tokens()) continue;
      GoOn(body, &so_far);
      EXPECT_EQ(so_far.Shown().dump(), uncut.Shown().dump())
          << method << " after " << k << " of " << events.size();
      ++resumed;
    }
    EXPECT_GT(resumed, 2) << method;
  }
}

// Of methods that say several tokens at once no client has all of these parts.
// They must still go on from each.
TEST_F(HttpResumeTest, EachMethodGoesOnAfterEachToken) {
  for (const size_t n : {size_t{1}, size_t{kChoices}}) {
    Json body = ShortBody(n);
    const std::vector<Json> events = EventsOf(body);
    const Json uncut = WholeOf(events, n).Shown();
    EXPECT_EQ(uncut["choices"][0]["stop_reason"], body["stop"][0]);
    EXPECT_GT(KeptBack(events), 1);
    gateway::StreamSoFar came(n);
    for (size_t k = 1; k < events.size(); ++k) {
      came.Add(events[k - 1]);
      if (!came.has_tokens()) continue;
      for (const char* method : {"ar", "sd", "pearl", "async"}) {
        gateway::StreamSoFar so_far = came;
        body["nacre"]["method"] = method;
        GoOn(body, &so_far);
        ASSERT_EQ(so_far.Shown().dump(), uncut.dump())
            << method << ", n " << n << ", after " << k << " of "
            << events.size();
      }
    }
  }
}

TEST_F(HttpResumeTest, AStreamGoesOnWhereItsGatewayHasDied) {
  Json body = Body("async", /*logprobs=*/false);
  body.erase("stop");
  body["max_tokens"] = 600;
  body["ignore_eos"] = true;
  body["seed"] = 17;
  gateway::StreamSoFar uncut(kChoices);
  for (const Json& event : EventsOf(body)) uncut.Add(event);
  nacre::testing::LoopbackConnection client(service_.cluster().http_address());
  ASSERT_TRUE(client.Send(gateway::PostBytes("/v1/completions", body.dump())));
  std::string answer;
  while (!absl::StrContains(answer, "\"token_ids\"")) {
    const std::string more = client.Read();
    ASSERT_FALSE(more.empty());
    answer += more;
  }
  tools::Supervisor& supervisor = service_.cluster().supervisor();
  const pid_t killed = supervisor.PidOf("gateway");
  ASSERT_NE(killed, 0);
  kill(killed, SIGKILL);
  answer += client.ReadAll();
  EXPECT_FALSE(absl::StrContains(answer, "[DONE]"));
  ASSERT_TRUE(Service::Eventually([&] {
    return supervisor.PidOf("gateway") != killed &&
           gateway::StatusOf(gateway::Get(service_.cluster().http_address(),
                                          "/health")) == 200;
  }));
  gateway::StreamSoFar so_far(kChoices);
  for (const Json& event : gateway::StreamSoFar::EventsOf(answer)) {
    so_far.Add(event);
  }
  ASSERT_TRUE(so_far.has_tokens());
  GoOn(body, &so_far);
  EXPECT_EQ(so_far.Shown().dump(), uncut.Shown().dump());
  EXPECT_TRUE(service_.KvReturnsToEmpty());
}

TEST_F(HttpTest, AGatewayThatDiesIsThereAgain) {
  tools::Supervisor& supervisor = service_.cluster().supervisor();
  const pid_t killed = supervisor.PidOf("gateway");
  ASSERT_NE(killed, 0);
  kill(killed, SIGKILL);
  EXPECT_TRUE(Service::Eventually([&] {
    return supervisor.PidOf("gateway") != killed &&
           gateway::StatusOf(gateway::Get(service_.cluster().http_address(),
                                          "/health")) == 200;
  }));
}

}  // namespace
}  // namespace nacre::integration
