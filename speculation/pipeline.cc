#include "speculation/pipeline.h"

namespace nacre::speculation {

absl::string_view MethodName(Method method) {
  switch (method) {
    case Method::kAr:
      return "ar";
    case Method::kSd:
      return "sd";
    case Method::kPearl:
      return "pearl";
    case Method::kAsync:
      return "async";
  }
  return "unknown";
}

absl::optional<Method> MethodFromName(absl::string_view name) {
  for (Method method :
       {Method::kAr, Method::kSd, Method::kPearl, Method::kAsync}) {
    if (name == MethodName(method)) return method;
  }
  return absl::nullopt;
}

}  // namespace nacre::speculation
