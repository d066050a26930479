#include "wire/codec_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::wire {
namespace {

using speculation::StopMark;

constexpr uint32_t kMaxInt = std::numeric_limits<int>::max();

struct StopMarks {
  StopMark ours;
  v1::StopMark proto;
};
constexpr StopMarks kStopMarks[] = {
    {StopMark::kNone, v1::STOP_MARK_UNSPECIFIED},
    {StopMark::kChunk, v1::STOP_MARK_CHUNK},
    {StopMark::kLead, v1::STOP_MARK_LEAD},
    {StopMark::kPolicy, v1::STOP_MARK_POLICY},
    {StopMark::kEnd, v1::STOP_MARK_END},
};

// What they hold is checked where it is used.
absl::Status CheckDistributions(const v1::Tail& proto) {
  NACRE_RETURN_IF_ERROR(CheckCount("Tail.distributions",
                                   proto.distributions_size(),
                                   speculation::kMaxLead + 1));
  for (const v1::DraftDistribution& each : proto.distributions()) {
    NACRE_RETURN_IF_ERROR(CheckCount("DraftDistribution.token_ids",
                                     each.token_ids_size(),
                                     speculation::kMaxDistribution));
    NACRE_RETURN_IF_ERROR(CheckCount("DraftDistribution.weights",
                                     each.weights_size(),
                                     speculation::kMaxDistribution));
  }
  return absl::OkStatus();
}

absl::Status CheckTree(const v1::Tail& proto) {
  const int count = proto.parents_size();
  NACRE_RETURN_IF_ERROR(CheckSameCount("Tail.scores", proto.scores_size(),
                                       "Tail.parents", count));
  const uint32_t first = proto.first_node();
  if (count == 0) {
    if (first == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("Tail.first_node is ", first, " without Tail.parents"));
  }
  NACRE_RETURN_IF_ERROR(CheckSameCount("Tail.parents", count, "Tail.token_ids",
                                       proto.token_ids_size()));
  if (first < 1 || first > uint32_t{speculation::kMaxNode} - count + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Tail.first_node is ", first, " of ", count, " nodes, must be in [1, ",
        speculation::kMaxNode - count + 1, "]"));
  }
  if (proto.first_position() != proto.base_length()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Tail.first_position of a tree is ", proto.first_position(),
        ", its base_length ", proto.base_length()));
  }
  if (proto.distributions_size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Tail.distributions of a tree has ",
                     proto.distributions_size(), " entries, must have none"));
  }
  for (int i = 0; i < count; ++i) {
    const uint32_t number = first + static_cast<uint32_t>(i);
    if (proto.parents(i) >= number) {
      return absl::InvalidArgumentError(
          absl::StrCat("Tail.parents[", i, "] of node ", number, " is ",
                       proto.parents(i), ", must be below it"));
    }
    if (!std::isfinite(proto.scores(i)) || proto.scores(i) > 0.0f) {
      return absl::InvalidArgumentError(
          absl::StrCat("Tail.scores[", i, "] is ", proto.scores(i),
                       ", must be finite and at most 0"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int ToInt(uint32_t value) {
  return value <= kMaxInt ? static_cast<int>(value) : -1;
}
int ToLimit(uint32_t value) {
  return static_cast<int>(std::min(value, kMaxInt));
}
int ToRows(uint32_t value) {
  return static_cast<int>(std::min<uint32_t>(value, kMaxRows));
}
int64_t ToDuration(uint64_t ns) {
  return static_cast<int64_t>(std::min<uint64_t>(ns, kMaxDurationNs));
}
int64_t ToTime(uint64_t ns) {
  return static_cast<int64_t>(std::min(ns, uint64_t{1} << 60));
}
std::vector<int32_t> ToIds(const ProtoIds& proto) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(proto.size()));
  for (const uint32_t id : proto) ids.push_back(ToInt(id));
  return ids;
}

void FillIds(const std::vector<int32_t>& ids, ProtoIds* proto) {
  proto->Reserve(proto->size() + static_cast<int>(ids.size()));
  for (const int32_t id : ids) proto->Add(static_cast<uint32_t>(id));
}

absl::Status CheckCount(const char* field, int count, int limit) {
  if (count <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", count, " entries, at most ", limit));
}

absl::Status CheckSameCount(const char* field, int count, const char* other,
                            int other_count) {
  if (count == other_count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " has ", count, " entries, ", other, " has ", other_count));
}

absl::Status UnknownValue(const char* field, int value) {
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", field, " ", value));
}

v1::SamplingParams EncodeSampling(const SamplingParams& params) {
  v1::SamplingParams proto;
  proto.set_temperature(params.temperature);
  proto.set_top_k(static_cast<uint32_t>(params.top_k));
  proto.set_top_p(params.top_p);
  proto.set_min_p(params.min_p);
  proto.set_repetition_penalty(params.repetition_penalty);
  proto.set_frequency_penalty(params.frequency_penalty);
  proto.set_presence_penalty(params.presence_penalty);
  proto.set_seed(params.seed);
  for (const auto& [id, bias] : params.logit_bias) {
    (*proto.mutable_logit_bias())[static_cast<uint32_t>(id)] = bias;
  }
  return proto;
}

SamplingParams DecodeSampling(const v1::SamplingParams& proto) {
  SamplingParams params;
  if (proto.has_temperature()) params.temperature = proto.temperature();
  if (proto.has_top_k()) params.top_k = ToLimit(proto.top_k());
  if (proto.has_top_p()) params.top_p = proto.top_p();
  if (proto.has_min_p()) params.min_p = proto.min_p();
  if (proto.has_repetition_penalty()) {
    params.repetition_penalty = proto.repetition_penalty();
  }
  if (proto.has_frequency_penalty()) {
    params.frequency_penalty = proto.frequency_penalty();
  }
  if (proto.has_presence_penalty()) {
    params.presence_penalty = proto.presence_penalty();
  }
  params.seed = proto.seed();
  for (const auto& [id, bias] : proto.logit_bias()) {
    params.logit_bias.emplace_back(ToInt(id), bias);
  }
  // A map has no order.
  std::sort(params.logit_bias.begin(), params.logit_bias.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return params;
}

v1::TargetPlan EncodePlan(const speculation::TargetPlan& plan) {
  v1::TargetPlan proto;
  proto.set_gate_after_mismatch(
      static_cast<uint32_t>(plan.gate_after_mismatch));
  proto.set_gate_in_flow(static_cast<uint32_t>(plan.gate_in_flow));
  proto.set_window(static_cast<uint32_t>(plan.window));
  proto.set_gate_timeout_ns(static_cast<uint64_t>(plan.gate_timeout_ns));
  proto.set_holds_last_row(plan.holds_last_row);
  proto.set_tree_rows(static_cast<uint32_t>(plan.tree_rows));
  proto.set_takes_all(plan.takes_all);
  proto.set_ends_chunks(plan.ends_chunks);
  return proto;
}

speculation::TargetPlan DecodePlan(const v1::TargetPlan& proto) {
  const auto rows = [](uint32_t value) {
    return std::min(ToLimit(value), speculation::kMaxWindow);
  };
  speculation::TargetPlan plan;
  plan.gate_after_mismatch = rows(proto.gate_after_mismatch());
  plan.gate_in_flow = rows(proto.gate_in_flow());
  plan.window = rows(proto.window());
  plan.gate_timeout_ns = ToDuration(proto.gate_timeout_ns());
  plan.holds_last_row = proto.holds_last_row();
  plan.tree_rows = rows(proto.tree_rows());
  plan.takes_all = proto.takes_all();
  plan.ends_chunks = proto.ends_chunks();
  return plan;
}

v1::DraftPlan EncodePlan(const speculation::DraftPlan& plan) {
  v1::DraftPlan proto;
  proto.set_lead_after_mismatch(
      static_cast<uint32_t>(plan.lead_after_mismatch));
  proto.set_lead_in_flow(static_cast<uint32_t>(plan.lead_in_flow));
  proto.set_waits_at_stop(plan.waits_at_stop);
  proto.set_rows(static_cast<uint32_t>(plan.rows));
  proto.set_least_score(plan.least_score);
  if (plan.tree.ranks_by_q()) proto.set_tree(TreeSpecName(plan.tree));
  return proto;
}

speculation::DraftPlan DecodePlan(const v1::DraftPlan& proto) {
  const auto lead = [](uint32_t value) {
    return std::min(ToLimit(value), speculation::kMaxLead);
  };
  speculation::DraftPlan plan;
  plan.lead_after_mismatch = lead(proto.lead_after_mismatch());
  plan.lead_in_flow = lead(proto.lead_in_flow());
  plan.waits_at_stop = proto.waits_at_stop();
  plan.rows = std::clamp(ToLimit(proto.rows()), 1, speculation::kMaxDraftRows);
  // Written so that a NaN is none.
  plan.least_score = proto.least_score() < 0 ? proto.least_score() : 0;
  // What no coordinator of ours sends is the likeliest nodes, too.
  const auto tree = speculation::ParseTreeSpec(proto.tree());
  if (tree.ok() && tree->ranks_by_q()) plan.tree = *tree;
  return plan;
}

void EncodeTail(const SessionTail& from, v1::Tail* proto) {
  const speculation::Tail& tail = from.tail;
  proto->set_session_id(from.session_id);
  proto->set_epoch(tail.epoch);
  proto->set_base_length(static_cast<uint32_t>(tail.base_length));
  proto->set_first_position(static_cast<uint32_t>(tail.first_position));
  FillIds(tail.token_ids, proto->mutable_token_ids());
  proto->set_stop(EncodeEnum(kStopMarks, tail.stop));
  for (const speculation::DraftDistribution& each : tail.distributions) {
    v1::DraftDistribution* to = proto->add_distributions();
    FillIds(each.token_ids, to->mutable_token_ids());
    to->mutable_weights()->Add(each.weights.begin(), each.weights.end());
  }
  FillIds(tail.parents, proto->mutable_parents());
  proto->set_first_node(static_cast<uint32_t>(tail.first_node));
  proto->mutable_scores()->Add(tail.scores.begin(), tail.scores.end());
}

absl::Status DecodeTail(const v1::Tail& proto, SessionTail* to) {
  NACRE_RETURN_IF_ERROR(CheckCount("Tail.token_ids", proto.token_ids_size(),
                                   speculation::kMaxTailNodes));
  NACRE_RETURN_IF_ERROR(CheckDistributions(proto));
  NACRE_RETURN_IF_ERROR(CheckTree(proto));
  speculation::Tail& tail = to->tail;
  NACRE_RETURN_IF_ERROR(
      DecodeEnum("Tail.stop", kStopMarks, proto.stop(), &tail.stop));
  to->session_id = proto.session_id();
  tail.epoch = proto.epoch();
  tail.base_length = ToInt(proto.base_length());
  tail.first_position = ToInt(proto.first_position());
  tail.token_ids = ToIds(proto.token_ids());
  for (const v1::DraftDistribution& each : proto.distributions()) {
    tail.distributions.push_back(
        {ToIds(each.token_ids()),
         {each.weights().begin(), each.weights().end()}});
  }
  tail.parents = ToIds(proto.parents());
  tail.first_node = ToInt(proto.first_node());
  tail.scores.assign(proto.scores().begin(), proto.scores().end());
  return absl::OkStatus();
}

}  // namespace nacre::wire
