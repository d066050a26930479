#include "worker/engine/session_log.h"

#include <spdlog/spdlog.h>

#include "common/json.h"
#include "common/logging.h"

namespace nacre::worker {
namespace {

constexpr auto kLevel = spdlog::level::debug;

}  // namespace

void LogSessionOpened(const std::string& request_id, uint64_t session_id,
                      size_t num_tokens, int num_cached) {
  if (!spdlog::should_log(kLevel)) return;
  LogEvent(kLevel, "session opened",
           {{"request_id", request_id},
            {"session_id", session_id},
            {"tokens", num_tokens},
            {"cached_tokens", num_cached}});
}

void LogSession(const char* event, const std::string& request_id,
                uint64_t session_id, absl::optional<absl::StatusCode> status) {
  if (!spdlog::should_log(kLevel)) return;
  nlohmann::ordered_json fields = {{"request_id", request_id},
                                   {"session_id", session_id}};
  if (status.has_value()) {
    fields["status"] = absl::StatusCodeToString(*status);
  }
  LogEvent(kLevel, event, fields);
}

void LogMalformed(const std::vector<wire::Malformed>& parts) {
  if (!spdlog::should_log(kLevel)) return;
  for (const wire::Malformed& part : parts) {
    LogEvent(kLevel, "message malformed",
             {{"session_id", part.session_id},
              {"why", std::string(part.status.message())}});
  }
}

}  // namespace nacre::worker
