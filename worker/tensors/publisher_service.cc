#include "worker/tensors/publisher_service.h"

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/rpc/parse_mark.h"
#include "common/status_macros.h"
#include "worker/tensors/chunk_convert.h"
#include "worker/tensors/latest_queue.h"
#include "worker/tensors/tensor_chunks.h"

namespace nacre::worker {

namespace {

// What a peer says is bounded here, and compared by the engine with what there
// is.
TensorPublisher::RowsWanted ToWanted(const v1::RowsRequest& request) {
  const auto bounded = [](uint32_t value, uint32_t most) {
    return static_cast<int>(std::min(value, most));
  };
  // No model has as many; the product of three still is a number.
  constexpr uint32_t kMostOfShape = 512;
  constexpr uint32_t kMostFeatures = 1 << 16;
  constexpr uint32_t kMostPositions = 1 << 30;
  return {{bounded(request.num_layers(), kMostOfShape),
           bounded(request.num_key_value_heads(), kMostOfShape),
           bounded(request.head_dim(), kMostOfShape),
           bounded(request.num_features(), kMostFeatures)},
          request.target_fingerprint(),
          bounded(request.first(), kMostPositions),
          bounded(request.end(), kMostPositions),
          request.epoch(),
          request.draft_fingerprint()};
}

absl::Status CheckFingerprint(absl::string_view name,
                              const std::string& fingerprint) {
  constexpr size_t kMost = TensorPublisherService::kMaxFingerprint;
  if (fingerprint.size() <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a ", name, " of ", fingerprint.size(),
                   " characters, more than ", kMost));
}

// A row is of one kind, and has numbers.
absl::Status CheckRows(const v1::RowsRequest& request) {
  NACRE_RETURN_IF_ERROR(
      CheckFingerprint("target_fingerprint", request.target_fingerprint()));
  NACRE_RETURN_IF_ERROR(
      CheckFingerprint("draft_fingerprint", request.draft_fingerprint()));
  const std::array<uint32_t, 3> keys = {
      request.num_layers(), request.num_key_value_heads(), request.head_dim()};
  const auto is_zero = [](uint32_t value) { return value == 0; };
  if (request.num_features() > 0
          ? std::all_of(keys.begin(), keys.end(), is_zero)
          : std::none_of(keys.begin(), keys.end(), is_zero)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("rows of ", keys[0], " layers, ", keys[1], " heads, ",
                   keys[2], " elements a head and ", request.num_features(),
                   " features are neither keys and values nor features"));
}

}  // namespace

