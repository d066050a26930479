#include "gateway/cut_answer.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/refusal.h"

namespace nacre::gateway {
namespace {

// The service takes 256 bytes. Those of the gateway are shorter: at most
// 128 of its client's, then what tells them from others.
constexpr size_t kKeptIdBytes = 224;
// Far more than the service takes: with others nothing goes on.
constexpr uint32_t kMaxChoices = 1024;

}  // namespace

bool IsRepeatable(const v1::GenerateRequest& request) {
  const v1::SpeculationOptions& speculation = request.speculation();
  const bool is_ratio = speculation.verification() == v1::VERIFICATION_RATIO &&
                        request.sampling().temperature() != 0.0f;
  const std::string& policy = speculation.policy();
  return !is_ratio && policy.substr(0, policy.find(':')) != "oracle";
}

bool MayMissTargets(const absl::Status& status) {
  const std::string field = FieldOf(status);
  return IsRefusedFor(status, kNeverFits) ||
         (absl::IsFailedPrecondition(status) &&
          (field == "numerics_id" || field == "resume.numerics_id"));
}

CutAnswer::CutAnswer(const v1::GenerateRequest* request)
    : request_(request),
      has_choices_(!request->has_n() || request->n() <= kMaxChoices),
      choices_(!has_choices_      ? 0
               : request->has_n() ? request->n()
                                  : 1) {
  const auto& resumed = request->resume().choices();
  for (int i = 0; i < resumed.size(); ++i) {
    if (static_cast<size_t>(i) == choices_.size()) break;
    Choice& choice = choices_[static_cast<size_t>(i)];
    choice.done = resumed[i].done();
    if (choice.done) continue;
    choice.token_ids.assign(resumed[i].token_ids().begin(),
                            resumed[i].token_ids().end());
  }
}

bool CutAnswer::Follows(const v1::GenerateResponse& response) const {
  if (!response.has_chunk() && !response.has_complete()) return true;
  if (response.index() >= choices_.size()) return false;
  const Choice& choice = choices_[response.index()];
  if (choice.done) return false;
  if (response.has_complete()) {
    const v1::Complete& complete = response.complete();
    const auto came = request_->output().stream()
                          ? choice.token_ids.size()
                          : static_cast<size_t>(complete.token_ids_size());
    return complete.usage().completion_tokens() == came;
  }
  return response.chunk().token_ids().empty() ||
         response.chunk().first_index() == choice.token_ids.size();
}

void CutAnswer::Note(const v1::GenerateResponse& response) {
  has_begun_ = true;
  if (!start_.has_value() && response.has_start()) {
    start_ = response.start();
    start_->clear_prompt_token_ids();
  }
  if (response.index() >= choices_.size()) return;
  Choice& choice = choices_[response.index()];
  if (response.has_complete()) {
    choice = {{}, true};
  } else if (response.has_chunk()) {
    choice.token_ids.insert(choice.token_ids.end(),
                            response.chunk().token_ids().begin(),
                            response.chunk().token_ids().end());
  }
}

bool CutAnswer::is_whole() const {
  return has_choices_ &&
         std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.done; });
}

bool CutAnswer::can_go_on() const {
  return start_.has_value() && has_choices_ && !is_whole() &&
         IsRepeatable(*request_);
}

v1::GenerateRequest CutAnswer::Rest() {
  v1::GenerateRequest rest = *request_;
  ++rests_;
  if (!rest.request_id().empty()) {
    rest.set_request_id(absl::StrCat(rest.request_id().substr(0, kKeptIdBytes),
                                     has_begun_ ? "-resume-" : "-retry-",
                                     rests_));
  }
  if (!has_begun_) return rest;
  rest.mutable_sampling()->set_seed(start_->seed());
  rest.clear_resume();
  v1::Resume* const resume = rest.mutable_resume();
  resume->set_model_fingerprint(start_->model_fingerprint());
  resume->set_numerics_id(start_->numerics_id());
  bool has_prompt = true;
  for (const Choice& choice : choices_) {
    v1::Resume::Choice* const came = resume->add_choices();
    came->mutable_token_ids()->Add(choice.token_ids.begin(),
                                   choice.token_ids.end());
    came->set_done(choice.done);
    has_prompt = has_prompt && (choice.done || !choice.token_ids.empty());
  }
  // What is said of the prompt came with the first tokens.
  if (has_prompt) rest.mutable_output()->clear_prompt_logprobs();
  return rest;
}

}  // namespace nacre::gateway
