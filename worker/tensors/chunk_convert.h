// Between the wire's tensors and ours.
//
// Pure functions.

#ifndef WORKER_TENSORS_CHUNK_CONVERT_H_
#define WORKER_TENSORS_CHUNK_CONVERT_H_

#include "proto/tensors.pb.h"
#include "worker/tensors/tensor_chunks.h"

namespace nacre::worker {

// Copies the data.
void FillChunk(const TensorChunk& chunk, v1::TensorChunk* proto);

// False: not to be expressed here. The data stays the message's.
bool ToChunk(const v1::TensorChunk& proto, TensorChunk* chunk);

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_CHUNK_CONVERT_H_
