// Tells "the peer sent bytes that are no message" from "the peer sends no
// more", which gRPC's reactors do not. A read into a marked message leaves the
// mark alone when nothing came, and any parsing, even one that fails, begins by
// clearing it.

#ifndef COMMON_RPC_PARSE_MARK_H_
#define COMMON_RPC_PARSE_MARK_H_

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

namespace nacre::rpc {

// No bytes can be parsed into a field of number 0.
inline void SetParseMark(google::protobuf::Message* message) {
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(0, 1);
}

inline bool HasParseMark(const google::protobuf::Message& message) {
  const google::protobuf::UnknownFieldSet& fields =
      message.GetReflection()->GetUnknownFields(message);
  return !fields.empty() && fields.field(0).number() == 0;
}

}  // namespace nacre::rpc

#endif  // COMMON_RPC_PARSE_MARK_H_
