#include "chat/load_chat_template.h"

#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/gguf/gguf_file.h"
#include "common/json_fields.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

constexpr char kConfig[] = "tokenizer_config.json";
constexpr char kTokensMap[] = "special_tokens_map.json";
constexpr char kTemplateFile[] = "chat_template.jinja";
constexpr int64_t kMaxConfigBytes = int64_t{1} << 26;

// Named tokens of transformers. Their names are variables of the template.
constexpr const char* kTokenNames[] = {"bos_token", "eos_token", "unk_token",
                                       "sep_token", "pad_token", "cls_token",
                                       "mask_token"};

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<std::optional<std::string>> ReadIfThere(
    const std::string& path, int64_t max_bytes, bool may_be_pipe = false) {
  auto text = may_be_pipe ? ReadFile(path, max_bytes)
                          : ReadRegularFile(path, max_bytes);
  if (text.ok()) return std::optional<std::string>(*std::move(text));
  if (absl::IsNotFound(text.status())) return std::optional<std::string>();
  return text.status();
}

// The JSON object of a file, empty where the file is not there.
absl::StatusOr<Json> ReadObject(const std::string& path) {
  NACRE_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                         ReadIfThere(path, kMaxConfigBytes));
  if (!text.has_value()) return Json::object();
  return ParseJsonObject(*text, path);
}

// "bos_token": "<s>" or {"content": "<s>", ...}, into `tokens` if it is new.
absl::Status ReadTokens(const Json& object, const std::string& path,
                        std::map<std::string, std::string>* tokens) {
  for (const char* name : kTokenNames) {
    const Json* field = FindField(object, name);
    if (field == nullptr || tokens->contains(name)) continue;
    const std::string field_path = absl::StrCat(path, ": ", name);
    if (field->is_string()) {
      (*tokens)[name] = field->get<std::string>();
    } else if (field->is_object()) {
      NACRE_ASSIGN_OR_RETURN((*tokens)[name],
                             StringField(*field, "content", field_path));
    } else {
      return TypeError(field_path, *field, "a string or an object");
    }
  }
  return absl::OkStatus();
}

// Sources by name: "default", "tool_use".
using Sources = std::map<std::string, std::string>;

absl::StatusOr<Sources> ReadSources(const Json& config,
                                    const std::string& path) {
  Sources sources;
  const Json* field = FindField(config, "chat_template");
  const std::string field_path = absl::StrCat(path, ": chat_template");
  if (field == nullptr) return sources;
  if (field->is_string()) {
    sources["default"] = field->get<std::string>();
    return sources;
  }
  if (!field->is_array()) {
    return TypeError(field_path, *field, "a string or a list");
  }
  for (const Json& entry : *field) {
    NACRE_RETURN_IF_ERROR(CheckObject(entry, field_path));
    NACRE_ASSIGN_OR_RETURN(const std::string name,
                           StringField(entry, "name", field_path));
    NACRE_ASSIGN_OR_RETURN(sources[name],
                           StringField(entry, "template", field_path));
  }
  if (!sources.contains("default")) {
    return absl::InvalidArgumentError(
        absl::StrCat(field_path, " has no template with the name \"default\""));
  }
  return sources;
}

// Of a GGUF file.
absl::StatusOr<Sources> ReadGgufSources(const std::string& path) {
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::File> file,
                         gguf::File::Open(path));
  const gguf::Metadata& metadata = file->contents().metadata;
  Sources sources;
  constexpr char kKey[] = "tokenizer.chat_template";
  for (const char* name : {"default", "tool_use"}) {
    const bool is_default = absl::string_view(name) == "default";
    const std::string key = is_default ? kKey : absl::StrCat(kKey, ".", name);
    // The second is used beside the first only.
    if (!metadata.Has(key) || sources.empty() != is_default) continue;
    const absl::StatusOr<absl::string_view> source = metadata.String(key);
    if (!source.ok()) return Named(path, source.status());
    sources[name] = std::string(*source);
  }
  return sources;
}

absl::StatusOr<ChatTemplate> ParseFrom(const std::string& path,
                                       const std::string& source,
                                       const Options& options) {
  auto parsed = ChatTemplate::Parse(source, options);
  if (!parsed.ok()) return Named(path, parsed.status());
  return parsed;
}

