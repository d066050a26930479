#include "tools/calibrate/feature_reader.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/json_fields.h"
#include "common/status_macros.h"

namespace nacre::tools {
namespace {

// No answer is longer.
constexpr int64_t kMaxPosition = int64_t{1} << 30;
constexpr int64_t kMaxToken = 0x7fffffff;
// The entropy of 2^31 equally likely tokens is 21.5 nats.
constexpr double kMaxEntropy = 22.0;
// Probabilities are rounded sums.
constexpr double kMaxProbability = 1.0 + 1e-4;

// The value of `key`; null where there is none.
const Json& Field(const Json& object, const char* key) {
  static const Json& missing = *new Json();
  const auto it = object.find(key);
  return it == object.end() ? missing : *it;
}

absl::StatusOr<float> ReadNumber(const char* key, const Json& value,
                                 double max) {
  NACRE_ASSIGN_OR_RETURN(const double number, NumberUpTo(key, value, max));
  return static_cast<float>(number);
}

absl::Status ReadTop(const Json& value, FeatureLine* line) {
  if (!value.is_array() || value.size() != line->top.size()) {
    return BadField("top", value,
                    absl::StrCat("a list of ", line->top.size(), " numbers"));
  }
  for (size_t i = 0; i < line->top.size(); ++i) {
    NACRE_ASSIGN_OR_RETURN(line->top[i],
                           ReadNumber("top", value[i], kMaxProbability));
    if (i > 0 && line->top[i] > line->top[i - 1]) {
      return BadField("top", value, "descending");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ReadCount(const char* key, const Json& value, int64_t max) {
  NACRE_ASSIGN_OR_RETURN(const int64_t count, WholeNumberUpTo(key, value, max));
  return static_cast<int>(count);
}

// Absent where there is none.
absl::StatusOr<std::optional<uint64_t>> ReadIndex(const char* key,
                                                  const Json& object) {
  const auto it = object.find(key);
  if (it == object.end()) return std::nullopt;
  if (!it->is_number_unsigned()) {
    return BadField(key, *it, "a whole number of 0 or more");
  }
  return it->get<uint64_t>();
}

absl::StatusOr<std::string> ReadRequest(const Json& object) {
  const Json& request = Field(object, "request");
  if (!request.is_string()) return BadField("request", request, "a text");
  return request.get<std::string>();
}

absl::StatusOr<int> ReadPosition(const Json& object) {
  return ReadCount("position", Field(object, "position"), kMaxPosition);
}

absl::StatusOr<StateLine> ParseStateLine(const Json& json) {
  StateLine line;
  NACRE_ASSIGN_OR_RETURN(line.request, ReadRequest(json));
  NACRE_ASSIGN_OR_RETURN(line.position, ReadPosition(json));
  NACRE_ASSIGN_OR_RETURN(line.state, ReadIndex("state", json));
  return line;
}

absl::StatusOr<FeatureLine> ParseFeatureLine(const Json& json) {
  FeatureLine line;
  NACRE_ASSIGN_OR_RETURN(line.request, ReadRequest(json));
  const Json& session = Field(json, "session");
  if (!session.is_number_unsigned()) {
    return BadField("session", session, "a whole number of 0 or more");
  }
  line.session = session.get<uint64_t>();
  NACRE_ASSIGN_OR_RETURN(line.position, ReadPosition(json));
  NACRE_ASSIGN_OR_RETURN(line.token,
                         ReadCount("token", Field(json, "token"), kMaxToken));
  NACRE_ASSIGN_OR_RETURN(
      line.unverified,
      ReadCount("unverified", Field(json, "unverified"), kMaxPosition));
  NACRE_RETURN_IF_ERROR(ReadTop(Field(json, "top"), &line));
  NACRE_ASSIGN_OR_RETURN(
      line.entropy, ReadNumber("entropy", Field(json, "entropy"), kMaxEntropy));
  NACRE_ASSIGN_OR_RETURN(
      line.probability,
      ReadNumber("probability", Field(json, "probability"), kMaxProbability));
  const auto accepted = json.find("accepted");
  if (accepted == json.end() ||
      !(accepted->is_boolean() || accepted->is_null())) {
    return BadField("accepted", Field(json, "accepted"), "true, false or null");
  }
  if (accepted->is_boolean()) line.accepted = accepted->get<bool>();
  NACRE_ASSIGN_OR_RETURN(line.row, ReadIndex("row", json));
  NACRE_ASSIGN_OR_RETURN(line.fed, ReadIndex("fed", json));
  return line;
}

// Each line by `parse`, which returns a StatusOr<Line>.
template <typename Line, typename Parse>
absl::StatusOr<std::vector<Line>> ParseLines(absl::string_view name,
                                             absl::string_view content,
                                             const Parse& parse) {
  std::vector<Line> lines;
  int line_number = 0;
  for (const absl::string_view text : absl::StrSplit(content, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(text).empty()) continue;
    const absl::StatusOr<Json> json = ParseJsonObject(text);
    absl::StatusOr<Line> line = json.ok() ? parse(*json) : json.status();
    if (!line.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", line_number, ": ", line.status().message()));
    }
    lines.push_back(*std::move(line));
  }
  if (lines.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has no recorded token"));
  }
  return lines;
}

}  // namespace

absl::StatusOr<std::vector<FeatureLine>> ParseFeatures(
    absl::string_view name, absl::string_view content) {
  return ParseLines<FeatureLine>(name, content, ParseFeatureLine);
}

absl::StatusOr<std::vector<StateLine>> ParseStateLines(
    absl::string_view name, absl::string_view content) {
  return ParseLines<StateLine>(name, content, ParseStateLine);
}

}  // namespace nacre::tools
