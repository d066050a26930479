#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "common/flag_set.h"
#include "common/status_macros.h"
#include "proto/names.h"
#include "tools/cluster/security_flags.h"
#include "tools/commands.h"
#include "tools/generate/answer_lines.h"
#include "tools/generate/generation_client.h"
#include "tools/generate/generation_json.h"
#include "tools/generate/request_flags.h"
#include "tools/generate/trace_writer.h"
#include "tools/interrupt.h"

namespace nacre::tools {
namespace {

struct GenerateFlags {
  std::string address = "127.0.0.1:50050";
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> token_ids;
  std::string method = "async";
  std::optional<uint32_t> n;
  RequestFlags request;
  SecurityFlags security;
  std::optional<uint32_t> logprobs;
  bool round_stats = false;
  bool json = false;
  std::string trace;

  void Register(FlagSet* flags) {
    flags->Add("address", "H:P,...", &address,
               "of the coordinator, for clients; of several the next one goes "
               "on with an answer that is cut off");
    security.Register(flags);
    flags->Add("prompt", "TEXT", &prompt, "what to continue");
    flags->Add("prompt-file", "FILE", &prompt_file,
               "what to continue, as a file");
    flags->Add("token-ids", "1,2,3", &token_ids,
               "what to continue, as token ids used as they are");
    flags->Add("method", "ar|sd|pearl|async", &method,
               "same tokens, different speed");
    flags->Add("n", "N", &n,
               "choices: so many continuations, 1 to 16, each with the seed "
               "after that of the one before (default 1)");
    request.Register(flags);
    flags->Add("logprobs", "N", &logprobs,
               "with --json: log-probability of each token, and of the N "
               "likeliest beside");
    flags->Add("round-stats", "", &round_stats,
               "with --json: drafted and accepted tokens of each round");
    flags->Add("json", "", &json,
               "print one JSON object, not the text; {\"choices\": [...]} of "
               "several choices");
    flags->Add("trace", "FILE", &trace,
               "write what both workers did, for ui.perfetto.dev");
  }
};

absl::Status FillTokenIds(absl::string_view text, v1::TokenIds* ids) {
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --token-ids: \"", part, "\" is not a token id"));
    }
    ids->add_ids(id);
  }
  return absl::OkStatus();
}

absl::Status FillPrompt(const GenerateFlags& flags,
                        v1::GenerateRequest* request) {
  const int given = flags.prompt.has_value() + flags.prompt_file.has_value() +
                    flags.token_ids.has_value();
  if (given != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        given == 0 ? "none" : "more than one",
        " of --prompt, --prompt-file and --token-ids is given; exactly one is "
        "needed"));
  }
  if (flags.token_ids.has_value()) {
    return FillTokenIds(*flags.token_ids, request->mutable_token_ids());
  }
  if (flags.prompt_file.has_value()) {
    NACRE_ASSIGN_OR_RETURN(*request->mutable_text(),
                           ReadFile(*flags.prompt_file));
    return CheckUtf8("prompt-file", request->text());
  }
  request->set_text(*flags.prompt);
  return CheckUtf8("prompt", request->text());
}

absl::StatusOr<v1::GenerateRequest> BuildRequest(const GenerateFlags& flags) {
  v1::GenerateRequest request;
  NACRE_RETURN_IF_ERROR(FillPrompt(flags, &request));
  NACRE_RETURN_IF_ERROR(flags.request.Fill(&request));
  NACRE_ASSIGN_OR_RETURN(const v1::Method method, ParseMethod(flags.method));
  request.mutable_speculation()->set_method(method);
  if (flags.n.has_value()) request.set_n(*flags.n);
  if ((flags.logprobs.has_value() || flags.round_stats) && !flags.json) {
    return absl::InvalidArgumentError(
        "--logprobs and --round-stats need --json to show what they ask for");
  }
  if (flags.logprobs.has_value()) {
    request.mutable_output()->set_logprobs(*flags.logprobs);
  }
  if (flags.round_stats) {
    request.mutable_output()->set_spec_stats(v1::SPEC_STATS_LEVEL_DETAILED);
  }
  // Pieces of several texts are not for reading.
  request.mutable_output()->set_stream(!flags.json && request.n() < 2);
  request.mutable_output()->set_trace(!flags.trace.empty());
  return request;
}

std::string Header(size_t choice) {
  return absl::StrCat("[choice ", choice, "]");
}

// A streamed text is there already.
void PrintAnswer(const std::vector<v1::Complete>& choices,
                 const Terminal& terminal) {
  if (choices.size() == 1) {
    terminal.err << Summary(choices[0]) << std::endl;
    return;
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    terminal.out << Header(i) << "\n";
    terminal.Show(choices[i].text());
    terminal.out << std::endl;
    terminal.err << Header(i) << " " << Summary(choices[i]) << std::endl;
  }
}

absl::Status WriteTrace(const std::string& path,
                        const std::vector<v1::Complete>& choices) {
  google::protobuf::RepeatedPtrField<v1::TraceLane> lanes;
  for (const v1::Complete& complete : choices) {
    lanes.MergeFrom(complete.trace());
  }
  return WriteFile(path, TraceJson(lanes));
}

}  // namespace

int GenerateCommand(const std::vector<std::string>& args,
                    const Terminal& terminal) {
  GenerateFlags flags;
  FlagSet flag_set("nacre generate",
                   "Generates from one prompt through a running coordinator.");
  flags.Register(&flag_set);
  if (const auto exit = terminal.ReadFlags(args, &flag_set)) return *exit;
  const absl::StatusOr<v1::GenerateRequest> request = BuildRequest(flags);
  if (!request.ok()) return terminal.FailUsage(request.status());

  if (absl::Status status = GenerationClient::CheckAddresses(flags.address);
      !status.ok()) {
    return terminal.FailUsage(status);
  }
  const absl::StatusOr<ClientSecurity> security = flags.security.Load();
  if (!security.ok()) return terminal.FailUsage(security.status());

  GenerationClient client(flags.address, *security);
  bool text_begun = false;
  absl::StatusOr<std::vector<v1::Complete>> choices;
  {
    InterruptWatcher watcher([&client] { client.CancelAll(); });
    choices =
        client.GenerateChoices(*request, absl::Seconds(flags.request.timeout_s),
                               [&](uint32_t, const v1::Chunk& chunk) {
                                 text_begun = true;
                                 terminal.Show(chunk.text());
                                 terminal.out << std::flush;
                               });
  }
  if (text_begun) terminal.out << std::endl;
  if (absl::IsCancelled(choices.status())) {
    terminal.Fail(choices.status());
    return kExitInterrupted;
  }
  if (!choices.ok()) return terminal.Fail(choices.status());
  if (flags.json) {
    terminal.out << JsonText(ChoicesJson(*choices), -1) << std::endl;
  } else {
    PrintAnswer(*choices, terminal);
  }
  if (!flags.trace.empty()) {
    absl::Status status = WriteTrace(flags.trace, *choices);
    if (!status.ok()) return terminal.Fail(status);
    terminal.err << "trace written to " << flags.trace << std::endl;
  }
  return kExitOk;
}

}  // namespace nacre::tools
