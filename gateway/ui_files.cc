#include "gateway/ui_files.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "gateway/ui_content.h"

namespace nacre::gateway {
namespace {

constexpr char kPage[] = "index.html";
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

const char* TypeOf(absl::string_view name) {
  if (absl::EndsWith(name, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  if (absl::EndsWith(name, ".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

}  // namespace

const UiFile* FindUiFile(absl::string_view path) {
  absl::string_view name = path;
  if (path == "/") {
    name = kPage;
  } else if (!absl::ConsumePrefix(&name, "/ui/")) {
    return nullptr;
  }
  for (const UiFile& file : UiContent()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

HttpHeaders UiHeaders(const UiFile& file) {
  return {{"Content-Type", TypeOf(file.name)},
          {"Cache-Control", "no-cache"},
          {"Content-Security-Policy", kPolicy},
          {"X-Frame-Options", "DENY"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

}  // namespace nacre::gateway
