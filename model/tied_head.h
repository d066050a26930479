// A head in the checkpoint of a model whose config ties it to the embedding.
// Many published ones hold the embedding twice.
//
// Pure functions.

#ifndef MODEL_TIED_HEAD_H_
#define MODEL_TIED_HEAD_H_

#include "absl/status/status.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace nacre::model {

// INVALID_ARGUMENT with the first row that differs, where the head has other
// values than the embedding: transformers 5 would compute with it, older ones
// without it. No head, or an untied one: OK. Reads a part at a time.
absl::Status CheckTiedHead(const Checkpoint& checkpoint,
                           const ModelConfig& config);

}  // namespace nacre::model

#endif  // MODEL_TIED_HEAD_H_