// One stream. The thread that sets `writing_` may write and Finish. It
// continues in WriteNext, which gives the right back when nothing is left to
// say. What returns true took it for its caller, which schedules the reader.
//
// Locked after the service.
class TensorPublisherService::Reader final
    : public grpc::ServerBidiReactor<v1::TensorRequest, v1::TensorEvent> {
 public:
  Reader(TensorPublisherService* service, std::string peer)
      : service_(service),
        peer_(std::move(peer)),
        link_(service->links_.get(), &service->link_counts_,
              [this] { service_->OnLinkChange(this); }) {}

  void Read() {
    rpc::SetParseMark(&incoming_);
    StartRead(&incoming_);
  }

  bool Push(std::shared_ptr<const Tensor> tensor, uint64_t* replaced)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    *replaced += waiting_.Push(std::move(tensor)) ? 1 : 0;
    return !std::exchange(writing_, true);
  }

  bool PushRows(std::shared_ptr<const WireTensor> tensor)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    with_rows_.insert(tensor->tag.channel);
    const size_t max_bytes = link_.max_row_bytes();
    if (max_bytes == 0) {
      rows_.push_back(std::move(tensor));
    } else {
      for (auto& run : CutRows(std::move(tensor), max_bytes)) {
        rows_.push_back(std::move(run));
      }
    }
    return !std::exchange(writing_, true);
  }

  // Rows of a channel wait until those before them were begun: a slow reader
  // takes the memory of one tensor. Then its service hears of it.
  bool HasRows(uint64_t channel) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const bool has = with_rows_.contains(channel);
    if (has) behind_.insert(channel);
    return has;
  }

  void Forget(uint64_t channel) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    waiting_.Remove(channel);
    on_link_.erase(channel);
    ForgetRows(channel);
  }

  // The link is over: of such a channel nothing that went over it is to come
  // any more. nullopt: its rows went over the stream alone.
  struct TakenBack {
    int first = 0;       // position on the link
    int num_queued = 0;  // rows that were not sent yet
  };
  absl::optional<TakenBack> TakeBackRows(uint64_t channel)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto it = on_link_.find(channel);
    if (it == on_link_.end()) return absl::nullopt;
    TakenBack taken = {it->second, 0};
    on_link_.erase(it);
    for (const auto& tensor : rows_) {
      if (tensor->tag.channel == channel) taken.num_queued += tensor->shape[0];
    }
    ForgetRows(channel);
    return taken;
  }

  // The reader has said where it is: all rows go over the stream now.
  bool LeaveLink() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    on_link_.clear();
    return !std::exchange(writing_, true);
  }

  bool Refuse(uint64_t channel, absl::StatusCode code, std::string message)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    // A reader that asks on without reading its answers gets no more of them.
    if (errors_.size() >= kMaxChannels) return false;
    v1::ChannelError& error = errors_.emplace_back();
    error.set_channel(channel);
    error.set_code(static_cast<uint32_t>(code));
    error.set_message(std::move(message));
    return !std::exchange(writing_, true);
  }

  bool WantToWrite() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return !std::exchange(writing_, true);
  }

  // Only the first call counts.
  bool RequestFinish(grpc::Status status) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (finishing_) return false;
    finishing_ = true;
    status_ = std::move(status);
    return !std::exchange(writing_, true);
  }

  // With the right to write.
  void WriteNext() ABSL_LOCKS_EXCLUDED(mu_) {
    outgoing_.Clear();
    if (!ChooseNext()) return;
    if (current_ != nullptr) FillOutgoing();
    if (outgoing_.event_case() == v1::TensorEvent::EVENT_NOT_SET) {
      Finish(status_);  // the right to write is never given back
    } else {
      StartWrite(&outgoing_);
    }
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      if (incoming_.has_link()) link_.OnMessage(incoming_.link(), peer_);
      service_->OnRequest(this, incoming_);
      Read();
    } else if (rpc::HasParseMark(incoming_)) {
      End(grpc::Status::OK);
    } else {
      End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                       "a message that cannot be parsed"));
    }
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      RequestFinish(grpc::Status::CANCELLED);
    } else if (outgoing_.has_chunk() &&
               outgoing_.chunk().link_transfer() == 0) {
      service_->sent_bytes_ += outgoing_.chunk().data().size();
      if (current_ == nullptr) ++service_->sent_;
    }
    if (StopsBeingBehind()) service_->OnRowsSent();
    WriteNext();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    link_.Close();
    service_->OnDone(this);
    delete this;
  }

  bool StopsBeingBehind() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return std::exchange(has_caught_up_, false);
  }

  void ForgetRows(uint64_t channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    behind_.erase(channel);
    if (with_rows_.erase(channel) == 0) return;
    std::erase_if(rows_, [&](const auto& tensor) {
      return tensor->tag.channel == channel;
    });
  }

  // The first rows that may go, in the order of their channel.
  bool ChooseRows() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    absl::flat_hash_set<uint64_t> waiting;
    for (auto it = rows_.begin(); it != rows_.end(); ++it) {
      const uint64_t channel = (*it)->tag.channel;
      if (waiting.contains(channel) || !BeginRows(*it)) {
        waiting.insert(channel);
        continue;
      }
      current_ = std::move(*it);
      rows_.erase(it);
      const bool has_more = std::any_of(
          rows_.begin(), rows_.end(),
          [&](const auto& tensor) { return tensor->tag.channel == channel; });
      if (!has_more) {
        with_rows_.erase(channel);
        has_caught_up_ = behind_.erase(channel) > 0 || has_caught_up_;
      }
      return true;
    }
    return false;
  }

  // Whether they go now, by the link if it has a transfer_ for them. A channel
  // that has rows on a link which is over waits for the reader's word.
  bool BeginRows(const std::shared_ptr<const WireTensor>& rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    switch (link_.RowsWay(rows->bytes.size())) {
      case LinkSender::Way::kStream:
        return !on_link_.contains(rows->tag.channel);
      case LinkSender::Way::kLink:
        transfer_ = link_.SendRows(rows);
        if (transfer_ == 0) return false;
        on_link_.try_emplace(rows->tag.channel, rows->tag.position);
        return true;
      case LinkSender::Way::kLater:
        return false;
    }
    return false;
  }

  // What is written next: outgoing_ if it is set, else current_, else the end.
  // False: nothing, and the right to write was given back.
  bool ChooseNext() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (finishing_) {
      current_.reset();
      return true;
    }
    if (current_ != nullptr) return true;
    v1::TensorLink message;
    if (!errors_.empty()) {
      *outgoing_.mutable_error() = std::move(errors_.front());
      errors_.pop_front();
      return true;
    }
    if (link_.TakeMessage(&message)) {
      *outgoing_.mutable_link() = std::move(message);
      return true;
    }
    offset_ = 0;
    if (ChooseRows()) return true;
    // Without room the newest ones wait on, until the link has some.
    std::shared_ptr<const Tensor> hidden;
    if (link_.NextWay() != LinkSender::Way::kLater) hidden = waiting_.Pop();
    writing_ = hidden != nullptr;
    if (writing_) {
      current_ = std::make_shared<WireTensor>(Encode(*hidden));
      is_new_hidden_ = !hidden->tag.is_rows;
    }
    return writing_;
  }

  // With a piece of current_, or, if its values go over the link, its header.
  void FillOutgoing() {
    TensorChunk chunk = ChunkAt(*current_, offset_);
    uint64_t transfer = std::exchange(transfer_, 0);
    if (std::exchange(is_new_hidden_, false) &&
        link_.NextWay() == LinkSender::Way::kLink) {
      transfer = link_.Send(current_);
    }
    if (transfer == 0) {
      offset_ += chunk.data.size();
    } else {
      offset_ = current_->bytes.size();
      chunk.data = {};
    }
    FillChunk(chunk, outgoing_.mutable_chunk());
    outgoing_.mutable_chunk()->set_link_transfer(transfer);
    if (offset_ == current_->bytes.size()) current_.reset();
  }

  void End(grpc::Status status) {
    if (RequestFinish(std::move(status))) WriteNext();
  }

  TensorPublisherService* const service_;
  const std::string peer_;
  LinkSender link_;
  v1::TensorRequest incoming_;
  mutable absl::Mutex mu_;
  LatestQueue waiting_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<const WireTensor>> rows_ ABSL_GUARDED_BY(mu_);
  // Channels: in rows_; of these, those that could have had more; and those of
  // which some went over the link, with the first one's position.
  absl::flat_hash_set<uint64_t> with_rows_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<uint64_t> behind_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, int> on_link_ ABSL_GUARDED_BY(mu_);
  bool has_caught_up_ ABSL_GUARDED_BY(mu_) = false;  // one of behind_
  std::deque<v1::ChannelError> errors_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_;  // set once, before finishing_

  // Of the thread that has the right to write.
  std::shared_ptr<const WireTensor> current_;
  size_t offset_ = 0;           // of current_, in bytes
  uint64_t transfer_ = 0;       // of current_ if it is rows on the link
  bool is_new_hidden_ = false;  // current_ is not begun, the link may take it
  v1::TensorEvent outgoing_;
};

