// What a gateway serves, wherever it runs: flags of nacre-gateway, which
// `nacre up` registers too and hands on.

#ifndef GATEWAY_SERVED_FLAGS_H_
#define GATEWAY_SERVED_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/flag_set.h"

namespace nacre::gateway {

struct ServedFlags {
  std::vector<std::string> names;  // of the model; empty: the coordinator's
  std::string chat_template;       // file; empty: the checkpoint's
  std::string tokenizer_config;    // likewise
  bool escape_special_tokens = false;
  bool trust_request_chat_template = false;
  int default_max_tokens = 0;  // 0: what context and KV leave
  bool no_ui = false;

  // --served-model-name to --no-ui.
  void Register(FlagSet* flags);
  // INVALID_ARGUMENT names the flag, the value and the limit.
  absl::Status Validate() const;
};

}  // namespace nacre::gateway

#endif  // GATEWAY_SERVED_FLAGS_H_
