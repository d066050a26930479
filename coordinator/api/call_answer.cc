#include "coordinator/api/call_answer.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "coordinator/api/request_parser.h"

namespace nacre::coordinator {

class CallAnswer::Sink final : public ResponseSink {
 public:
  Sink(std::shared_ptr<CallAnswer> answer, int index)
      : answer_(std::move(answer)), index_(index) {}

  void OnChunk(const Chunk& chunk) override {
    // A step may commit tokens whose text is held back: the ids go out at once.
    answer_->Write({.choice = index_, .chunk = &chunk});
  }
  void OnComplete(const RequestSpec& request,
                  const Completion& completion) override {
    answer_->OnComplete(index_, request, completion);
  }
  void OnError(const absl::Status& status) override {
    answer_->OnError(index_, status);
  }
  int pending_chunks() const override { return answer_->PendingChunks(index_); }
  int64_t taken_chunks() const override { return answer_->TakenChunks(); }
  void Abandon() override { answer_->Abandon(); }

 private:
  const std::shared_ptr<CallAnswer> answer_;
  const int index_;
};

std::shared_ptr<CallAnswer> CallAnswer::Create(
    const Environment& environment, std::shared_ptr<AnswerWriter> writer) {
  return std::shared_ptr<CallAnswer>(
      new CallAnswer(environment, std::move(writer)));
}

void CallAnswer::SetRequestId(std::string request_id) {
  absl::MutexLock lock(&mu_);
  request_id_ = std::move(request_id);
}

void CallAnswer::Start(const RequestSpec& request) {
  std::vector<int> choices;
  bool cancelled = false;
  {
    absl::MutexLock lock(&mu_);
    request_id_ = request.request_id;
    choices_.resize(request.num_choices);
    if (request.resume != nullptr) SkipDone(*request.resume);
    cancelled = cancelled_;
    for (int i = 0; !cancelled && i < request.num_choices; ++i) {
      if (!choices_[i].ended) choices.push_back(i);
    }
    num_open_ += static_cast<int>(choices.size());
  }
  if (cancelled) {
    Fail(absl::CancelledError("cancelled by the client"));
  } else {
    StartChoices(request, choices);
  }
  // A failure or cancel meanwhile did not see all of the sessions.
  bool unwanted = false;
  {
    absl::MutexLock lock(&mu_);
    unwanted = cancelled_ || failure_.has_value();
  }
  if (unwanted) CancelSessions();
  Release();
}

void CallAnswer::Refuse(const absl::Status& status) {
  Fail(status);
  Release();
}

void CallAnswer::SkipDone(const std::vector<ResumedChoice>& choices) {
  for (size_t i = choices.size(); i-- > 0;) {
    if (choices[i].done) {
      choices_[i].ended = true;
      ++num_completed_;
    } else {
      first_choice_ = static_cast<int>(i);
    }
  }
}

void CallAnswer::CompleteResumed(const RequestSpec& request, int index,
                                 const Completion& ended) {
  Completion completion = ended;
  if (request.arrival_ns != 0) {
    completion.total_ns = environment_.now_ns() - request.arrival_ns;
  }
  OnComplete(index, ChoiceOf(request, index), completion);
}

void CallAnswer::StartChoices(const RequestSpec& request,
                              const std::vector<int>& choices) {
  std::vector<Dispatcher::NewSession> sessions;
  std::vector<int> computed, ended;
  for (int index : choices) {
    if (request.resume != nullptr &&
        (*request.resume)[index].ended != nullptr) {
      ended.push_back(index);
      continue;
    }
    computed.push_back(index);
    sessions.push_back({ChoiceOf(request, index),
                        std::make_shared<Sink>(shared_from_this(), index)});
  }
  if (!sessions.empty()) {
    const Dispatcher::Started started =
        environment_.dispatcher->StartAll(std::move(sessions));
    const size_t num_started = started.session_ids.size();
    for (size_t i = 0; i < num_started; ++i) {
      OnStarted(computed[i], started.session_ids[i]);
    }
    if (!started.status.ok()) Fail(started.status);
    for (size_t i = num_started; i < computed.size(); ++i) Release();
  }
  for (int index : ended) {
    CompleteResumed(request, index, *(*request.resume)[index].ended);
  }
}

void CallAnswer::OnStarted(int index, uint64_t session_id) {
  bool is_drained = false;
  {
    absl::MutexLock lock(&mu_);
    choices_[index].session_id = session_id;
    is_drained = choices_[index].pending == 0;
  }
  // Parts may have been taken before the session's number was known.
  if (is_drained) environment_.dispatcher->OnSinkDrained(session_id);
}

void CallAnswer::OnComplete(int index, const RequestSpec& request,
                            const Completion& completion) {
  {
    absl::MutexLock lock(&mu_);
    choices_[index].ended = true;
    if (index == first_choice_) first_finish_ = completion.finish;
    if (++num_completed_ == static_cast<int>(choices_.size())) {
      environment_.observer->OnAnswered(request_id_, absl::OkStatus(),
                                        first_finish_);
    }
  }
  Write({.choice = index, .request = &request, .completion = &completion});
  Release();
}

void CallAnswer::OnError(int index, const absl::Status& status) {
  bool has_others = false;
  {
    absl::MutexLock lock(&mu_);
    choices_[index].ended = true;
    has_others = choices_.size() > 1;
  }
  if (Fail(status) && has_others) {
    environment_.cancels->TrySubmit(
        /*bytes=*/0,
        [answer = shared_from_this()] { answer->CancelSessions(); });
  }
  Release();
}

void CallAnswer::Write(AnswerPart part) {
  std::shared_ptr<AnswerWriter> writer;
  std::string request_id;
  {
    absl::MutexLock lock(&mu_);
    if (failure_.has_value()) return;
    ++choices_[part.choice].pending;
    ++num_untaken_;
    writer = writer_;
    request_id = request_id_;
  }
  part.request_id = request_id;
  writer->Write(part);
}

bool CallAnswer::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (failure_.has_value()) return false;
  failure_ = status;
  failed_by_itself_ = !cancelled_;
  environment_.observer->OnAnswered(request_id_, status, absl::nullopt);
  return true;
}

