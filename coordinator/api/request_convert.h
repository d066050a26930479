// From the public API's protobuf request to plain fields.

#ifndef COORDINATOR_API_REQUEST_CONVERT_H_
#define COORDINATOR_API_REQUEST_CONVERT_H_

#include "coordinator/api/request_parser.h"
#include "proto/inference.pb.h"

namespace nacre::coordinator {

// Views of `request`, which must outlive them. Checks nothing but what has no
// plain value: a number that no method, verification or level has.
GenerateFields FieldsOf(const v1::GenerateRequest& request);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_REQUEST_CONVERT_H_
