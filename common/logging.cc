#include "common/logging.h"

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json.h"

namespace nacre {
namespace {

using OrderedJson = nlohmann::ordered_json;
using spdlog::details::log_msg;

constexpr size_t kQueuedLines = 8192;
// Between a line's message and its fields: in no text that a person reads.
constexpr char kFieldsMark = '\x1e';

std::string Dump(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

struct Line {
  std::string message;
  OrderedJson fields = OrderedJson::object();
};

Line Split(const spdlog::string_view_t& payload) {
  Line line;
  line.message.assign(payload.data(), payload.size());
  const size_t mark = line.message.find(kFieldsMark);
  if (mark == std::string::npos) return line;
  OrderedJson fields =
      OrderedJson::parse(line.message.substr(mark + 1), nullptr,
                         /*allow_exceptions=*/false);
  if (!fields.is_object()) return line;
  line.fields = std::move(fields);
  line.message.resize(mark);
  return line;
}

// A peer's newline must not begin a line of its own.
void ReplaceControls(std::string* text) {
  for (char& c : *text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
}

// 7, true, plain, "with a space".
std::string TextValue(const OrderedJson& value) {
  if (!value.is_string()) return Dump(value);
  const auto& text = value.get_ref<const std::string&>();
  const bool plain = !text.empty() &&
                     text.find_first_of(" \"=\\") == std::string::npos &&
                     text.find_first_of('\x7f') == std::string::npos;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) return Dump(value);
  }
  return plain ? text : Dump(value);
}

// Its lines' thread: gone, and with it all logging, after FinishLogging.
std::shared_ptr<spdlog::details::thread_pool>& Pool() {
  static auto& pool = *new std::shared_ptr<spdlog::details::thread_pool>;
  return pool;
}

class TextFormatter final : public spdlog::formatter {
 public:
  void format(const log_msg& msg, spdlog::memory_buf_t& out) override {
    Line line = Split(msg.payload);
    for (const auto& [key, value] : line.fields.items()) {
      absl::StrAppend(&line.message, " ", key, "=", TextValue(value));
    }
    ReplaceControls(&line.message);
    log_msg plain = msg;
    plain.payload = line.message;
    pattern_.format(plain, out);
  }
  std::unique_ptr<formatter> clone() const override {
    return std::make_unique<TextFormatter>();
  }

 private:
  spdlog::pattern_formatter pattern_{"%Y-%m-%dT%H:%M:%S.%e %L %n: %v"};
};

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const log_msg& msg, spdlog::memory_buf_t& out) override {
    Line line = Split(msg.payload);
    spdlog::memory_buf_t time;
    time_.format(msg, time);
    const auto text = [](const spdlog::string_view_t& view) {
      return std::string(view.data(), view.size());
    };
    OrderedJson json = {
        {"time", std::string(time.data(), time.size())},
        {"level", text(spdlog::level::to_string_view(msg.level))},
        {"process", text(msg.logger_name)},
        {"message", line.message}};
    json.update(line.fields);
    const std::string dumped = Dump(json) + "\n";
    out.append(dumped.data(), dumped.data() + dumped.size());
  }
  std::unique_ptr<formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  spdlog::pattern_formatter time_{"%Y-%m-%dT%H:%M:%S.%eZ",
                                  spdlog::pattern_time_type::utc, ""};
};

}  // namespace

absl::StatusOr<LogOptions> ParseLogOptions(const std::string& format,
                                           const std::string& level) {
  LogOptions options;
  if (format == "json") {
    options.format = LogFormat::kJson;
  } else if (format != "text") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-format \"", format, "\" is not text or json"));
  }
  // An unknown name is "off" to the library.
  options.level = spdlog::level::from_str(level);
  if (options.level == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-level \"", level,
                     "\" is not trace, debug, info, warn, error or off"));
  }
  return options;
}

void LogFlags::Register(FlagSet* flags) {
  flags->Add("log-format", "FORMAT", &format, "of the log: text or json");
  flags->Add("log-level", "LEVEL", &level,
             "of the log: trace, debug, info, warn, error or off");
}

std::unique_ptr<spdlog::formatter> MakeLogFormatter(LogFormat format) {
  if (format == LogFormat::kJson) return std::make_unique<JsonFormatter>();
  return std::make_unique<TextFormatter>();
}

Logging::Logging(const std::string& name, const LogOptions& options) {
  Pool() = std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1);
  auto logger = std::make_shared<spdlog::async_logger>(
      name, std::make_shared<spdlog::sinks::stderr_sink_mt>(), Pool(),
      spdlog::async_overflow_policy::overrun_oldest);
  logger->set_formatter(MakeLogFormatter(options.format));
  logger->set_level(options.level);
  spdlog::set_default_logger(std::move(logger));
}

Logging::~Logging() { FinishLogging(); }

void FinishLogging() {
  // A line that comes later finds no thread; the library would say so itself.
  spdlog::set_level(spdlog::level::off);
  Pool().reset();
}

void LogEvent(spdlog::level::level_enum level, const std::string& message,
              const nlohmann::ordered_json& fields) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  if (!logger->should_log(level)) return;
  logger->log(level, spdlog::string_view_t(absl::StrCat(
                         message, std::string(1, kFieldsMark), Dump(fields))));
}

}  // namespace nacre
