#include "kernels/node_link.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace nacre::kernels {
namespace {

std::string ToString(const NodeCall& call) {
  const char* kind = "nothing known";
  if (call.kind == NodeCall::Kind::kSum) kind = "a sum";
  if (call.kind == NodeCall::Kind::kBroadcast) kind = "a broadcast";
  if (call.kind == NodeCall::Kind::kGather) kind = "a gather";
  if (call.kind == NodeCall::Kind::kText) kind = "a text";
  return absl::StrCat("call ", call.number, ", ", kind, " of ", call.count,
                      " values");
}

}  // namespace

absl::Status CheckSameCall(int node, const NodeCall& sent,
                           const NodeCall& expected) {
  if (sent == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("node ", node, " is at ",
                                          ToString(sent), ", expected ",
                                          ToString(expected)));
}

}  // namespace nacre::kernels