TensorPublisherService::TensorPublisherService(std::unique_ptr<SideLinks> links)
    : links_(std::move(links)), thread_([this] { Run(); }) {}

TensorPublisherService::~TensorPublisherService() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

bool TensorPublisherService::HasReaders(uint64_t channel) const {
  absl::MutexLock lock(&mu_);
  return by_channel_.contains(channel);
}

void TensorPublisherService::Publish(const Tensor& tensor) {
  if (tensor.values.empty() || !HasReaders(tensor.tag.channel)) return;
  // Once for all readers, and here: later the values are gone.
  const auto shared = std::make_shared<const Tensor>(tensor.OnHost());
  absl::MutexLock lock(&mu_);
  const auto it = by_channel_.find(shared->tag.channel);
  if (it == by_channel_.end()) return;
  for (Reader* reader : it->second) {
    if (reader->Push(shared, &replaced_)) Schedule(reader);
  }
}

void TensorPublisherService::SetRowsWanted(std::function<void()> wake) {
  absl::MutexLock lock(&mu_);
  wake_ = std::move(wake);
}

void TensorPublisherService::WakeOwner() {
  if (wake_ != nullptr) wake_();
}

void TensorPublisherService::OnRowsSent() {
  absl::MutexLock lock(&mu_);
  WakeOwner();
}

