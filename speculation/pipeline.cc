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

absl::string_view AblationName(Ablation ablation) {
  switch (ablation) {
    case Ablation::kNone:
      return "";
    case Ablation::kNoPreVerify:
      return "no-pre-verify";
    case Ablation::kNoPostVerify:
      return "no-post-verify";
  }
  return "unknown";
}

absl::optional<Ablation> AblationFromName(absl::string_view name) {
  for (const Ablation ablation :
       {Ablation::kNone, Ablation::kNoPreVerify, Ablation::kNoPostVerify}) {
    if (name == AblationName(ablation)) return ablation;
  }
  return absl::nullopt;
}

}  // namespace nacre::speculation
