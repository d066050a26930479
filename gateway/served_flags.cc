#include "gateway/served_flags.h"

#include "absl/strings/str_cat.h"

namespace nacre::gateway {

void ServedFlags::Register(FlagSet* flags) {
  flags->AddRepeated("served-model-name", "NAME", &names,
                     "what clients may call the model over HTTP; all are "
                     "listed, and answers have the first (default: as the "
                     "coordinator calls it)");
  flags->Add("chat-template", "FILE", &chat_template,
             "Jinja template of chats over HTTP (default: the checkpoint's)");
  flags->Add("tokenizer-config", "FILE", &tokenizer_config,
             "read in place of the checkpoint's tokenizer_config.json");
  flags->Add("escape-special-tokens", "", &escape_special_tokens,
             "names of special tokens in the texts of a chat's request over "
             "HTTP are letters, not these tokens");
  flags->Add("trust-request-chat-template", "", &trust_request_chat_template,
             "a chat's request over HTTP may have a template of its own, "
             "chat_template");
  flags->Add("default-max-tokens", "N", &default_max_tokens,
             "longest answer of a chat over HTTP whose request does not say, "
             "for which KV is reserved; 0: what the context and the largest "
             "target's KV leave");
  flags->Add("no-ui", "", &no_ui, "serve no page at /");
}

absl::Status ServedFlags::Validate() const {
  if (default_max_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--default-max-tokens is ", default_max_tokens, ", below 0"));
  }
  return absl::OkStatus();
}

}  // namespace nacre::gateway
