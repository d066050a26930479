#include "common/gguf/parts.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/gguf/cursor.h"
#include "common/status_macros.h"

namespace nacre::gguf {
namespace {

constexpr char kNumberKey[] = "split.no";
constexpr char kCountKey[] = "split.count";
constexpr char kTensorsKey[] = "split.tensors.count";
// Of a number in a name.
constexpr size_t kDigits = 5;
constexpr uint64_t kMaxParts = 99999;

std::string Ending(uint64_t number, uint64_t count) {
  return absl::StrFormat("-%05d-of-%05d.gguf", number + 1, count);
}

std::string Described(const PartOf& part) {
  return absl::StrCat("part ", part.number + 1, " of ", part.count, " with ",
                      part.num_tensors, " tensors in all");
}

}  // namespace

absl::StatusOr<PartOf> ReadPartOf(const Metadata& metadata) {
  PartOf part;
  NACRE_ASSIGN_OR_RETURN(const uint64_t count,
                         metadata.UnsignedOr(kCountKey, 1));
  if (count <= 1) return part;
  if (count > kMaxParts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metadata ", kCountKey, " is ", count, ", the limit is ", kMaxParts));
  }
  part.count = count;
  NACRE_ASSIGN_OR_RETURN(part.number, metadata.Unsigned(kNumberKey));
  if (part.number >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", kNumberKey, " is ", part.number,
                     ", expected less than ", kCountKey, ", which is ", count));
  }
  NACRE_ASSIGN_OR_RETURN(part.num_tensors, metadata.Unsigned(kTensorsKey));
  return part;
}

absl::StatusOr<std::string> PartPath(const std::string& path, uint64_t number,
                                     uint64_t count) {
  const size_t size = Ending(0, count).size();
  uint64_t named = 0;
  if (path.size() >= size &&
      absl::SimpleAtoi(
          absl::string_view(path).substr(path.size() - size + 1, kDigits),
          &named) &&
      named >= 1 && named <= count &&
      absl::EndsWith(path, Ending(named - 1, count))) {
    return absl::StrCat(path.substr(0, path.size() - size),
                        Ending(number, count));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("it is one of ", count, " parts, whose names must end in ",
                   Ending(0, count), " to ", Ending(count - 1, count)));
}

absl::Status AddPart(uint64_t number, Contents&& part, Contents* first) {
  NACRE_ASSIGN_OR_RETURN(PartOf expected, ReadPartOf(first->metadata));
  expected.number = number;
  NACRE_ASSIGN_OR_RETURN(const PartOf found, ReadPartOf(part.metadata));
  if (found.number != number || found.count != expected.count ||
      found.num_tensors != expected.num_tensors) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is ", Described(found), ", expected ",
                     Described(expected), ", as the first part says"));
  }
  for (auto& [name, tensor] : part.tensors) {
    if (!first->tensors.emplace(name, std::move(tensor)).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Shown(name), " is in a part before this one, too"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAllAreThere(const Contents& first) {
  NACRE_ASSIGN_OR_RETURN(const PartOf part, ReadPartOf(first.metadata));
  if (part.count == 1 || first.tensors.size() == part.num_tensors) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "its ", part.count, " parts have ", first.tensors.size(),
      " tensors, metadata ", kTensorsKey, " is ", part.num_tensors));
}

}  // namespace nacre::gguf
