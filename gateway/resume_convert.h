// `nacre.resume` of a request: what its client has of an answer whose stream
// was cut off. docs/openai.md, "Resuming a stream", has the contract.
//
// Pure functions.

#ifndef GATEWAY_RESUME_CONVERT_H_
#define GATEWAY_RESUME_CONVERT_H_

#include "gateway/field_reader.h"
#include "gateway/json_body.h"
#include "gateway/request_convert.h"
#include "proto/inference.pb.h"

namespace nacre::gateway {

// Reads `resumable` and `resume` of the object `nacre`; the seed of the request
// has been read.
void ReadResume(FieldReader* nacre, ApiRequest* request);

// What can be said once all of the request is read: errors go to `reader`.
void CheckResume(FieldReader* reader, ApiRequest* request);

// `nacre.start` of the first event: what a resume says again.
OrderedJson StartJson(const v1::Start& start,
                      const std::vector<uint32_t>& prompt_ids);

}  // namespace nacre::gateway

#endif  // GATEWAY_RESUME_CONVERT_H_
