// Messages out of bytes that a stranger may have written.

#ifndef COMMON_RPC_MESSAGE_BYTES_H_
#define COMMON_RPC_MESSAGE_BYTES_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace nacre::rpc {

// Parses all of `bytes`, which stay, into an empty message.
//
// A parsed message takes a few times its bytes. But strings, messages and what
// the schema does not know cost much more than they say: some 30 times two
// bytes. More than `max_fields` of these, counted at any depth, are refused
// before anything is parsed. INVALID_ARGUMENT: so many, or bytes that are no
// message.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, int max_fields,
                          google::protobuf::Message* message);

}  // namespace nacre::rpc

#endif  // COMMON_RPC_MESSAGE_BYTES_H_
