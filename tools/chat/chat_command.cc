#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/flag_set.h"
#include "common/quoted.h"
#include "common/status_macros.h"
#include "proto/names.h"
#include "tokenizer/tokenizer.h"
#include "tools/chat/conversation.h"
#include "tools/cluster/security_flags.h"
#include "tools/commands.h"
#include "tools/generate/answer_lines.h"
#include "tools/generate/generation_client.h"
#include "tools/generate/request_flags.h"
#include "tools/interrupt.h"

namespace nacre::tools {
namespace {

constexpr char kHelp[] =
    "/reset        forget what was said\n"
    "/method NAME  ar, sd, pearl or async from now on: same tokens, other "
    "speed\n"
    "/help         these lines\n"
    "/quit         end; so does the end of the input (Ctrl-D)\n"
    "Ctrl-C stops an answer. A message that begins with / is written with //.";

struct ChatFlags {
  std::string address = "127.0.0.1:50050";
  SecurityFlags security;
  std::string method = "async";
  std::string tokenizer;
  std::string chat_template;
  RequestFlags request;

  void Register(FlagSet* flags) {
    flags->Add("address", "H:P,...", &address,
               "of the coordinator, for clients; of several the next one goes "
               "on with an answer that is cut off");
    security.Register(flags);
    flags->Add("method", "ar|sd|pearl|async", &method,
               "same tokens, different speed");
    flags->Add("tokenizer", "DIR", &tokenizer,
               "folder of the target's checkpoint, for its chat template; "
               "without a template the model goes on with what is written");
    flags->Add("chat-template", "FILE", &chat_template,
               "Jinja template of chats (default: the checkpoint's)");
    request.Register(flags);
  }
};

absl::StatusOr<Conversation> NewConversation(const ChatFlags& flags) {
  if (flags.tokenizer.empty()) {
    if (flags.chat_template.empty()) return Conversation(std::nullopt);
    return absl::InvalidArgumentError(
        "--chat-template needs --tokenizer, whose special tokens it names");
  }
  NACRE_ASSIGN_OR_RETURN(const auto tokenizer,
                         tokenizer::LoadTokenizer(flags.tokenizer));
  NACRE_ASSIGN_OR_RETURN(
      gateway::ChatPrompts prompts,
      gateway::ChatPrompts::Load({.model_dir = flags.tokenizer,
                                  .file = flags.chat_template,
                                  .tokenizer_config = ""},
                                 *tokenizer));
  return Conversation(std::move(prompts));
}

// The lines that a user writes, and what becomes of each.
class ChatLoop {
 public:
  ChatLoop(const Terminal& terminal, GenerationClient* client,
           v1::GenerateRequest request, absl::Duration timeout,
           Conversation conversation)
      : terminal_(terminal),
        client_(client),
        request_(std::move(request)),
        timeout_(timeout),
        conversation_(std::move(conversation)) {}

  // kExitOk where every answer came, or was stopped.
  ExitCode Run() {
    // One for all of it: a Ctrl-C that comes between answers stops none.
    const InterruptWatcher watcher([this] { OnInterrupt(); },
                                   InterruptWatcher::Signals::kEachInterrupt);
    std::string line;
    // No answer is asked for that no reader would see.
    while (!interrupted_ && terminal_.out.good() && Read(&line) && Take(line)) {
    }
    if (interrupted_) return kExitInterrupted;
    return !failed_ && terminal_.out.good() ? kExitOk : kExitError;
  }

 private:
  // On the thread of the watcher.
  void OnInterrupt() {
    // Where no user reads along it is meant for all of the input.
    if (!terminal_.in_is_tty) interrupted_ = true;
    if (answering_) {
      stopped_ = true;
      return client_->CancelAll();
    }
    // The input may never say more.
    if (interrupted_) std::_Exit(kExitInterrupted);
    terminal_.err << "\n/quit or Ctrl-D ends\n> " << std::flush;
  }

  bool Read(std::string* line) {
    if (terminal_.in == nullptr) return false;
    if (terminal_.in_is_tty) terminal_.err << "> " << std::flush;
    return static_cast<bool>(std::getline(*terminal_.in, *line));
  }

  // False: the chat is over.
  bool Take(const std::string& line) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty()) return true;
    if (absl::StartsWith(text, "//")) {
      Answer(line.substr(line.find('/') + 1));
      return true;
    }
    if (!absl::StartsWith(text, "/")) {
      Answer(line);
      return true;
    }
    return Obey(text);
  }

  bool Obey(absl::string_view command) {
    const std::vector<std::string> words =
        absl::StrSplit(command, ' ', absl::SkipWhitespace());
    if (command == "/quit") return false;
    if (command == "/help") {
      terminal_.err << kHelp << std::endl;
    } else if (command == "/reset") {
      conversation_.Reset();
      terminal_.err << "nothing has been said" << std::endl;
    } else if (words[0] == "/method" && words.size() == 2) {
      SetMethod(words[1]);
    } else {
      failed_ = true;
      terminal_.err << "there is no command " << Quoted(std::string(command))
                    << "; /help lists them" << std::endl;
    }
    return true;
  }

