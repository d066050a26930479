// The tensors of a file that torch.save wrote (pytorch_model.bin, *.pt): a zip
// archive of one pickle and the storages that it names. No code of it runs
// (pickle/pickle.h).
//
// A pure function.

#ifndef MODEL_PICKLE_TORCH_TENSORS_H_
#define MODEL_PICKLE_TORCH_TENSORS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/safetensors.h"

namespace nacre::model {

// Whether files of this name are read so.
bool IsTorchFile(absl::string_view path);

// Of a whole file's bytes, a dictionary of names and tensors. Types have their
// names in safetensors. Tensors may share bytes. UNIMPLEMENTED: something else
// than tensors that lie in one piece; INVALID_ARGUMENT or DATA_LOSS: malformed.
// Names the tensor.
absl::StatusOr<TensorTable> ParseTorchFile(absl::string_view bytes);

}  // namespace nacre::model

#endif  // MODEL_PICKLE_TORCH_TENSORS_H_
