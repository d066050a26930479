#include "common/rpc/lost_server.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace nacre::rpc {

absl::Status NameLostServer(const absl::Status& status) {
  if (absl::IsCancelled(status) && status.message() == "CANCELLED") {
    return absl::UnavailableError("the server has stopped");
  }
  if (absl::IsInternal(status) &&
      absl::StrContains(status.message(),
                        "Received RST_STREAM with error code")) {
    return absl::UnavailableError(
        absl::StrCat("the call was cut off: ", status.message()));
  }
  return status;
}

}  // namespace nacre::rpc