  void SetMethod(const std::string& name) {
    const absl::StatusOr<v1::Method> method = ParseMethod(name);
    if (!method.ok()) return Fail(method.status());
    request_.mutable_speculation()->set_method(*method);
    terminal_.err << "method " << name << std::endl;
  }

  void Answer(const std::string& message) {
    std::string text;
    client_->AllowCalls();
    stopped_ = false;
    answering_ = true;
    const absl::StatusOr<v1::Complete> complete = Ask(message, &text);
    answering_ = false;
    // The service's own word for an end is an error.
    const bool stopped = stopped_ && absl::IsCancelled(complete.status());
    if (!complete.ok() && !stopped) return Fail(complete.status());
    conversation_.Add(message, text);
    terminal_.err << (stopped ? "stopped" : SpeedLine(*complete)) << std::endl;
  }

  // Shows the answer while it comes; `text` is what came of it.
  absl::StatusOr<v1::Complete> Ask(const std::string& message,
                                   std::string* text) {
    NACRE_RETURN_IF_ERROR(FillPrompt(message));
    absl::StatusOr<v1::Complete> complete = client_->Generate(
        request_, timeout_, [this, text](const v1::Chunk& chunk) {
          *text += chunk.text();
          terminal_.Show(chunk.text());
          terminal_.out << std::flush;
        });
    terminal_.out << std::endl;
    return complete;
  }

  absl::Status FillPrompt(const std::string& message) {
    NACRE_RETURN_IF_ERROR(CheckUtf8Of("the message", message));
    NACRE_ASSIGN_OR_RETURN(const std::string prompt,
                           conversation_.PromptFor(message));
    if (!conversation_.has_template()) {
      request_.set_text(prompt);
      return absl::OkStatus();
    }
    NACRE_ASSIGN_OR_RETURN(*request_.mutable_token_ids(),
                           client_->Tokenize(prompt, timeout_));
    return absl::OkStatus();
  }

  void Fail(const absl::Status& status) {
    failed_ = true;
    terminal_.Fail(status);
    if (absl::StrContains(status.message(), "CONTEXT_LENGTH_EXCEEDED")) {
      terminal_.err << "/reset forgets what was said" << std::endl;
    }
  }

  const Terminal& terminal_;
  GenerationClient* const client_;
  v1::GenerateRequest request_;
  const absl::Duration timeout_;
  Conversation conversation_;
  std::atomic<bool> answering_ = false;
  std::atomic<bool> stopped_ = false;      // the answer, by Ctrl-C
  std::atomic<bool> interrupted_ = false;  // all of it, by Ctrl-C
  bool failed_ = false;
};

// CANCELLED after Ctrl-C.
absl::StatusOr<v1::Model> GetModel(GenerationClient* client,
                                   absl::Duration timeout) {
  const InterruptWatcher watcher([client] { client->CancelAll(); });
  return client->GetModel(timeout);
}

}  // namespace

int ChatCommand(const std::vector<std::string>& args,
                const Terminal& terminal) {
  ChatFlags flags;
  FlagSet flag_set("nacre chat",
                   "Talks with the model through a running coordinator: a "
                   "message a line; /help lists what else a line may be.");
  flags.Register(&flag_set);
  if (const auto exit = terminal.ReadFlags(args, &flag_set)) return *exit;
  v1::GenerateRequest request;
  if (absl::Status status = flags.request.Fill(&request); !status.ok()) {
    return terminal.FailUsage(status);
  }
  const absl::StatusOr<v1::Method> method = ParseMethod(flags.method);
  if (!method.ok()) return terminal.FailUsage(method.status());
  request.mutable_speculation()->set_method(*method);
  request.mutable_output()->set_stream(true);
  const absl::StatusOr<ClientSecurity> security = flags.security.Load();
  if (!security.ok()) return terminal.FailUsage(security.status());
  if (absl::Status status = GenerationClient::CheckAddresses(flags.address);
      !status.ok()) {
    return terminal.FailUsage(status);
  }
  absl::StatusOr<Conversation> conversation = NewConversation(flags);
  if (!conversation.ok()) return terminal.FailUsage(conversation.status());

  GenerationClient client(flags.address, *security);
  const absl::Duration timeout = absl::Seconds(flags.request.timeout_s);
  const absl::StatusOr<v1::Model> model = GetModel(&client, timeout);
  if (absl::IsCancelled(model.status())) return kExitInterrupted;
  if (!model.ok()) return terminal.Fail(model.status());
  terminal.err << "model " << model->name()
               << (conversation->has_template()
                       ? ""
                       : ", without a chat template: it goes on with your text")
               << "; /help lists the commands" << std::endl;
  ChatLoop loop(terminal, &client, std::move(request), timeout,
                *std::move(conversation));
  return loop.Run();
}

}  // namespace nacre::tools
