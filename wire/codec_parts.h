// Parts that several messages have, and how numbers, lists and enum values are
// taken from a peer. Only for the codec's own sources.

#ifndef WIRE_CODEC_PARTS_H_
#define WIRE_CODEC_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/sampling_params.h"
#include "proto/worker.pb.h"
#include "speculation/pipeline.h"
#include "wire/session_events.h"
#include "wire/target_messages.h"

namespace nacre::wire {

// Bounded as session_codec.h says.
int ToInt(uint32_t value);        // -1 when it does not fit
int ToLimit(uint32_t value);      // the largest int when it does not fit
int ToRows(uint32_t value);       // at most kMaxRows
int64_t ToDuration(uint64_t ns);  // at most kMaxDurationNs
// A time: differences of two, and sums with durations, do not overflow.
int64_t ToTime(uint64_t ns);

using ProtoIds = google::protobuf::RepeatedField<uint32_t>;
std::vector<int32_t> ToIds(const ProtoIds& proto);
void FillIds(const std::vector<int32_t>& ids, ProtoIds* proto);

// INVALID_ARGUMENT with the field, what it has and the limit.
absl::Status CheckCount(const char* field, int count, int limit);
absl::Status CheckSameCount(const char* field, int count, const char* other,
                            int other_count);
absl::Status UnknownValue(const char* field, int value);

// A table has a row {ours, proto} for each value of an enum; of several for one
// value, the first counts.
template <typename Row, size_t kRows>
auto EncodeEnum(const Row (&table)[kRows], decltype(Row::ours) ours) {
  const Row* row = table;
  while (row->ours != ours) ++row;
  return row->proto;
}
// INVALID_ARGUMENT for what the table lacks.
template <typename Row, size_t kRows>
absl::Status DecodeEnum(const char* field, const Row (&table)[kRows],
                        decltype(Row::proto) proto, decltype(Row::ours)* ours) {
  for (const Row& row : table) {
    if (row.proto != proto) continue;
    *ours = row.ours;
    return absl::OkStatus();
  }
  return UnknownValue(field, static_cast<int>(proto));
}

v1::SamplingParams EncodeSampling(const SamplingParams& params);
SamplingParams DecodeSampling(const v1::SamplingParams& proto);
v1::TargetPlan EncodePlan(const speculation::TargetPlan& plan);
speculation::TargetPlan DecodePlan(const v1::TargetPlan& proto);
v1::DraftPlan EncodePlan(const speculation::DraftPlan& plan);
speculation::DraftPlan DecodePlan(const v1::DraftPlan& proto);
void EncodeTail(const SessionTail& from, v1::Tail* proto);
absl::Status DecodeTail(const v1::Tail& proto, SessionTail* to);

// Those of `from` that are well formed; the others are noted.
template <typename Proto, typename Part>
void DecodeParts(const google::protobuf::RepeatedPtrField<Proto>& from,
                 absl::Status (*decode)(const Proto&, Part*),
                 std::vector<Part>* to, std::vector<Malformed>* malformed) {
  to->reserve(static_cast<size_t>(from.size()));
  for (const Proto& proto : from) {
    Part part;
    absl::Status status = decode(proto, &part);
    if (status.ok()) {
      to->push_back(std::move(part));
    } else {
      malformed->push_back({proto.session_id(), std::move(status)});
    }
  }
}

}  // namespace nacre::wire

#endif  // WIRE_CODEC_PARTS_H_
