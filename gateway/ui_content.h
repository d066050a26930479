// Made at build time of the files in gateway/ui (cmake/EmbedFiles.cmake).

#ifndef GATEWAY_UI_CONTENT_H_
#define GATEWAY_UI_CONTENT_H_

#include "absl/types/span.h"
#include "gateway/ui_files.h"

namespace nacre::gateway {

absl::Span<const UiFile> UiContent();

}  // namespace nacre::gateway

#endif  // GATEWAY_UI_CONTENT_H_
