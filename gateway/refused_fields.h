// Fields that OpenAI's API, vLLM or llama.cpp know and the gateway does not
// serve, or not in this kind of request. A value that changes nothing passes;
// any other is refused, for to ignore it would give an answer to another
// question.
//
// Pure functions.

#ifndef GATEWAY_REFUSED_FIELDS_H_
#define GATEWAY_REFUSED_FIELDS_H_

#include "gateway/field_reader.h"

namespace nacre::gateway {

// `choices`: the request's n, the only best_of that is served.
void RefuseUnsupported(bool is_chat, int choices, FieldReader* reader);
// Takes note of fields that are known, and mean nothing here.
void PassIgnorable(FieldReader* reader);

}  // namespace nacre::gateway

#endif  // GATEWAY_REFUSED_FIELDS_H_
