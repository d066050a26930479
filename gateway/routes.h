// The paths that the gateway serves.

#ifndef GATEWAY_ROUTES_H_
#define GATEWAY_ROUTES_H_

namespace nacre::gateway {

enum class Endpoint {
  kChat,
  kCompletions,
  kModels,
  kTokenize,
  kDetokenize,
  kTokenizerInfo,
  kHealth,
  kVersion,
  kFleet,
  kPage,
};

struct Route {
  const char* path;
  Endpoint endpoint;
  bool is_post;
  bool is_open;  // to clients without a token too
};

inline constexpr Route kRoutes[] = {
    {"/v1/chat/completions", Endpoint::kChat, true, false},
    {"/v1/completions", Endpoint::kCompletions, true, false},
    {"/v1/models", Endpoint::kModels, false, false},
    {"/tokenize", Endpoint::kTokenize, true, false},
    {"/detokenize", Endpoint::kDetokenize, true, false},
    {"/tokenizer_info", Endpoint::kTokenizerInfo, false, false},
    {"/health", Endpoint::kHealth, false, true},
    {"/version", Endpoint::kVersion, false, true},
    // Open to operators, whose tokens are others.
    {"/nacre/fleet", Endpoint::kFleet, false, false},
    {"/", Endpoint::kPage, false, true},
};

}  // namespace nacre::gateway

#endif  // GATEWAY_ROUTES_H_
