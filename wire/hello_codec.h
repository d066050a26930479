// Hello as it travels.
//
// Pure functions. Decode(Encode(x)) == x for what a worker is.

#ifndef WIRE_HELLO_CODEC_H_
#define WIRE_HELLO_CODEC_H_

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "wire/hello.h"

namespace nacre::wire {

v1::Hello Encode(const Hello& hello);
v1::WorkerRole Encode(WorkerRole role);

// FAILED_PRECONDITION for another protocol version, INVALID_ARGUMENT with the
// field, its value and the limit. End tokens outside the head and step times of
// more rows than a curve holds are left out; numbers that no worker reaches are
// cut.
absl::StatusOr<Hello> Decode(const v1::Hello& proto);

}  // namespace nacre::wire

#endif  // WIRE_HELLO_CODEC_H_
