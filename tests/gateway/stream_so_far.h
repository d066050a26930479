// What a client of a resumable stream has of it, as docs/openai.md ("Resuming a
// stream") tells clients to keep it.

#ifndef TESTS_GATEWAY_STREAM_SO_FAR_H_
#define TESTS_GATEWAY_STREAM_SO_FAR_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/json.h"
#include "tests/gateway/http_probe.h"

namespace nacre::gateway {

class StreamSoFar {
 public:
  explicit StreamSoFar(size_t choices) : choices_(choices) {}

  // The events of an answer but "[DONE]"; none where its status is not 200.
  static std::vector<nlohmann::json> EventsOf(const std::string& answer) {
    std::vector<nlohmann::json> events;
    EXPECT_EQ(StatusOf(answer), 200) << answer;
    if (StatusOf(answer) != 200) return events;
    const std::string body = Unchunk(BodyOf(answer));
    for (const absl::string_view event :
         absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
      const size_t begin = event.find('{');
      if (begin == absl::string_view::npos) continue;
      auto json = nlohmann::json::parse(std::string(event.substr(begin)),
                                        nullptr, /*allow_exceptions=*/false);
      // A stream that was cut may end within an event.
      if (json.is_object()) events.push_back(std::move(json));
    }
    return events;
  }

  void Add(const nlohmann::json& event) {
    if (event.contains("nacre")) start_ = event["nacre"]["start"];
    if (event.contains("usage")) usage_ = event["usage"];
    for (const nlohmann::json& choice : event["choices"]) {
      Add(choice, &choices_.at(choice["index"].get<size_t>()));
    }
  }

  bool has_tokens() const {
    return std::any_of(choices_.begin(), choices_.end(),
                       [](const Choice& c) { return !c.token_ids.empty(); });
  }

  // For `nacre.resume`.
  nlohmann::json Resume() const {
    const bool all_done =
        std::all_of(choices_.begin(), choices_.end(),
                    [](const Choice& choice) { return choice.IsDone(); });
    nlohmann::json choices = nlohmann::json::array();
    for (const Choice& choice : choices_) {
      // Of an answer that lacks its usage alone the ends come once more.
      choices.push_back({{"token_ids", choice.token_ids},
                         {"done", choice.IsDone() && !all_done}});
    }
    return {{"start", start_}, {"choices", choices}};
  }

  // All that a resumed stream must have as the uncut one.
  nlohmann::json Shown() const {
    nlohmann::json choices = nlohmann::json::array();
    for (const Choice& choice : choices_) {
      choices.push_back({{"text", choice.text},
                         {"token_ids", choice.token_ids},
                         {"logprobs", choice.logprobs},
                         {"finish_reason", choice.finish_reason},
                         {"stop_reason", choice.stop_reason}});
    }
    nlohmann::json usage = usage_;
    // Of the last call: what it found in a cache.
    if (usage.is_object()) usage.erase("prompt_tokens_details");
    return {{"choices", choices}, {"usage", usage}, {"start", start_}};
  }

 private:
  struct Choice {
    std::string text;
    nlohmann::json token_ids = nlohmann::json::array();
    nlohmann::json logprobs = nlohmann::json::object();  // lists by name
    nlohmann::json finish_reason;
    nlohmann::json stop_reason;

    bool IsDone() const { return !finish_reason.is_null(); }
  };

  static void Add(const nlohmann::json& json, Choice* choice) {
    choice->text += json.contains("delta") ? json["delta"].value("content", "")
                                           : json["text"].get<std::string>();
    for (const nlohmann::json& id :
         json.value("token_ids", nlohmann::json::array())) {
      choice->token_ids.push_back(id);
    }
    const nlohmann::json logprobs = json.value("logprobs", nlohmann::json());
    if (logprobs.is_object()) {
      for (const auto& [name, list] : logprobs.items()) {
        for (const nlohmann::json& item : list) {
          choice->logprobs[name].push_back(item);
        }
      }
    }
    if (json["finish_reason"].is_null()) return;
    choice->finish_reason = json["finish_reason"];
    choice->stop_reason = json["stop_reason"];
  }

  std::vector<Choice> choices_;
  nlohmann::json start_;
  nlohmann::json usage_;
};

}  // namespace nacre::gateway

#endif  // TESTS_GATEWAY_STREAM_SO_FAR_H_