void CallAnswer::CancelSessions() {
  std::vector<uint64_t> session_ids;
  absl::string_view reason = "cancelled by the client";
  {
    absl::MutexLock lock(&mu_);
    if (failed_by_itself_) {
      reason = "cancelled: another choice of the request failed";
    }
    for (const Choice& choice : choices_) {
      if (choice.session_id != 0 && !choice.ended) {
        session_ids.push_back(choice.session_id);
      }
    }
  }
  for (uint64_t session_id : session_ids) {
    environment_.dispatcher->Cancel(session_id, reason);
  }
}

void CallAnswer::Release() {
  bool awaits_reader = false;
  int64_t taken = 0;
  {
    absl::MutexLock lock(&mu_);
    if (--num_open_ > 0) return;
    awaits_reader = num_untaken_ > 0;
    taken = num_taken_;
  }
  if (awaits_reader) AwaitReader(taken);
  FinishIfDone();
}

void CallAnswer::AwaitReader(int64_t taken) {
  std::shared_ptr<AnswerWriter> writer;
  {
    absl::MutexLock lock(&mu_);
    writer = writer_;
  }
  if (writer == nullptr) return;
  const int64_t now_ns = environment_.now_ns();
  writer->SetTimer(After(now_ns, environment_.client_timeout_ns),
                   [answer = shared_from_this(), taken] {
                     int64_t taken_now = 0;
                     {
                       absl::MutexLock lock(&answer->mu_);
                       if (answer->num_untaken_ == 0) return;
                       taken_now = answer->num_taken_;
                     }
                     if (taken_now > taken) {
                       answer->AwaitReader(taken_now);
                     } else {
                       answer->Abandon();
                     }
                   });
}

void CallAnswer::FinishIfDone() {
  std::shared_ptr<AnswerWriter> writer;
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    if (num_open_ > 0 || num_untaken_ > 0 || writer_ == nullptr) return;
    writer = std::move(writer_);
    status = failure_.value_or(absl::OkStatus());
  }
  writer->Finish(status);
}

// Of this choice only: each is paced as if it were alone.
int CallAnswer::PendingChunks(int index) const {
  absl::MutexLock lock(&mu_);
  return choices_[index].pending;
}

int64_t CallAnswer::TakenChunks() const {
  absl::MutexLock lock(&mu_);
  return num_taken_;
}

void CallAnswer::Abandon() {
  std::shared_ptr<AnswerWriter> writer;
  {
    absl::MutexLock lock(&mu_);
    writer = writer_;
  }
  if (writer != nullptr) writer->Abandon();
}

void CallAnswer::OnTaken(int choice) {
  uint64_t drained_session = 0;
  {
    absl::MutexLock lock(&mu_);
    Choice& taken = choices_[choice];
    --taken.pending;
    --num_untaken_;
    ++num_taken_;
    if (taken.pending == 0 && !taken.ended) drained_session = taken.session_id;
  }
  FinishIfDone();
  if (drained_session != 0) {
    environment_.dispatcher->OnSinkDrained(drained_session);
  }
}

void CallAnswer::OnCancelled() {
  {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
  }
  CancelSessions();
}

}  // namespace nacre::coordinator
