#include "gateway/chunk_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/quoted.h"

namespace nacre::gateway {
namespace {

// Of a size: more would not fit into 64 bits.
constexpr size_t kMaxSizeDigits = 16;

bool IsToken(absl::string_view text) {
  constexpr absl::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains(kOthers, c);
  });
}

}  // namespace

std::optional<ApiError> ChunkCheck::Check(absl::string_view unparsed) {
  const size_t before = std::exchange(looked_at_, unparsed.size());
  return Take(unparsed.substr(before));
}

std::optional<ApiError> ChunkCheck::Take(absl::string_view bytes) {
  while (!bytes.empty() && state_ != State::kEnd) {
    if (state_ == State::kData) {
      const uint64_t taken = std::min<uint64_t>(left_, bytes.size());
      bytes.remove_prefix(taken);
      left_ -= taken;
      if (left_ == 0) state_ = State::kDataEnd;
      continue;
    }
    const char c = bytes[0];
    bytes.remove_prefix(1);
    const bool after_cr = absl::EndsWith(line_, "\r");
    if (c == '\n') {
      if (!after_cr) {
        return BadRequest(
            "a line of the chunked body ends with LF and not CR LF");
      }
      line_.pop_back();
      if (auto error = TakeLine()) return error;
      line_.clear();
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (after_cr || (byte < 0x20 && c != '\t' && c != '\r') || byte == 0x7f) {
      return BadRequest(absl::StrFormat(
          "a line of the chunked body has the control character 0x%02x",
          after_cr ? '\r' : byte));
    }
    if (line_.size() >= max_line_bytes_) {
      return BadRequest(
          absl::StrCat("a line of the chunked body is longer than ",
                       max_line_bytes_, " bytes"));
    }
    line_.push_back(c);
  }
  return std::nullopt;
}

std::optional<ApiError> ChunkCheck::TakeLine() {
  switch (state_) {
    case State::kSize:
      return TakeSize();
    case State::kDataEnd:
      state_ = State::kSize;
      if (line_.empty()) return std::nullopt;
      return BadRequest("a chunk of the body is longer than its size says");
    case State::kTrailers:
      return TakeTrailer();
    case State::kData:
    case State::kEnd:
      break;
  }
  return std::nullopt;
}

std::optional<ApiError> ChunkCheck::TakeSize() {
  const absl::string_view line = line_;
  const auto* const digits_end =
      std::find_if_not(line.begin(), line.end(),
                       [](unsigned char c) { return absl::ascii_isxdigit(c); });
  const auto digits = static_cast<size_t>(digits_end - line.begin());
  const absl::string_view rest =
      absl::StripLeadingAsciiWhitespace(line.substr(digits));
  const bool has_end = digits == line.size() || absl::StartsWith(rest, ";");
  if (digits > kMaxSizeDigits || !has_end ||
      !absl::SimpleHexAtoi(line.substr(0, digits), &left_)) {
    return BadRequest(absl::StrCat("the size of a chunk is ", Quoted(line),
                                   ", expected 1 to ", kMaxSizeDigits,
                                   " hexadecimal digits"));
  }
  state_ = left_ == 0 ? State::kTrailers : State::kData;
  return std::nullopt;
}

std::optional<ApiError> ChunkCheck::TakeTrailer() {
  if (line_.empty()) {
    state_ = State::kEnd;
    return std::nullopt;
  }
  if (line_[0] == ' ' || line_[0] == '\t') {
    return BadRequest("a trailer is folded over several lines");
  }
  trailer_bytes_ += line_.size() + 2;  // with its end
  if (trailer_bytes_ > max_line_bytes_) {
    return BadRequest(absl::StrCat("the trailers are longer than ",
                                   max_line_bytes_, " bytes"));
  }
  const absl::string_view line = line_;
  const size_t colon = line.find(':');
  const absl::string_view name = line.substr(0, colon);
  if (colon == absl::string_view::npos || !IsToken(name)) {
    return BadRequest(absl::StrCat(Quoted(line), " is no trailer"));
  }
  for (const absl::string_view framing :
       {"content-length", "transfer-encoding", "host"}) {
    if (absl::EqualsIgnoreCase(name, framing)) {
      return BadRequest(absl::StrCat(Quoted(name), " is among the trailers"));
    }
  }
  return std::nullopt;
}

}  // namespace nacre::gateway