// The named tokens of both files, the first that has one; into `options`.
absl::Status ReadNamedTokens(const TemplateFiles& files, const Json& config,
                             const std::string& config_path, Options* options) {
  std::map<std::string, std::string> tokens;
  NACRE_RETURN_IF_ERROR(ReadTokens(config, config_path, &tokens));
  const std::string map_path = absl::StrCat(files.model_dir, "/", kTokensMap);
  NACRE_ASSIGN_OR_RETURN(const Json tokens_map, ReadObject(map_path));
  NACRE_RETURN_IF_ERROR(ReadTokens(tokens_map, map_path, &tokens));
  for (auto* own : {&options->bos_token, &options->eos_token}) {
    const auto found =
        tokens.find(own == &options->bos_token ? "bos_token" : "eos_token");
    if (found == tokens.end()) continue;
    *own = found->second;
    tokens.erase(found);
  }
  tokens.merge(options->special_tokens);
  options->special_tokens = std::move(tokens);
  return absl::OkStatus();
}

std::string ConfigPath(const TemplateFiles& files) {
  return files.tokenizer_config.empty()
             ? absl::StrCat(files.model_dir, "/", kConfig)
             : files.tokenizer_config;
}

absl::StatusOr<Json> ReadConfig(const TemplateFiles& files) {
  const std::string path = ConfigPath(files);
  if (!files.tokenizer_config.empty()) {
    NACRE_RETURN_IF_ERROR(ReadRegularFile(path, kMaxConfigBytes).status());
  }
  return ReadObject(path);
}

}  // namespace

absl::StatusOr<Options> LoadNamedTokens(const TemplateFiles& files,
                                        Options options) {
  NACRE_ASSIGN_OR_RETURN(const Json config, ReadConfig(files));
  NACRE_RETURN_IF_ERROR(
      ReadNamedTokens(files, config, ConfigPath(files), &options));
  return options;
}

absl::StatusOr<std::optional<ChatTemplates>> LoadChatTemplates(
    const TemplateFiles& files, Options options) {
  const std::string config_path = ConfigPath(files);
  NACRE_ASSIGN_OR_RETURN(const Json config, ReadConfig(files));
  NACRE_RETURN_IF_ERROR(ReadNamedTokens(files, config, config_path, &options));

  // One byte more than allowed is enough for Parse to say what the limit is.
  const int64_t max_bytes =
      static_cast<int64_t>(options.limits.source_bytes) + 1;
  const std::string beside = absl::StrCat(files.model_dir, "/", kTemplateFile);
  for (const std::string& path : {files.file, beside}) {
    if (path.empty()) continue;
    NACRE_ASSIGN_OR_RETURN(std::optional<std::string> source,
                           ReadIfThere(path, max_bytes, path == files.file));
    if (source.has_value()) {
      NACRE_ASSIGN_OR_RETURN(ChatTemplate plain,
                             ParseFrom(path, *source, options));
      return ChatTemplates(*std::move(source), std::move(plain), std::nullopt);
    }
    if (path == files.file) {
      return absl::NotFoundError(
          absl::StrCat(path, ": the chat template cannot be read"));
    }
  }
  NACRE_ASSIGN_OR_RETURN(Sources sources, ReadSources(config, config_path));
  std::string from = config_path;
  if (sources.empty() && gguf::File::Is(files.model_dir)) {
    from = files.model_dir;
    NACRE_ASSIGN_OR_RETURN(sources, ReadGgufSources(from));
  }
  if (sources.empty()) return std::nullopt;
  NACRE_ASSIGN_OR_RETURN(ChatTemplate plain,
                         ParseFrom(from, sources.at("default"), options));
  std::optional<ChatTemplate> with_tools;
  if (const auto found = sources.find("tool_use"); found != sources.end()) {
    NACRE_ASSIGN_OR_RETURN(with_tools, ParseFrom(from, found->second, options));
  }
  return ChatTemplates(sources.at("default"), std::move(plain),
                       std::move(with_tools));
}

}  // namespace nacre::chat
