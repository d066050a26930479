#include "worker/tensors/tensor_metrics.h"

#include "telemetry/metric_families.h"

namespace nacre::worker {
namespace {

using telemetry::MetricFamilies;

void AddSent(const TensorPublisher::Stats& stats, MetricFamilies* families) {
  families->Gauge("nacre_target_tensor_channels",
                  "Sessions whose hidden states, keys and values or features "
                  "drafts read, once a draft.",
                  stats.subscriptions);
  families->Count("nacre_target_tensors_sent_total",
                  "Hidden states, and runs of keys and values or of features, "
                  "sent to drafts.",
                  static_cast<double>(stats.sent));
  families->Count("nacre_target_tensor_bytes_sent_total",
                  "Bytes of their values, as they were sent.",
                  static_cast<double>(stats.sent_bytes));
  families->Count("nacre_target_tensors_replaced_total",
                  "Hidden states that were not sent: the draft was slow, and a "
                  "newer one took their place.",
                  static_cast<double>(stats.replaced));
  families->Gauge("nacre_target_tensor_nccl_links",
                  "Drafts that get their tensors from GPU to GPU.",
                  stats.links);
  families->Count("nacre_target_tensor_nccl_failures_total",
                  "Such links that failed: their tensors go over gRPC.",
                  static_cast<double>(stats.link_failures));
  families->Count("nacre_target_tensors_sent_nccl_total",
                  "Of the tensors sent, those that went over such links.",
                  static_cast<double>(stats.sent_over_links));
  families->Count("nacre_target_tensor_bytes_sent_nccl_total",
                  "Bytes of their values.",
                  static_cast<double>(stats.sent_bytes_over_links));
  families->Count("nacre_target_rows_sent_again_total",
                  "Rows of keys and values, or of features, that were under "
                  "way when such a link failed: they go again, over gRPC.",
                  static_cast<double>(stats.rows_sent_again));
}

void AddReceived(const TensorReader::Stats& stats, const TensorUse& use,
                 MetricFamilies* families) {
  constexpr char kDropped[] = "nacre_draft_tensors_dropped_total";
  constexpr char kDroppedHelp[] =
      "Hidden states, or pieces of them, of no use: late, of another epoch or "
      "of a closed session; malformed; or lost with an NCCL link, from which "
      "rows come again.";
  families->Count(
      "nacre_draft_tensors_received_total",
      "Hidden states, and runs of keys and values or of features, that came "
      "whole.",
      static_cast<double>(stats.received));
  families->Count("nacre_draft_tensor_bytes_received_total",
                  "Bytes of their values, as they came.",
                  static_cast<double>(stats.received_bytes));
  families->Count(
      "nacre_draft_tensors_used_total",
      "Hidden states that length policies were given, and runs of "
      "keys and values or of features that brought drafts new rows.",
      static_cast<double>(use.used));
  families->Count("nacre_draft_tensor_lag_seconds_total",
                  "For how long the hidden states among these were missing, "
                  "each from its commit.",
                  static_cast<double>(use.lag_ns) * 1e-9);
  families->Count("nacre_draft_target_rows_total",
                  "Rows of keys and values, or of features, that came: one for "
                  "each position.",
                  static_cast<double>(use.rows));
  families->Count("nacre_draft_target_row_commits_total",
                  "Commits of requests whose draft reads such rows.",
                  static_cast<double>(use.row_commits));
  families->Count("nacre_draft_target_rows_missing_total",
                  "Positions that had no row yet, added up over these commits: "
                  "how far rows lag behind.",
                  static_cast<double>(use.missing_rows));
  families->Count("nacre_draft_target_rows_lost_total",
                  "Positions of which the target had no row to send: taken "
                  "over from its prefix cache, or dropped for want of room.",
                  static_cast<double>(use.lost_rows));
  families->Count(kDropped, kDroppedHelp, static_cast<double>(use.stale),
                  {{"reason", "stale"}});
  families->Count(kDropped, kDroppedHelp,
                  static_cast<double>(stats.malformed + use.malformed_rows),
                  {{"reason", "malformed"}});
  families->Count(kDropped, kDroppedHelp,
                  static_cast<double>(stats.lost_with_links),
                  {{"reason", "nccl"}});
  families->Count("nacre_draft_tensor_channels_lost_total",
                  "Sessions that go on without hidden states, or without more "
                  "rows: their target could not be reached, was lost, refused, "
                  "or had lost rows.",
                  static_cast<double>(stats.lost_channels + use.given_up));
  families->Gauge("nacre_draft_tensor_nccl_links",
                  "Targets whose tensors come from GPU to GPU.", stats.links);
  families->Count("nacre_draft_tensor_nccl_failures_total",
                  "Such links that failed: their tensors come over gRPC.",
                  static_cast<double>(stats.link_failures));
  families->Count("nacre_draft_tensors_received_nccl_total",
                  "Tensors that came over such links.",
                  static_cast<double>(stats.received_over_links));
  families->Count("nacre_draft_tensor_bytes_received_nccl_total",
                  "Bytes of their values.",
                  static_cast<double>(stats.received_bytes_over_links));
}

}  // namespace

std::vector<prometheus::MetricFamily> TensorMetrics::Collect() const {
  MetricFamilies families({{"role", options_.sent ? "target" : "draft"},
                           {"worker", options_.worker}});
  if (options_.sent) AddSent(options_.sent(), &families);
  if (options_.received) {
    AddReceived(options_.received(), options_.use(), &families);
  }
  return families.Take();
}

}  // namespace nacre::worker