absl::optional<TensorPublisher::RowsWanted> TensorPublisherService::WantedRows(
    uint64_t channel, int there) const {
  if (num_rows_channels_ == 0) return absl::nullopt;
  absl::MutexLock lock(&mu_);
  const auto it = rows_.find(channel);
  if (it == rows_.end()) return absl::nullopt;
  for (const RowsReader& each : it->second) {
    // Another one may be behind this one.
    if (each.wanted.first < std::min(each.wanted.end, there) &&
        !each.reader->HasRows(channel)) {
      return each.wanted;
    }
  }
  return absl::nullopt;
}

void TensorPublisherService::PublishRows(const Tensor& tensor) {
  // Once for all readers.
  const auto shared = std::make_shared<const WireTensor>(Encode(tensor));
  const int row_size = shared->shape[1];
  absl::MutexLock lock(&mu_);
  const auto it = rows_.find(shared->tag.channel);
  if (it == rows_.end()) return;
  for (RowsReader& each : it->second) {
    if (each.wanted.first != shared->tag.position ||
        each.wanted.epoch != shared->tag.epoch ||
        each.wanted.shape.row_size() != row_size) {
      continue;
    }
    each.wanted.first += shared->shape[0];
    if (each.reader->PushRows(shared)) Schedule(each.reader);
  }
}

void TensorPublisherService::RefuseRows(uint64_t channel,
                                        const RowsWanted& wanted,
                                        const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  const auto it = rows_.find(channel);
  if (it == rows_.end()) return;
  std::vector<Reader*> refused;
  for (const RowsReader& each : it->second) {
    if (each.wanted == wanted) refused.push_back(each.reader);
  }
  for (Reader* reader : refused) {
    Unsubscribe(reader, channel);
    if (reader->Refuse(channel, why.code(), std::string(why.message()))) {
      Schedule(reader);
    }
  }
}

void TensorPublisherService::SkipRows(uint64_t channel,
                                      const RowsWanted& wanted, int to) {
  absl::MutexLock lock(&mu_);
  const auto it = rows_.find(channel);
  if (it == rows_.end()) return;
  for (RowsReader& each : it->second) {
    if (each.wanted != wanted || to <= wanted.first) continue;
    each.skipped_to = to;
    each.num_skipped = to - wanted.first;
    each.wanted.end += to - wanted.first;
    each.wanted.first = to;
  }
}

grpc::ServerBidiReactor<v1::TensorRequest, v1::TensorEvent>*
TensorPublisherService::Read(grpc::CallbackServerContext* context) {
  auto* reader = new Reader(this, context->peer());
  {
    absl::MutexLock lock(&mu_);
    readers_[reader];
  }
  reader->Read();
  return reader;
}

void TensorPublisherService::OnRequest(Reader* reader,
                                       const v1::TensorRequest& request) {
  absl::MutexLock lock(&mu_);
  for (const uint64_t id : request.unsubscribe()) Unsubscribe(reader, id);
  for (const uint64_t id : request.subscribe()) Subscribe(reader, id);
  if (request.link().step() == v1::LINK_STEP_FAILED) {
    ResumeRows(reader, request);
    return;
  }
  for (const v1::RowsRequest& rows : request.rows()) {
    SubscribeRows(reader, rows);
  }
}

TensorPublisherService::RowsReader* TensorPublisherService::FindRows(
    const Reader* reader, uint64_t channel) {
  const auto it = rows_.find(channel);
  if (it == rows_.end()) return nullptr;
  for (RowsReader& each : it->second) {
    if (each.reader == reader) return &each;
  }
  return nullptr;
}

void TensorPublisherService::ResumeRows(Reader* reader,
                                        const v1::TensorRequest& request) {
  for (const v1::RowsRequest& rows : request.rows()) {
    RowsReader* const known = FindRows(reader, rows.channel());
    // Not one that it has opened anew.
    if (known == nullptr || known->wanted.epoch != rows.epoch()) continue;
    const auto taken = reader->TakeBackRows(rows.channel());
    if (!taken.has_value()) continue;
    RowsWanted& wanted = known->wanted;
    const RowsWanted there = ToWanted(rows);
    // Those before the link come over the stream, if they have not yet.
    const int first = std::max(there.first, taken->first);
    rows_sent_again_ += static_cast<uint64_t>(
        std::max(0, wanted.first - taken->num_queued - first));
    wanted.first = first;
    wanted.end = there.end;
    // It is to see that these are lost.
    if (there.first < known->skipped_to && known->skipped_to <= first) {
      wanted.end += known->num_skipped;
    }
  }
  if (reader->LeaveLink()) Schedule(reader);
  WakeOwner();
}

