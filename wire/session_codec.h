// Session messages as they travel, between the workers and the coordinator: the
// only code that knows how (beside Hello, hello_codec.h).
//
// Decode(Encode(x)) == x for every message that one of ours sends. Decode takes
// any message, and what it returns is safe to count with:
//   - a part that breaks a bound of worker.proto, or has an enum value that we
//     do not know, is left out;
//   - `malformed` lists it, with the field, its value and the limit; an Open
//     keeps it as its `refusal`;
//   - positions, lengths and token ids that do not fit an int become -1, which
//     nothing accepts, and limits the largest int;
//   - durations, sizes and rows of spans, and texts, are cut to what no worker
//     reaches; plans to what speculation/pipeline.h allows.
// Pure functions.

#ifndef WIRE_SESSION_CODEC_H_
#define WIRE_SESSION_CODEC_H_

#include "proto/worker.pb.h"
#include "wire/draft_messages.h"
#include "wire/session_events.h"
#include "wire/target_messages.h"

namespace nacre::wire {

// Of an Open: longer lists of token ids are refused.
inline constexpr int kMaxTokenIds = 4 << 20;
// What one step commits, and a Verdict and its commit hold.
inline constexpr int kMaxStepTokens = speculation::kMaxWindow + 1;
inline constexpr size_t kMaxNoteBytes = 256;
inline constexpr size_t kMaxErrorBytes = 1024;

v1::TargetControl Encode(const TargetCommands& commands);
v1::DraftControl Encode(const DraftCommands& commands);
v1::TargetEvent Encode(const TargetEvents& events);
v1::DraftEvent Encode(const DraftEvents& events);
// Spans are also in what clients are told.
v1::Span Encode(const Span& span);

TargetCommands Decode(const v1::TargetControl& proto);
DraftCommands Decode(const v1::DraftControl& proto);
TargetEvents Decode(const v1::TargetEvent& proto);
DraftEvents Decode(const v1::DraftEvent& proto);

}  // namespace nacre::wire

#endif  // WIRE_SESSION_CODEC_H_
