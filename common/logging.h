// Logs: one line an event on stderr, through spdlog (spdlog::info and so on),
// as text or as JSON. Lines are written by a thread of their own: logging never
// blocks, and under a flood the oldest unwritten lines are dropped.

#ifndef COMMON_LOGGING_H_
#define COMMON_LOGGING_H_

#include <spdlog/common.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "common/flag_set.h"

namespace spdlog {
class formatter;
}

namespace nacre {

enum class LogFormat { kText, kJson };

struct LogOptions {
  LogFormat format = LogFormat::kText;
  spdlog::level::level_enum level = spdlog::level::info;
};

// Flags' values: format text or json; level trace, debug, info, warn, error or
// off. INVALID_ARGUMENT names the flag and the value.
absl::StatusOr<LogOptions> ParseLogOptions(const std::string& format,
                                           const std::string& level);

// The same as flags of a program.
struct LogFlags {
  std::string format = "text";
  std::string level = "info";

  // --log-format, --log-level.
  void Register(FlagSet* flags);
  absl::StatusOr<LogOptions> Parse() const {
    return ParseLogOptions(format, level);
  }
};

// Create one in main, before other threads log. What was logged is written when
// it goes.
class Logging {
 public:
  // `name` says in every line which process it is.
  Logging(const std::string& name, const LogOptions& options);
  ~Logging();
};

// Writes what was logged, before a process ends without going back to main.
// Nothing is logged any more.
void FinishLogging();

// A line with named values: "message key=value ..." as text, keys of their own
// in JSON. `fields` is an object.
void LogEvent(spdlog::level::level_enum level, const std::string& message,
              const nlohmann::ordered_json& fields);

// How lines look; for tests.
std::unique_ptr<spdlog::formatter> MakeLogFormatter(LogFormat format);

}  // namespace nacre

#endif  // COMMON_LOGGING_H_
