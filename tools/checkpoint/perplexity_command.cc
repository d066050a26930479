#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cpu_list.h"
#include "common/files.h"
#include "common/flag_set.h"
#include "common/json.h"
#include "kernels/weight_type.h"
#include "tools/checkpoint/perplexity.h"
#include "tools/commands.h"
#include "worker/process/options.h"

namespace nacre::tools {

namespace {

void PrintPerplexity(const kernels::BackendOptions& backend,
                     const PerplexityResult& result, bool json,
                     const Terminal& terminal) {
  const char* const kv_type = kernels::KvTypeName(result.kv_type);
  if (json) {
    terminal.out << nlohmann::json{{"weights", backend.weights},
                                   {"kv_type", kv_type},
                                   {"numerics_id", result.numerics_id},
                                   {"texts", result.texts},
                                   {"cut", result.cut},
                                   {"tokens", result.tokens},
                                   {"nll", result.nll},
                                   {"perplexity", result.Perplexity()}}
                        .dump()
                 << std::endl;
    return;
  }
  terminal.out << absl::StrFormat(
                      "perplexity %.4f over %d tokens of %d texts, weights %s, "
                      "keys and values %s: %s",
                      result.Perplexity(), result.tokens, result.texts,
                      backend.weights, kv_type, result.numerics_id)
               << (result.cut > 0
                       ? absl::StrFormat(" (%d cut at the context)", result.cut)
                       : "")
               << std::endl;
}

}  // namespace

int PerplexityCommand(const std::vector<std::string>& args,
                      const Terminal& terminal) {
  PerplexityOptions options;
  std::string texts;
  std::string cpus;
  int limit = 0;
  bool json = false;
  FlagSet flags("nacre perplexity",
                "Measures how well a model predicts texts, with its weights, "
                "and its keys and values, kept in given types.");
  flags.Add("model", "DIR", &options.model_dir, "checkpoint to read");
  flags.Add("texts", "FILE", &texts,
            "one JSON object a line with `text` or `prompt`");
  flags.Add("limit", "N", &limit, "use only the first N texts");
  worker::RegisterBackend(&options.backend, &flags);
  flags.Add("cpus", "LIST", &cpus,
            "cores to compute on, as in 0-3,6 (default: one thread)");
  flags.Add("json", "", &json, "print the numbers as one JSON object");
  if (const auto exit = terminal.ReadFlags(args, &flags)) return *exit;
  if (options.model_dir.empty() || texts.empty() || limit < 0) {
    return terminal.FailUsage(absl::InvalidArgumentError(
        "flags --model and --texts are needed, --limit is not negative"));
  }
  if (!options.backend.devices.empty()) {
    return terminal.FailUsage(absl::InvalidArgumentError(
        absl::StrCat("flag --device: ", options.backend.devices.size(),
                     " devices, nacre perplexity computes on one")));
  }
  if (!cpus.empty()) {
    auto parsed = ParseCpuList(cpus);
    if (!parsed.ok()) return terminal.FailUsage(parsed.status());
    options.backend.cpus = *std::move(parsed);
  }
  const auto content = ReadFile(texts);
  if (!content.ok()) return terminal.Fail(content.status());
  auto parsed = ParseTexts(texts, *content);
  if (!parsed.ok()) return terminal.Fail(parsed.status());
  options.texts = *std::move(parsed);
  if (limit > 0 && options.texts.size() > static_cast<size_t>(limit)) {
    options.texts.resize(static_cast<size_t>(limit));
  }
  options.progress = terminal.PercentProgress();
  options.warn = [&terminal](absl::string_view warning) {
    terminal.err << "warning: " << warning << std::endl;
  };
  const auto result = MeasurePerplexity(options);
  terminal.EndProgress();
  if (!result.ok()) return terminal.Fail(result.status());
  PrintPerplexity(options.backend, *result, json, terminal);
  return kExitOk;
}

}  // namespace nacre::tools
