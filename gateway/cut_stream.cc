#include "gateway/cut_stream.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nacre::gateway {

CutAnswer::CutAnswer(v1::GenerateRequest request)
    : request_(std::move(request)),
      choices_(request_.has_n() ? request_.n() : 1) {}

absl::Status CutAnswer::Check(const v1::GenerateResponse& response) const {
  if (response.index() >= choices_.size()) {
    return absl::InternalError(absl::StrCat("the service answers choice ",
                                            response.index(), " of ",
                                            choices_.size()));
  }
  const Choice& choice = choices_[response.index()];
  if (choice.done) {
    return absl::InternalError(absl::StrCat("the service says more of choice ",
                                            response.index(),
                                            " after its end"));
  }
  const v1::Chunk& chunk = response.chunk();
  if (chunk.token_ids_size() > 0 &&
      chunk.first_index() != choice.token_ids.size()) {
    return absl::InternalError(absl::StrCat(
        "the service says token ", chunk.first_index(), " of choice ",
        response.index(), " after ", choice.token_ids.size()));
  }
  return absl::OkStatus();
}

absl::Status CutAnswer::Add(const v1::GenerateResponse& response) {
  if (response.has_start() && !start_.has_value()) start_ = response.start();
  absl::Status status = Check(response);
  follows_ = follows_ && status.ok();
  if (!status.ok()) return status;
  Choice& choice = choices_[response.index()];
  if (response.has_complete()) {
    choice.done = true;
    ++num_done_;
    ++progress_;
    return absl::OkStatus();
  }
  const auto& ids = response.chunk().token_ids();
  choice.token_ids.insert(choice.token_ids.end(), ids.begin(), ids.end());
  progress_ += static_cast<uint64_t>(ids.size());
  return absl::OkStatus();
}

bool CutAnswer::CanResume() const {
  const v1::SpeculationOptions& speculation = request_.speculation();
  // Their tokens depend on what was drafted, or on tokens that the client sent.
  const bool is_ratio = speculation.verification() == v1::VERIFICATION_RATIO &&
                        request_.sampling().temperature() != 0.0f;
  const std::string policy =
      speculation.policy().substr(0, speculation.policy().find(':'));
  return follows_ && start_.has_value() && !is_complete() && !is_ratio &&
         policy != "oracle";
}

v1::GenerateRequest CutAnswer::Resume() const {
  v1::GenerateRequest resumed = request_;
  resumed.clear_request_id();  // the old call may still run
  *resumed.mutable_token_ids()->mutable_ids() = start_->prompt_token_ids();
  resumed.mutable_sampling()->set_seed(start_->seed());
  v1::Resume* const resume = resumed.mutable_resume();
  resume->set_model_fingerprint(start_->model_fingerprint());
  resume->set_numerics_id(start_->numerics_id());
  for (const Choice& choice : choices_) {
    v1::Resume::Choice* const proto = resume->add_choices();
    proto->set_done(choice.done);
    if (choice.done) continue;
    proto->mutable_token_ids()->Add(choice.token_ids.begin(),
                                    choice.token_ids.end());
  }
  return resumed;
}

}  // namespace nacre::gateway
