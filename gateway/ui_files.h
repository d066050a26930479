// The files of the page that the gateway serves (gateway/ui), as they were when
// the program was built.
//
// Thread-safe.

#ifndef GATEWAY_UI_FILES_H_
#define GATEWAY_UI_FILES_H_

#include "absl/strings/string_view.h"
#include "gateway/http_message.h"

namespace nacre::gateway {

struct UiFile {
  absl::string_view name;  // "index.html"
  absl::string_view content;
};

// What is at `path`: "/" or "/ui/NAME". Null where nothing is.
const UiFile* FindUiFile(absl::string_view path);

// The headers of its answer: its type, and what the page may load and do. The
// page takes nothing from elsewhere and runs no script of its text.
HttpHeaders UiHeaders(const UiFile& file);

}  // namespace nacre::gateway

#endif  // GATEWAY_UI_FILES_H_
