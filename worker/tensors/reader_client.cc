#include "worker/tensors/reader_client.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "worker/engine/clock.h"
#include "worker/tensors/chunk_convert.h"

namespace nacre::worker {
namespace {

void AddRows(uint64_t channel, const TensorReader::Rows& rows,
             v1::TensorRequest* request) {
  v1::RowsRequest* const added = request->add_rows();
  added->set_channel(channel);
  added->set_end(static_cast<uint32_t>(rows.end));
  added->set_num_layers(static_cast<uint32_t>(rows.shape.num_layers));
  added->set_num_key_value_heads(
      static_cast<uint32_t>(rows.shape.num_key_value_heads));
  added->set_head_dim(static_cast<uint32_t>(rows.shape.head_dim));
  added->set_target_fingerprint(rows.target_fingerprint);
  added->set_epoch(rows.epoch);
  added->set_num_features(static_cast<uint32_t>(rows.shape.num_features));
  added->set_draft_fingerprint(rows.draft_fingerprint);
}

// Values of such a tensor; 0: it is of another kind or shape than was asked
// for.
size_t ExpectedValues(const TensorReader::Subscription& subscription,
                      const TensorTag& tag, const std::vector<int>& shape) {
  if (tag.is_rows != subscription.rows.has_value()) return 0;
  if (!tag.is_rows) return subscription.num_values;
  if (shape.size() != 2 || shape[0] < 1 || shape[0] > TensorReader::kMaxRows ||
      static_cast<size_t>(shape[1]) != subscription.num_values) {
    return 0;
  }
  return static_cast<size_t>(shape[0]) * subscription.num_values;
}

// A peer says any position.
int Bounded(int64_t position) {
  return static_cast<int>(std::min<int64_t>(position, 1 << 30));
}

}  // namespace

TensorReaderClient::TensorReaderClient(rpc::ChannelSecurity security,
                                       std::unique_ptr<SideLinks> links)
    : security_(std::move(security)), links_(std::move(links)) {}

TensorReaderClient::~TensorReaderClient() {
  std::map<std::string, std::shared_ptr<Connection>> connections;
  {
    absl::MutexLock lock(&mu_);
    entries_.clear();
    connections.swap(connections_);
  }
  for (const auto& [address, connection] : connections) {
    connection->stream->Cancel();
  }
  absl::MutexLock lock(&mu_);
  while (num_streams_ > 0) ended_.Wait(&mu_);
}

void TensorReaderClient::Subscribe(Subscription subscription) {
  v1::TensorRequest request;
  if (subscription.rows.has_value()) {
    AddRows(subscription.channel, *subscription.rows, &request);
  } else {
    request.add_subscribe(subscription.channel);
  }
  std::shared_ptr<Connection> connection;
  bool is_new = false;
  {
    absl::MutexLock lock(&mu_);
    std::shared_ptr<Connection>& known = connections_[subscription.address];
    is_new = known == nullptr;
    if (is_new) known = Dial(subscription.address);
    connection = known;
    if (is_new && connection->link != nullptr) {
      *request.mutable_link() = connection->link->Question();
    }
    Entry& entry = entries_[subscription.channel];
    entry = {connection.get(), std::move(subscription)};
  }
  if (is_new) connection->stream->Start();
  // On a stream that has just ended: OnDone is to come and tells the sink.
  connection->stream->Send(std::move(request));
}

void TensorReaderClient::WantRows(uint64_t channel, int end) {
  v1::TensorRequest request;
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(channel);
    if (it == entries_.end() || !it->second.subscription.rows.has_value()) {
      return;
    }
    stream = it->second.connection->stream;
    int& asked = it->second.subscription.rows->end;
    asked = std::max(asked, end);
    AddRows(channel, *it->second.subscription.rows, &request);
  }
  stream->Send(std::move(request));
}

void TensorReaderClient::Unsubscribe(uint64_t channel) {
  v1::TensorRequest request;
  request.add_unsubscribe(channel);
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(channel);
    if (it == entries_.end()) return;
    stream = it->second.connection->stream;
    entries_.erase(it);
  }
  stream->Send(std::move(request));
}

TensorReader::Stats TensorReaderClient::stats() const {
  absl::MutexLock lock(&mu_);
  Stats stats = stats_;
  stats.links = link_counts_.up;
  stats.link_failures = link_counts_.failures;
  stats.received_over_links = link_counts_.received;
  stats.received_bytes_over_links = link_counts_.received_bytes;
  stats.lost_with_links = link_counts_.lost;
  return stats;
}

