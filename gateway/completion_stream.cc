#include "gateway/completion_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gateway/sse.h"

namespace nacre::gateway {
namespace {

std::vector<std::vector<uint32_t>> AllIds(
    const std::vector<CompletionStream::PromptIds>& prompts) {
  std::vector<std::vector<uint32_t>> all;
  all.reserve(prompts.size());
  for (const auto& prompt : prompts) all.push_back(prompt.ids);
  return all;
}

// What was generated where the prompt alone was asked for.
void DropAnswer(v1::Chunk* chunk) {
  chunk->clear_token_ids();
  chunk->clear_text();
  chunk->clear_logprobs();
  chunk->clear_trace();
}

void DropAnswer(v1::Complete* complete) {
  complete->set_finish_reason(v1::FINISH_REASON_LENGTH);
  complete->clear_stop_match();
  complete->clear_text();
  complete->clear_token_ids();
  complete->clear_logprobs();
  complete->clear_trace();
  complete->mutable_usage()->set_completion_tokens(0);
}

}  // namespace

CompletionStream::CompletionStream(EventLoop* loop, InferenceClient* client,
                                   const tokenizer::Tokenizer* tokenizer,
                                   absl::Duration ping_period, Order order,
                                   std::shared_ptr<HttpReply> reply)
    : loop_(loop),
      client_(client),
      ping_period_(ping_period),
      order_(std::move(order)),
      format_(&order_.request, tokenizer, order_.head, AllIds(order_.prompts)),
      reply_(std::move(reply)),
      completes_(order_.prompts.size(),
                 Choices(static_cast<size_t>(order_.request.n))),
      last_write_(absl::Now()) {
  const auto& resumed = order_.request.generate.resume().choices();
  for (size_t i = 0; i < static_cast<size_t>(resumed.size()); ++i) {
    if (!IsDone(i)) continue;
    ++completed_;
    v1::Usage* const usage = completes_[0][i].mutable_usage();
    usage->set_prompt_tokens(
        static_cast<uint32_t>(order_.prompts[0].ids.size()));
    usage->set_completion_tokens(
        static_cast<uint32_t>(resumed[static_cast<int>(i)].token_ids_size()));
  }
}

bool CompletionStream::IsDone(size_t choice) const {
  const v1::GenerateRequest& request = order_.request.generate;
  return request.has_resume() &&
         request.resume().choices(static_cast<int>(choice)).done();
}

v1::GenerateRequest CompletionStream::RequestOf(size_t prompt) const {
  v1::GenerateRequest request = order_.request.generate;
  const PromptIds& ids = order_.prompts[prompt];
  *request.mutable_token_ids()->mutable_ids() = {ids.ids.begin(),
                                                 ids.ids.end()};
  request.mutable_stop()->set_max_tokens(ids.max_tokens);
  if (order_.prompts.size() > 1) {
    request.set_request_id(absl::StrCat(request.request_id(), "-", prompt));
  }
  return request;
}

void CompletionStream::Start() {
  const auto self = shared_from_this();
  for (size_t i = 0; i < order_.prompts.size(); ++i) {
    ++running_;
    calls_.push_back(client_->Generate(
        RequestOf(i), order_.headers,
        {[self, i](v1::GenerateResponse response) {
           self->OnResponse(i, std::move(response));
         },
         [self, i](const absl::Status& status) { self->OnDone(i, status); }}));
  }
  reply_->OnGone([self] {
    self->finished_ = true;
    self->LetGo();
  });
  if (finished_) return;  // it had gone before
  reply_->OnRoom([self] { self->OnRoom(); });
  if (order_.request.answer.stream) WatchSilence();
  for (size_t i = 0; i < calls_.size() && !finished_; ++i) calls_[i]->Next();
}

void CompletionStream::OnResponse(size_t prompt,
                                  v1::GenerateResponse response) {
  if (finished_) return;
  const auto n = static_cast<size_t>(order_.request.n);
  if (response.index() >= n) {
    return Fail(ErrorOf(absl::InternalError(absl::StrCat(
        "the service answers choice ", response.index(), " of ", n))));
  }
  if (response.has_start()) format_.SetStart(response.start());
  if (order_.request.PromptOnly() && response.has_chunk()) {
    DropAnswer(response.mutable_chunk());
  } else if (order_.request.PromptOnly() && response.has_complete()) {
    DropAnswer(response.mutable_complete());
  }
  const size_t choice = prompt * n + response.index();
  const bool streams = order_.request.answer.stream;
  if (response.has_chunk()) {
    if (!response.chunk().numerics_id().empty()) {
      format_.SetNumericsId(response.chunk().numerics_id());
    }
    if (streams) BeginAnswer();
    if (streams) WriteEvent(format_.Piece(choice, response.chunk()));
  } else if (response.has_complete()) {
    v1::Complete& complete = completes_[prompt][response.index()];
    complete = std::move(*response.mutable_complete());
    ++completed_;
    if (streams) BeginAnswer();
    if (streams) WriteEvent(format_.Last(choice, complete));
  }
  FetchMore(prompt);
}

void CompletionStream::FetchMore(size_t prompt) {
  if (finished_) return;
  if (reply_->HasRoom()) {
    calls_[prompt]->Next();
  } else {
    waiting_.push_back(prompt);
  }
}

void CompletionStream::OnRoom() {
  for (const size_t prompt : std::exchange(waiting_, {})) FetchMore(prompt);
}

void CompletionStream::OnDone(size_t, const absl::Status& status) {
  if (finished_) return;
  --running_;
  if (!status.ok()) {
    return Fail(ErrorOf(status, order_.request.AsAsked()));
  }
  if (running_ > 0) return;
  const size_t expected =
      order_.prompts.size() * static_cast<size_t>(order_.request.n);
  if (completed_ != expected) {
    return Fail(ErrorOf(absl::InternalError(absl::StrCat(
        "the service completes ", completed_, " of ", expected, " choices"))));
  }
  Finish();
}

void CompletionStream::BeginStream() {
  if (std::exchange(begun_, true)) return;
  HttpHeaders headers = order_.reply_headers;
  headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  headers.emplace_back("Cache-Control", "no-cache");
  headers.emplace_back("X-Accel-Buffering", "no");
  reply_->Begin(200, headers);
}

void CompletionStream::BeginAnswer() {
  if (std::exchange(said_first_, true)) return;
  BeginStream();
  // In the order of the choices: readers put the first piece of each at the end
  // of a list.
  const size_t choices =
      order_.prompts.size() * static_cast<size_t>(order_.request.n);
  for (size_t i = 0; i < choices; ++i) {
    if (!IsDone(i)) WriteEvent(format_.First(i));
  }
}

void CompletionStream::WriteEvent(const std::string& json) {
  if (json.empty() || finished_) return;
  last_write_ = absl::Now();
  reply_->Write(SseEvent(json));
}

void CompletionStream::WatchSilence() {
  const absl::Duration silence = absl::Now() - last_write_;
  if (silence >= ping_period_) {
    // Until now an error would have had a status of its own.
    BeginStream();
    if (reply_->HasRoom()) reply_->Write(kSsePing);
    last_write_ = absl::Now();
  }
  loop_->PostAfter(ping_period_ - (absl::Now() - last_write_),
                   [weak = weak_from_this()] {
                     const auto self = weak.lock();
                     if (self != nullptr && !self->finished_) {
                       self->WatchSilence();
                     }
                   });
}

void CompletionStream::Finish() {
  if (!order_.request.answer.stream) return SendWhole();
  BeginAnswer();
  if (order_.request.answer.usage.included)
    WriteEvent(format_.Usage(completes_));
  finished_ = true;
  reply_->Write(kSseDone);
  reply_->End();
  LetGo();
}

// Names of thousands of tokens take long: not on the loop.
void CompletionStream::SendWhole() {
  const auto self = shared_from_this();
  const auto write = [self] {
    std::string body = self->format_.Whole(self->completes_);
    self->loop_->Post([self, body = std::move(body)]() mutable {
      if (std::exchange(self->finished_, true)) return;
      HttpHeaders headers = self->order_.reply_headers;
      headers.emplace_back("Content-Type", "application/json");
      self->reply_->Send(200, headers, std::move(body));
      self->LetGo();
    });
  };
  const bool is_long = order_.request.answer.wants_logprobs ||
                       order_.request.answer.prompt_logprobs;
  if (!is_long || !loop_->PostWork(write)) write();
}

void CompletionStream::Fail(const ApiError& error) {
  if (std::exchange(finished_, true)) return;
  if (begun_) {
    reply_->Write(SseEvent(ErrorBody(error)));
    reply_->Write(kSseDone);
    reply_->End();
  } else {
    SendError(error, reply_.get());
  }
  LetGo();
}

void CompletionStream::LetGo() {
  for (const auto& call : std::exchange(calls_, {})) call->Cancel();
  waiting_.clear();
  reply_.reset();
}

}  // namespace nacre::gateway
