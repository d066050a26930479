// The tensors of a GGUF file under the names and in the order of rows that the
// checkpoint had before it was converted.
//
// Pure functions.

#ifndef MODEL_GGUF_GGUF_TENSORS_H_
#define MODEL_GGUF_GGUF_TENSORS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace nacre::model {

// All that a model of `config` has; `config` is of GgufConfigJson(contents).
// The bytes of `contents` outlive the result. NOT_FOUND or INVALID_ARGUMENT
// names the tensor that is missing or has another shape than the metadata
// implies; UNIMPLEMENTED: its type is not read, or the model has no such
// tensor.
absl::StatusOr<std::map<std::string, StoredTensor>> GgufTensors(
    const gguf::Contents& contents, const ModelConfig& config);

}  // namespace nacre::model

#endif  // MODEL_GGUF_GGUF_TENSORS_H_
