#include "gateway/json_body.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace nacre::gateway {

namespace {

// `byte`: from 1.
std::string NotJson(absl::string_view what, size_t byte, size_t text_bytes) {
  return absl::StrCat(what, " is not valid JSON at byte ", byte, " of ",
                      text_bytes);
}

// Reads a text and keeps nothing of it; stops at what is wrong. The library's
// own way to look at a text while it becomes a value takes a time that grows
// with the square of an array's size.
class BodyChecker : public OrderedJson::json_sax_t {
 public:
  BodyChecker(absl::string_view what, size_t text_bytes, size_t* comparisons)
      : what_(what), text_bytes_(text_bytes), comparisons_(comparisons) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(OrderedJson::number_integer_t) override { return true; }
  bool number_unsigned(OrderedJson::number_unsigned_t) override { return true; }
  bool number_float(OrderedJson::number_float_t,
                    const OrderedJson::string_t&) override {
    return true;
  }
  bool string(OrderedJson::string_t&) override { return true; }
  bool binary(OrderedJson::binary_t&) override { return true; }

  bool start_object(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }

  bool key(OrderedJson::string_t& name) override {
    const size_t before = keys_.back()++;
    if (keys_.size() == 1) field_ = name;
    if (before == static_cast<size_t>(kMaxJsonKeys)) {
      if (keys_.size() > 1) param_ = field_;
      return Stop(absl::StrCat("an object of ", what_, " has more than ",
                               kMaxJsonKeys, " keys"));
    }
    const size_t parts = (name.size() + kComparedBytes - 1) / kComparedBytes;
    *comparisons_ += before * std::max<size_t>(1, parts);
    if (*comparisons_ <= kMaxJsonKeyComparisons) return true;
    return Stop(absl::StrCat(
        "the objects of ", what_, " have too many keys: it takes more than ",
        kMaxJsonKeyComparisons, " comparisons to find those given twice"));
  }

  bool parse_error(size_t byte, const std::string&,
                   const OrderedJson::exception& error) override {
    constexpr int kNumberOutOfRange = 406;  // out_of_range.406 of the library
    if (error.id == kNumberOutOfRange) {
      return Stop(absl::StrCat(what_, " has a number that JSON cannot hold"));
    }
    return Stop(NotJson(what_, std::min(byte, text_bytes_), text_bytes_));
  }

  ApiError error() const { return BadRequest(message_, param_); }

 private:
  static constexpr size_t kComparedBytes = 64;

  bool Open() {
    if (keys_.size() == static_cast<size_t>(kMaxJsonDepth)) {
      return Stop(
          absl::StrCat(what_, "'s JSON is nested deeper than ", kMaxJsonDepth));
    }
    keys_.push_back(0);
    return true;
  }

  bool Close() {
    keys_.pop_back();
    return true;
  }

  bool Stop(std::string message) {
    message_ = std::move(message);
    return false;
  }

  const absl::string_view what_;
  const size_t text_bytes_;
  std::vector<size_t> keys_;  // of each object and array that is open
  size_t* const comparisons_;
  std::string field_;  // of the outermost object, the last that began
  std::string message_;
  std::string param_;
};

}  // namespace

std::optional<ApiError> ParseObject(absl::string_view text,
                                    absl::string_view what, size_t* comparisons,
                                    OrderedJson* object) {
  if (absl::StripAsciiWhitespace(text).empty()) {
    return BadRequest(absl::StrCat(what, " is empty, expected an object"));
  }
  // The library takes it for the end of the text.
  if (const size_t nul = text.find('\0'); nul != absl::string_view::npos) {
    return BadRequest(NotJson(what, nul + 1, text.size()));
  }
  BodyChecker checker(what, text.size(), comparisons);
  if (!OrderedJson::sax_parse(text.begin(), text.end(), &checker)) {
    return checker.error();
  }
  *object = OrderedJson::parse(text.begin(), text.end());
  if (!object->is_object()) {
    return BadRequest(absl::StrCat(what, " is ", object->type_name(),
                                   ", expected an object"));
  }
  return std::nullopt;
}

std::optional<ApiError> ParseBody(absl::string_view text, OrderedJson* object) {
  size_t comparisons = 0;
  return ParseObject(text, "the body", &comparisons, object);
}

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

void AppendJsonText(absl::string_view text, std::string* json) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (is_plain) {
    absl::StrAppend(json, "\"", text, "\"");
  } else {
    json->append(Dump(std::string(text)));
  }
}

}  // namespace nacre::gateway
