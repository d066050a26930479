#include "coordinator/observe/log_observer.h"

#include <utility>

#include "common/json.h"
#include "coordinator/dispatch/clock.h"

namespace nacre::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// A longer one is refused, and not repeated in full.
constexpr size_t kMaxLoggedIdBytes = 256;

const char* FinishName(Finish finish) {
  switch (finish) {
    case Finish::kEos:
      return "eos";
    case Finish::kStop:
      return "stop";
    case Finish::kLength:
      break;
  }
  return "length";
}

absl::optional<int> Choice(const RequestSpec& request) {
  if (request.num_choices == 1) return absl::nullopt;
  return request.choice;
}

// The fields of a line about a request: its ids, then `fields`.
Json About(const std::string& request_id, absl::optional<int> choice,
           const Json& fields) {
  Json line = {{"request_id", request_id}};
  if (choice.has_value()) line["choice"] = *choice;
  line.update(fields);
  return line;
}
Json About(const RequestSpec& request, const Json& fields) {
  return About(request.request_id, Choice(request), fields);
}

enum class Blame { kClient, kNobody, kServer };

// Messages about what a client sent may repeat it.
Blame BlameOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return Blame::kNobody;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnknown:
      return Blame::kServer;
    default:
      return Blame::kClient;
  }
}

}  // namespace

void LogObserver::OnQueued(const RequestSpec& request, int position) {
  log_(spdlog::level::debug, "request queued",
       About(request, {{"position", position}}));
}

void LogObserver::OnStarted(uint64_t session_id, const RequestSpec& request,
                            const Placement& placement, int64_t queue_ns) {
  sessions_[session_id] = {request.request_id, Choice(request), placement,
                           queue_ns};
  log_(spdlog::level::debug, "request started",
       About(request,
             {{"method", std::string(speculation::MethodName(request.method))},
              {"prompt_tokens", request.prompt_ids.size()},
              {"max_tokens", request.max_tokens},
              {"target", placement.target_address},
              {"draft", placement.draft_address}}));
}

void LogObserver::OnMoved(uint64_t session_id, const Placement& placement) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  it->second.placement = placement;
  log_(spdlog::level::debug, "request moved",
       About(it->second.request_id, it->second.choice,
             {{"target", placement.target_address},
              {"draft", placement.draft_address}}));
}

void LogObserver::OnFinished(uint64_t session_id, const RequestSpec& request,
                             const absl::Status& status,
                             const Completion* completion) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return;
  const Session session = std::move(it->second);
  sessions_.erase(it);
  // A failure is logged with the answer.
  if (!status.ok() || completion == nullptr) return;
  const auto& stats = completion->stats;
  log_(spdlog::level::info, "request finished",
       About(request,
             {{"finish_reason", FinishName(completion->finish)},
              {"method", std::string(speculation::MethodName(request.method))},
              {"policy", completion->policy},
              {"prompt_tokens", request.prompt_ids.size()},
              {"cached_tokens", completion->cached_tokens},
              {"generation_tokens", completion->token_ids.size()},
              {"rounds", stats.rounds},
              {"drafted", stats.drafted},
              {"verified", stats.verified},
              {"accepted", stats.accepted},
              {"degraded_rounds", stats.degraded_rounds},
              {"queue_s", Seconds(session.queue_ns)},
              {"ttft_s", Seconds(completion->time_to_first_token_ns)},
              {"total_s", Seconds(completion->total_ns)},
              {"target", session.placement.target_address},
              {"draft", session.placement.draft_address}}));
}

void LogObserver::OnAnswered(absl::string_view request_id,
                             const absl::Status& status,
                             absl::optional<Finish>) {
  if (status.ok()) return;
  Json fields = {
      {"request_id", std::string(request_id.substr(0, kMaxLoggedIdBytes))},
      {"status", absl::StatusCodeToString(status.code())}};
  const Blame blame = BlameOf(status.code());
  if (blame != Blame::kClient) fields["error"] = std::string(status.message());
  log_(blame == Blame::kServer ? spdlog::level::warn : spdlog::level::info,
       "request failed", fields);
}

}  // namespace nacre::coordinator