std::shared_ptr<TensorReaderClient::Connection> TensorReaderClient::Dial(
    const std::string& address) {
  auto connection = std::make_shared<Connection>();
  connection->address = address;
  Stream::Callbacks callbacks;
  callbacks.on_message = [this, connection](const v1::TensorEvent& event) {
    OnEvent(connection.get(), event);
  };
  callbacks.on_done = [this, connection](const absl::Status& status) {
    OnDone(connection.get(), status);
  };
  connection->stream = Stream::Create(std::move(callbacks));
  connection->stub =
      v1::Tensors::NewStub(rpc::CreateChannel(address, security_));
  connection->stub->async()->Read(connection->stream->context(),
                                  connection->stream.get());
  if (links_ != nullptr) connection->link = MakeLink(connection.get());
  ++num_streams_;
  return connection;
}

std::unique_ptr<LinkReceiver> TensorReaderClient::MakeLink(
    Connection* connection) {
  LinkReceiver::Parts parts;
  parts.links = links_.get();
  parts.counts = &link_counts_;
  parts.publisher = connection->address;
  parts.tell = [this, connection](v1::TensorLink message) {
    Tell(connection, std::move(message));
  };
  parts.deliver = [this, connection](Tensor tensor) {
    OnLinkTensor(connection, std::move(tensor));
  };
  return std::make_unique<LinkReceiver>(std::move(parts));
}

void TensorReaderClient::Tell(Connection* connection, v1::TensorLink message) {
  const bool has_failed = message.step() == v1::LINK_STEP_FAILED;
  v1::TensorRequest request;
  *request.mutable_link() = std::move(message);
  absl::MutexLock lock(&mu_);
  for (const auto& [channel, entry] : entries_) {
    const auto& rows = entry.subscription.rows;
    if (!has_failed || entry.connection != connection || !rows.has_value()) {
      continue;
    }
    AddRows(channel, *rows, &request);
    request.mutable_rows()->rbegin()->set_first(
        static_cast<uint32_t>(entry.next));
  }
  // Before what is asked for later.
  connection->stream->Send(std::move(request));
}

void TensorReaderClient::NoteRows(const Connection* connection,
                                  const Tensor& rows) {
  const auto it = entries_.find(rows.tag.channel);
  if (it == entries_.end() || it->second.connection != connection) return;
  auto& asked = it->second.subscription.rows;
  // Of a subscription before this one.
  if (!asked.has_value() || asked->epoch != rows.tag.epoch) return;
  int& next = it->second.next;
  const int64_t first = rows.tag.position;
  // As the publisher, for those that are lost.
  asked->end = Bounded(asked->end + std::max<int64_t>(0, first - next));
  next = std::max(next, Bounded(first + rows.shape[0]));
}

void TensorReaderClient::OnEvent(Connection* connection,
                                 const v1::TensorEvent& event) {
  if (event.has_chunk()) {
    OnChunk(connection, event.chunk());
  } else if (event.has_link()) {
    if (connection->link != nullptr) connection->link->OnMessage(event.link());
  } else if (event.has_error()) {
    const absl::Status status(
        static_cast<absl::StatusCode>(static_cast<int>(event.error().code())),
        event.error().message());
    Lose(connection, event.error().channel(),
         status.ok() ? absl::UnknownError("refused") : status);
  }
}

void TensorReaderClient::OnChunk(Connection* connection,
                                 const v1::TensorChunk& proto) {
  TensorChunk chunk;
  const bool fits = ToChunk(proto, &chunk);
  if (fits && proto.link_transfer() != 0) {
    OnHeader(connection, chunk, proto.link_transfer());
    return;
  }
  Subscription subscription;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(proto.channel());
    // Of a channel that was just given up.
    if (it == entries_.end() || it->second.connection != connection) return;
    if (!fits) {
      CountMalformed(*connection);
      return;
    }
    subscription = it->second.subscription;
  }
  const size_t num_values =
      ExpectedValues(subscription, chunk.tag, chunk.shape);
  if (num_values == 0) {
    Refuse(connection, proto.channel(), subscription.num_values);
    return;
  }
  switch (connection->assembler.Add(chunk, num_values)) {
    case TensorAssembler::Outcome::kPart:
      return;
    case TensorAssembler::Outcome::kWhole:
      if (connection->link != nullptr && !chunk.tag.is_rows) {
        connection->link->OnStreamTensor();
      }
      Deliver(connection, subscription.sink.get(),
              connection->assembler.TakeTensor());
      return;
    case TensorAssembler::Outcome::kMalformed: {
      // Of rows none may be missing.
      if (chunk.tag.is_rows) {
        Refuse(connection, proto.channel(), subscription.num_values);
      }
      absl::MutexLock lock(&mu_);
      CountMalformed(*connection);
      return;
    }
    case TensorAssembler::Outcome::kWrongSize:
      Refuse(connection, proto.channel(), subscription.num_values);
      return;
  }
}

