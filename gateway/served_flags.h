// What a gateway serves, wherever it runs: flags of nacre-gateway, which
// `nacre up` registers too and hands on.

#ifndef GATEWAY_SERVED_FLAGS_H_
#define GATEWAY_SERVED_FLAGS_H_

#include <string>
#include <vector>

#include "common/flag_set.h"

namespace nacre::gateway {

struct ServedFlags {
  std::vector<std::string> names;  // of the model; empty: the coordinator's
  std::string chat_template;       // file; empty: the checkpoint's
  std::string tokenizer_config;    // likewise
  bool escape_special_tokens = false;
  bool trust_request_chat_template = false;
  bool no_ui = false;

  // --served-model-name to --no-ui.
  void Register(FlagSet* flags);
};

}  // namespace nacre::gateway

#endif  // GATEWAY_SERVED_FLAGS_H_
