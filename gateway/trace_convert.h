// How the tokens of a stream came about and what the workers did meanwhile, as
// JSON: what `nacre: {"trace": true}` adds to a choice (docs/openai.md).
//
// Pure functions.

#ifndef GATEWAY_TRACE_CONVERT_H_
#define GATEWAY_TRACE_CONVERT_H_

#include "gateway/json_body.h"
#include "proto/inference.pb.h"

namespace nacre::gateway {

// Of a chunk with a trace. The texts of its tokens make up its text.
OrderedJson TraceOf(const v1::Chunk& chunk);

// Of what came after the last chunk.
OrderedJson TraceOf(const v1::Complete& complete);

}  // namespace nacre::gateway

#endif  // GATEWAY_TRACE_CONVERT_H_