void TensorReaderClient::OnHeader(Connection* connection,
                                  const TensorChunk& header,
                                  uint64_t transfer) {
  // Also of a channel that was just given up: its values come all the same.
  if (connection->link != nullptr &&
      connection->link->OnHeader(header, transfer)) {
    return;
  }
  absl::MutexLock lock(&mu_);
  CountMalformed(*connection);
}

void TensorReaderClient::OnLinkTensor(Connection* connection, Tensor tensor) {
  const uint64_t channel = tensor.tag.channel;
  Subscription subscription;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(channel);
    if (it == entries_.end() || it->second.connection != connection) return;
    subscription = it->second.subscription;
  }
  if (!tensor.values.empty() &&
      ExpectedValues(subscription, tensor.tag, tensor.shape) ==
          tensor.values.size()) {
    Deliver(connection, subscription.sink.get(), std::move(tensor));
  } else {
    Refuse(connection, channel, subscription.num_values);
  }
}

void TensorReaderClient::Deliver(Connection* connection, TensorSink* sink,
                                 Tensor tensor) {
  {
    absl::MutexLock lock(&mu_);
    logged_.erase(connection->address);
    ++stats_.received;
    stats_.received_bytes += tensor.wire_bytes();
    if (tensor.tag.is_rows) NoteRows(connection, tensor);
  }
  sink->OnTensor({std::move(tensor), MonotonicNowNs()});
}

void TensorReaderClient::Refuse(Connection* connection, uint64_t channel,
                                size_t num_values) {
  Lose(connection, channel,
       absl::InvalidArgumentError(absl::StrCat(
           "a tensor that has not the ", num_values, " values expected")));
  v1::TensorRequest request;
  request.add_unsubscribe(channel);
  connection->stream->Send(std::move(request));
}

void TensorReaderClient::Lose(Connection* connection, uint64_t channel,
                              const absl::Status& status) {
  std::shared_ptr<TensorSink> sink;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(channel);
    if (it == entries_.end() || it->second.connection != connection) return;
    sink = std::move(it->second.subscription.sink);
    entries_.erase(it);
    ++stats_.lost_channels;
  }
  spdlog::warn("a channel for tensors of {} is refused: {}",
               connection->address, status.ToString());
  sink->OnLost(channel, status);
}

void TensorReaderClient::OnDone(Connection* connection,
                                const absl::Status& status) {
  if (connection->link != nullptr) connection->link->Close();
  std::vector<Subscription> lost;
  {
    absl::MutexLock lock(&mu_);
    const auto it = connections_.find(connection->address);
    if (it != connections_.end() && it->second.get() == connection) {
      connections_.erase(it);
    }
    for (auto& [channel, entry] : entries_) {
      if (entry.connection == connection) {
        lost.push_back(std::move(entry.subscription));
      }
    }
    for (const Subscription& subscription : lost) {
      entries_.erase(subscription.channel);
    }
    stats_.lost_channels += lost.size();
    const std::string text = status.ToString();
    if (!lost.empty() &&
        std::exchange(logged_[connection->address], text) != text) {
      spdlog::warn("no tensors from {}: {}; going on without",
                   connection->address, text);
    }
  }
  const absl::Status reason =
      status.ok() ? absl::UnavailableError("the stream has ended") : status;
  for (const Subscription& subscription : lost) {
    subscription.sink->OnLost(subscription.channel, reason);
  }
  absl::MutexLock lock(&mu_);
  --num_streams_;
  ended_.Signal();
}

void TensorReaderClient::CountMalformed(const Connection& connection) {
  if (++stats_.malformed == 1) {
    spdlog::warn("{} sends chunks of tensors that make no sense",
                 connection.address);
  }
}

}  // namespace nacre::worker
