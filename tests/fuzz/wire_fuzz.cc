// Any bytes as each message between coordinator and workers. What is decoded
// keeps the bounds of the protocol, and is decoded alike when it has been sent
// once more. The first byte chooses the message.

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"
#include "wire/hello_codec.h"
#include "wire/session_codec.h"

namespace {

using namespace nacre;        // NOLINT: a program of its own
using namespace nacre::wire;  // NOLINT

void CheckNotes(const std::vector<Malformed>& malformed) {
  for (const Malformed& part : malformed) {
    NACRE_CHECK(absl::IsInvalidArgument(part.status), "another error");
    NACRE_CHECK(!part.status.message().empty(), "an error without words");
  }
}
std::vector<Malformed>* MalformedOf(TargetCommands* m) { return &m->malformed; }
std::vector<Malformed>* MalformedOf(DraftCommands* m) { return &m->malformed; }
std::vector<Malformed>* MalformedOf(TargetEvents* m) {
  return &m->common.malformed;
}
std::vector<Malformed>* MalformedOf(DraftEvents* m) {
  return &m->common.malformed;
}

void CheckTails(const std::vector<SessionTail>& tails) {
  for (const auto& [session_id, tail] : tails) {
    NACRE_CHECK(tail.token_ids.size() <= speculation::kMaxTailNodes, "nodes");
    NACRE_CHECK(tail.parents.size() == tail.scores.size(), "scores");
    NACRE_CHECK(!tail.is_tree() || tail.parents.size() == tail.token_ids.size(),
                "parents");
    for (size_t i = 0; i < tail.parents.size(); ++i) {
      NACRE_CHECK(tail.parents[i] >= 0 &&
                      int64_t{tail.parents[i]} <
                          int64_t{tail.first_node} + static_cast<int64_t>(i),
                  "a parent after its child");
    }
  }
}
void CheckBounds(const TargetCommands& commands) { CheckTails(commands.tails); }
void CheckBounds(const DraftEvents& events) { CheckTails(events.tails); }
void CheckBounds(const TargetEvents& events) {
  for (const SessionVerdict& each : events.verdicts) {
    const speculation::Verdict& verdict = each.verdict;
    NACRE_CHECK(verdict.token_ids.size() <= size_t{kMaxStepTokens}, "tokens");
    NACRE_CHECK(each.logprobs.size() <= verdict.token_ids.size(), "logprobs");
    NACRE_CHECK(verdict.path.empty() ||
                    static_cast<int>(verdict.path.size()) == verdict.matched,
                "path");
  }
}
void CheckBounds(const DraftCommands& commands) {
  for (const auto& [session_id, commit] : commands.commits) {
    NACRE_CHECK(commit.token_ids.size() <= size_t{kMaxStepTokens}, "tokens");
  }
}

// In one order, which maps have not.
std::string Bytes(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream output(&stream);
  output.SetSerializationDeterministic(true);
  NACRE_CHECK(message.SerializeToCodedStream(&output), "serialized");
  output.Trim();
  return bytes;
}

template <typename Proto>
void Fuzz(const uint8_t* data, size_t size) {
  Proto proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return;
  auto message = Decode(proto);
  CheckBounds(message);
  CheckNotes(*MalformedOf(&message));
  MalformedOf(&message)->clear();
  // Bytes: a NaN is not equal to itself.
  const auto sent = Encode(message);
  NACRE_CHECK(proto.ParseFromString(Bytes(sent)), "a text is no string");
  NACRE_CHECK(Bytes(sent) == Bytes(Encode(Decode(sent))),
              "what was decoded changes on the wire");
  NACRE_CHECK(MalformedOf(&(message = Decode(sent)))->empty(),
              "what was decoded is malformed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // It would log each text that is no string.
  const google::protobuf::LogSilencer silencer;
  const uint8_t* rest = data + 1;
  switch (data[0] % 5) {
    case 0:
      Fuzz<v1::TargetControl>(rest, size - 1);
      break;
    case 1:
      Fuzz<v1::DraftControl>(rest, size - 1);
      break;
    case 2:
      Fuzz<v1::TargetEvent>(rest, size - 1);
      break;
    case 3:
      Fuzz<v1::DraftEvent>(rest, size - 1);
      break;
    default: {
      v1::Hello proto;
      if (!proto.ParseFromArray(rest, static_cast<int>(size - 1))) break;
      const absl::StatusOr<Hello> hello = Decode(proto);
      if (hello.ok()) {
        const absl::StatusOr<Hello> again = Decode(Encode(*hello));
        NACRE_CHECK(again.ok() && *again == *hello, "Hello changes");
      } else {
        NACRE_CHECK(!hello.status().message().empty(), "no words");
      }
    }
  }
  return 0;
}
