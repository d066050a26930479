#include "draft_worker/feature_recorder.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "model/distribution.h"

namespace nacre::draft_worker {
namespace {

// As many digits as give the same float back.
std::string Exact(float value) { return absl::StrFormat("%.9g", value); }

}  // namespace

void SessionFeatures::OnDrafted(int position, int32_t token_id,
                                absl::Span<const float> logits,
                                absl::Span<const float> hidden) {
  const model::Distribution distribution(
      logits.first(static_cast<size_t>(options_.vocab_limit)));
  const size_t unverified = unverified_.size();
  Row& row = unverified_.emplace_back();
  row.generated = position - options_.prompt_length;
  row.token_id = token_id;
  row.unverified = unverified;
  distribution.FillTop(absl::MakeSpan(row.top));
  row.entropy = static_cast<float>(distribution.entropy());
  row.probability = static_cast<float>(distribution.Probability(token_id));
  if (needs_hidden()) row.hidden.assign(hidden.begin(), hidden.end());
}

void SessionFeatures::OnCommit(
    const speculation::DraftSession::CommitReport& report) {
  Write(report.accepted, report.rejected ? 1 : 0, 0);
  if (report.rejected) unverified_.clear();
}

void SessionFeatures::OnClosed() {
  Write(0, 0, static_cast<int>(unverified_.size()));
}

void SessionFeatures::Write(int accepted, int rejected, int unknown) {
  const int num_lines = accepted + rejected + unknown;
  NACRE_CHECK(static_cast<size_t>(num_lines) <= unverified_.size(),
              "a verdict on tokens that were not drafted");
  std::string lines;
  for (int i = 0; i < num_lines; ++i) {
    AppendLine(i < accepted              ? "true"
               : i < accepted + rejected ? "false"
                                         : "null",
               &lines);
    unverified_.pop_front();
  }
  if (num_lines > 0) options_.file->Write(lines, num_lines);
}

void SessionFeatures::AppendLine(const char* outcome, std::string* lines) {
  Row& row = unverified_.front();
  absl::StrAppend(
      lines, "{\"request\":", worker::JsonString(options_.request_id),
      ",\"session\":", options_.session_id, ",\"position\":", row.generated,
      ",\"token\":", row.token_id, ",\"unverified\":", row.unverified,
      ",\"top\":[",
      absl::StrJoin(
          row.top, ",",
          [](std::string* out, float p) { absl::StrAppend(out, Exact(p)); }),
      "],\"entropy\":", Exact(row.entropy),
      ",\"probability\":", Exact(row.probability));
  if (needs_hidden()) {
    AppendHidden("row", row, lines);
    // The row that drew the next token was fed this one, right or wrong.
    if (unverified_.size() > 1) AppendHidden("fed", unverified_[1], lines);
  }
  absl::StrAppend(lines, ",\"accepted\":", outcome, "}\n");
}

void SessionFeatures::AppendHidden(const char* key, Row& row,
                                   std::string* lines) {
  if (!row.hidden.empty()) {
    row.hidden_at = options_.file->hidden()->Append(row.hidden);
    row.hidden.clear();
  }
  if (row.hidden_at.has_value()) {
    absl::StrAppend(lines, ",\"", key, "\":", *row.hidden_at);
  }
}

void FeatureRecorder::OnRows(const worker::TapSession& session,
                             const worker::TapRows& rows) {
  NACRE_CHECK(rows.token_ids.size() == 1, "a draft draws one token a step");
  const auto it = sessions_
                      .try_emplace(session.key,
                                   SessionFeatures::Options{
                                       .file = file_,
                                       .request_id = session.request_id,
                                       .session_id = session.key.second,
                                       .prompt_length = session.prompt_length,
                                       .vocab_limit = session.vocab_limit})
                      .first;
  it->second.OnDrafted(rows.position, rows.token_ids.front(), rows.logits,
                       rows.hidden.host());
}

void FeatureRecorder::OnVerdict(const worker::TapSession& session, int accepted,
                                bool rejected) {
  const auto it = sessions_.find(session.key);
  if (it == sessions_.end()) return;
  speculation::DraftSession::CommitReport report;
  report.accepted = accepted;
  report.rejected = rejected;
  it->second.OnCommit(report);
}

void FeatureRecorder::OnClosed(const worker::TapSession& session) {
  const auto it = sessions_.find(session.key);
  if (it == sessions_.end()) return;
  it->second.OnClosed();
  sessions_.erase(it);
}

}  // namespace nacre::draft_worker
