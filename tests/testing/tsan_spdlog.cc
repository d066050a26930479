// For ThreadSanitizer: spdlog, which Debian builds without it, makes its
// default logger when something is first logged, in whichever thread that is.
// That other threads see it whole is shown only to code that is not
// instrumented. So it is made before any thread here. (To suppress all that
// libspdlog calls would hide the locks of its queue, and with them orders that
// there are.)

#include <spdlog/spdlog.h>

namespace nacre {
namespace {

[[maybe_unused]] const spdlog::logger* const made_first =
    spdlog::default_logger_raw();

}  // namespace
}  // namespace nacre
