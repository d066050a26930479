// From plain values to the public API's messages.
//
// Pure functions.

#ifndef COORDINATOR_API_RESPONSE_CONVERT_H_
#define COORDINATOR_API_RESPONSE_CONVERT_H_

#include "coordinator/dispatch/request.h"
#include "proto/inference.pb.h"

namespace nacre::coordinator {

v1::Chunk ToProto(const Chunk& chunk);
v1::Complete ToProto(const RequestSpec& request, const Completion& completion);
// But for the numerics_id, which its target has.
v1::Start StartOf(const RequestSpec& request);
v1::Method ToProto(speculation::Method method);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_RESPONSE_CONVERT_H_
