#include "model/gguf/gguf_tensors.h"

#include <cstring>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "model/expected_tensors.h"
#include "model/gguf/dequantize.h"
#include "model/gguf/gguf_config.h"

namespace nacre::model {
namespace {

using Role = TensorRole;

struct GgufName {
  Role role;
  const char* name;
};

// Of weights; biases have their weight's name.
constexpr GgufName kNames[] = {
    {Role::kEmbedding, "token_embd"},
    {Role::kFinalNorm, "output_norm"},
    {Role::kHead, "output"},
    {Role::kInputNorm, "attn_norm"},
    {Role::kQuery, "attn_q"},
    {Role::kQueryBias, "attn_q"},
    {Role::kKey, "attn_k"},
    {Role::kKeyBias, "attn_k"},
    {Role::kValue, "attn_v"},
    {Role::kValueBias, "attn_v"},
    {Role::kQueryNorm, "attn_q_norm"},
    {Role::kKeyNorm, "attn_k_norm"},
    {Role::kAttentionOutput, "attn_output"},
    {Role::kAttentionOutputBias, "attn_output"},
    {Role::kMlpNorm, "ffn_norm"},
    {Role::kGate, "ffn_gate"},
    {Role::kGateBias, "ffn_gate"},
    {Role::kUp, "ffn_up"},
    {Role::kUpBias, "ffn_up"},
    {Role::kDown, "ffn_down"},
    {Role::kDownBias, "ffn_down"},
};

const char* NameOf(Role role) {
  for (const GgufName& known : kNames) {
    if (known.role == role) return known.name;
  }
  NACRE_CHECK(false, "a tensor that no architecture of GgufConfigJson has");
  return "";
}

// Of tensors that a forward does not read: what they say is in the config, or
// is computed from it.
bool IsPassedOver(absl::string_view name) {
  return name == "rope_freqs.weight" ||
         absl::EndsWith(name, ".attn_rot_embd.weight");
}

// How many heads have their rows in ggml's order; 0: rows are as they were.
int PairedHeads(Role role, const ModelConfig& config, bool has_paired_rows) {
  if (!has_paired_rows) return 0;
  if (role == Role::kQuery || role == Role::kQueryBias) {
    return config.num_attention_heads;
  }
  if (role == Role::kKey || role == Role::kKeyBias) {
    return config.num_key_value_heads;
  }
  return 0;
}

// The row of the file that is row `row` of the model. Of a head's rows, the
// file has the first and the second half in turns.
size_t PairedRow(size_t row, size_t head_rows) {
  const size_t head = row / head_rows;
  const size_t in_head = row % head_rows;
  const size_t half = head_rows / 2;
  return head * head_rows + in_head % half * 2 + in_head / half;
}

// Row after row: `row_bytes` of the file are `row_size` bytes of values.
struct RowDecoder {
  absl::string_view bytes;
  GgufElements elements;
  size_t rows;
  size_t head_rows;  // 0: rows are in order
  size_t row_values;

  const char* Row(size_t row) const {
    const size_t from = head_rows == 0 ? row : PairedRow(row, head_rows);
    return bytes.data() + from * (bytes.size() / rows);
  }

  void operator()(size_t first, size_t count, char* values) const {
    const size_t row_size = row_values * kernels::SizeOf(elements.dtype);
    for (size_t row = first; row < first + count; ++row, values += row_size) {
      if (elements.groups == nullptr) {
        std::memcpy(values, Row(row), row_size);
      } else {
        kernels::GroupedWeights(*elements.groups, Row(row),
                                row_values / elements.groups->block,
                                reinterpret_cast<float*>(values));
      }
    }
  }
};

absl::StatusOr<StoredTensor> Stored(const std::string& name,
                                    const gguf::Tensor& tensor,
                                    const std::vector<int64_t>& expected,
                                    int paired_heads) {
  if (tensor.shape != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " has shape ", ShapeString(tensor.shape),
                     ", the metadata implies ", ShapeString(expected)));
  }
  const std::optional<GgufElements> elements = ElementsOf(*tensor.type);
  if (!elements) {
    return absl::UnimplementedError(
        absl::StrCat("tensor ", name, ": type ", tensor.type->name,
                     " is not supported; supported: ", kGgufTypesRead));
  }
  StoredTensor stored;
  stored.entry.dtype = tensor.type->name;
  stored.entry.shape = tensor.shape;
  stored.entry.size_bytes = tensor.bytes.size();
  stored.bytes = tensor.bytes;
  stored.file = tensor.file;
  stored.dtype = elements->dtype;
  if (elements->groups == nullptr && paired_heads == 0) return stored;
  // One row of the file: a row of a matrix, an element of reordered biases, or
  // all of another vector, whose blocks must stay whole.
  const bool is_matrix = tensor.shape.size() == 2;
  if (!is_matrix && paired_heads > 0 && elements->groups != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("tensor ", name, ": type ", tensor.type->name,
                     " of biases is not supported; supported: F32, F16, BF16"));
  }
  RowDecoder decoder;
  decoder.bytes = tensor.bytes;
  decoder.elements = *elements;
  const auto first = static_cast<size_t>(tensor.shape[0]);
  decoder.rows = is_matrix || paired_heads > 0 ? first : 1;
  decoder.head_rows =
      paired_heads == 0 ? 0 : first / static_cast<size_t>(paired_heads);
  decoder.row_values =
      is_matrix ? static_cast<size_t>(tensor.shape[1]) : first / decoder.rows;
  stored.decode = decoder;
  stored.decoded_rows = decoder.rows;
  if (is_matrix) stored.groups = elements->groups;
  if (stored.groups != nullptr) {
    stored.find_row = [decoder](size_t row) { return decoder.Row(row); };
  }
  return stored;
}

}  // namespace

absl::StatusOr<std::map<std::string, StoredTensor>> GgufTensors(
    const gguf::Contents& contents, const ModelConfig& config) {
  NACRE_ASSIGN_OR_RETURN(const absl::string_view architecture,
                         contents.metadata.String("general.architecture"));
  const bool has_paired_rows = HasPairedRows(architecture);
  std::map<std::string, StoredTensor> tensors;
  std::set<std::string> used;
  const auto add_all = [&](const ExpectedTensors& expected,
                           const std::string& prefix) -> absl::Status {
    for (const ExpectedTensor& tensor : expected) {
      const bool is_bias = absl::EndsWith(tensor.name, ".bias");
      const std::string name = absl::StrCat(prefix, NameOf(tensor.role),
                                            is_bias ? ".bias" : ".weight");
      const auto found = contents.tensors.find(name);
      if (found == contents.tensors.end()) {
        return absl::NotFoundError(
            absl::StrCat("tensor ", name, " is missing"));
      }
      used.insert(name);
      NACRE_ASSIGN_OR_RETURN(
          tensors[tensor.name],
          Stored(name, found->second, tensor.shape,
                 PairedHeads(tensor.role, config, has_paired_rows)));
    }
    return absl::OkStatus();
  };
  NACRE_RETURN_IF_ERROR(add_all(ExpectedTensors::OutsideLayers(config), ""));
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    NACRE_RETURN_IF_ERROR(add_all(ExpectedTensors::OfLayer(config, i),
                                  absl::StrCat("blk.", i, ".")));
  }
  for (const auto& [name, tensor] : contents.tensors) {
    if (used.contains(name) || IsPassedOver(name)) continue;
    return absl::UnimplementedError(absl::StrCat(
        "tensor ", gguf::Shown(name), " is none of a ", architecture,
        " model of ", config.num_hidden_layers, " layers that is read"));
  }
  return tensors;
}

}  // namespace nacre::model
