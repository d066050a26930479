// The part of a request that goes on with an answer which was cut off. It says
// whether it can be one, and which of its choices have ended already. Knows no
// protocol.
//
// Pure functions.

#ifndef COORDINATOR_API_RESUME_PARSER_H_
#define COORDINATOR_API_RESUME_PARSER_H_

#include "absl/status/status.h"
#include "coordinator/api/request_parser.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/worker_info.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

// Fills what is resumed, and the numerics_id, into `spec`, which is complete
// but for that. Requires: fields.resume is there. Errors: as documented at
// Resume in inference.proto, INVALID_ARGUMENT; FAILED_PRECONDITION for an
// answer of another checkpoint than `model`.
absl::Status ParseResume(const GenerateFields& fields,
                         const tokenizer::Tokenizer& tokenizer,
                         const WorkerInfo& model, RequestSpec* spec);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_RESUME_PARSER_H_