bool TensorPublisherService::AddChannel(Reader* reader, uint64_t channel) {
  absl::flat_hash_set<uint64_t>& channels = readers_[reader];
  if (channel == 0) {
    if (reader->Refuse(channel, absl::StatusCode::kInvalidArgument,
                       "no channel is 0")) {
      Schedule(reader);
    }
  } else if (channels.size() >= kMaxChannels) {
    if (reader->Refuse(
            channel, absl::StatusCode::kResourceExhausted,
            absl::StrCat("over ", kMaxChannels, " channels on one stream"))) {
      Schedule(reader);
    }
  } else {
    channels.insert(channel);
    return true;
  }
  return false;
}

void TensorPublisherService::Subscribe(Reader* reader, uint64_t channel) {
  if (readers_[reader].contains(channel)) return;
  if (AddChannel(reader, channel)) by_channel_[channel].push_back(reader);
}

void TensorPublisherService::SubscribeRows(Reader* reader,
                                           const v1::RowsRequest& request) {
  const RowsWanted wanted = ToWanted(request);
  const uint64_t channel = request.channel();
  if (RowsReader* const known = FindRows(reader, channel); known != nullptr) {
    known->wanted.end = std::max(known->wanted.end, wanted.end);
    WakeOwner();
    return;
  }
  if (readers_[reader].contains(channel)) return;
  if (const absl::Status status = CheckRows(request); !status.ok()) {
    if (reader->Refuse(channel, status.code(), std::string(status.message()))) {
      Schedule(reader);
    }
    return;
  }
  if (!AddChannel(reader, channel)) return;
  rows_[channel].push_back({reader, wanted});
  num_rows_channels_ = rows_.size();
  WakeOwner();
}

void TensorPublisherService::Unsubscribe(Reader* reader, uint64_t channel) {
  if (readers_[reader].erase(channel) == 0) return;
  reader->Forget(channel);
  if (const auto it = by_channel_.find(channel); it != by_channel_.end()) {
    std::erase(it->second, reader);
    if (it->second.empty()) by_channel_.erase(it);
  }
  if (const auto it = rows_.find(channel); it != rows_.end()) {
    std::erase_if(it->second, [&](const RowsReader& each) {
      return each.reader == reader;
    });
    if (it->second.empty()) rows_.erase(it);
    num_rows_channels_ = rows_.size();
  }
}

void TensorPublisherService::OnDone(Reader* reader) {
  absl::MutexLock lock(&mu_);
  while (!readers_[reader].empty()) {
    const uint64_t channel = *readers_[reader].begin();
    Unsubscribe(reader, channel);
  }
  readers_.erase(reader);
}

void TensorPublisherService::OnLinkChange(Reader* reader) {
  absl::MutexLock lock(&mu_);
  if (reader->WantToWrite()) Schedule(reader);
}

void TensorPublisherService::EndReaders(const absl::Status& reason) {
  const grpc::Status status(static_cast<grpc::StatusCode>(reason.raw_code()),
                            std::string(reason.message()));
  absl::MutexLock lock(&mu_);
  for (const auto& [reader, channels] : readers_) {
    if (reader->RequestFinish(status)) Schedule(reader);
  }
}

TensorPublisherService::Stats TensorPublisherService::stats() const {
  absl::MutexLock lock(&mu_);
  Stats stats;
  stats.readers = static_cast<int>(readers_.size());
  for (const auto& [reader, channels] : readers_) {
    stats.subscriptions += static_cast<int>(channels.size());
  }
  stats.sent = sent_ + link_counts_.sent;
  stats.sent_bytes = sent_bytes_ + link_counts_.sent_bytes;
  stats.sent_over_links = link_counts_.sent;
  stats.links = link_counts_.up;
  stats.link_failures = link_counts_.failures;
  stats.sent_bytes_over_links = link_counts_.sent_bytes;
  stats.rows_sent_again = rows_sent_again_;
  stats.replaced = replaced_;
  return stats;
}

void TensorPublisherService::Schedule(Reader* reader) {
  scheduled_.push_back(reader);
  changed_.Signal();
}

void TensorPublisherService::Run() {
  std::vector<Reader*> readers;
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      while (scheduled_.empty() && !stopping_) changed_.Wait(&mu_);
      if (scheduled_.empty()) return;
      readers.swap(scheduled_);
    }
    for (Reader* reader : readers) reader->WriteNext();
    readers.clear();
  }
}

}  // namespace nacre::worker
