// Reads tensors over gRPC: one connection and one nacre.v1.Tensors.Read stream
// to each worker that any channel is read from. A lost connection ends its
// channels; the next subscription dials anew. The values come over a link
// beside the stream where both workers have such (link_receiver.h).
//
// Thread-safe. Sinks are called on gRPC's threads, and on that of the links.

#ifndef WORKER_TENSORS_READER_CLIENT_H_
#define WORKER_TENSORS_READER_CLIENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/message_stream.h"
#include "common/rpc/security.h"
#include "proto/tensors.grpc.pb.h"
#include "worker/tensors/link_receiver.h"
#include "worker/tensors/side_link.h"
#include "worker/tensors/tensor_chunks.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::worker {

class TensorReaderClient final : public TensorReader {
 public:
  // How to dial, as with every other worker. Null `links`: all values come over
  // gRPC.
  explicit TensorReaderClient(rpc::ChannelSecurity security,
                              std::unique_ptr<SideLinks> links = nullptr);
  // Ends all connections; no sink is called any more.
  ~TensorReaderClient() override;

  void Subscribe(Subscription subscription) override ABSL_LOCKS_EXCLUDED(mu_);
  void WantRows(uint64_t channel, int end) override ABSL_LOCKS_EXCLUDED(mu_);
  void Unsubscribe(uint64_t channel) override ABSL_LOCKS_EXCLUDED(mu_);

  Stats stats() const override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Stream = rpc::ClientMessageStream<v1::TensorRequest, v1::TensorEvent>;
  // Kept alive by its stream's callbacks.
  struct Connection {
    std::string address;
    std::unique_ptr<v1::Tensors::Stub> stub;
    std::shared_ptr<Stream> stream;
    TensorAssembler assembler;           // of the stream's reactions
    std::unique_ptr<LinkReceiver> link;  // null: without links
  };
  struct Entry {
    Connection* connection = nullptr;
    Subscription subscription;
    int next = 0;  // of rows: after those that came
  };

  // Not yet started.
  std::shared_ptr<Connection> Dial(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnEvent(Connection* connection, const v1::TensorEvent& event)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnChunk(Connection* connection, const v1::TensorChunk& proto)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Its values come over the link.
  void OnHeader(Connection* connection, const TensorChunk& header,
                uint64_t transfer) ABSL_LOCKS_EXCLUDED(mu_);
  // Came over the link, for whichever channel.
  void OnLinkTensor(Connection* connection, Tensor tensor)
      ABSL_LOCKS_EXCLUDED(mu_);
  std::unique_ptr<LinkReceiver> MakeLink(Connection* connection);
  // To the publisher. Where the link has failed, with what has come of rows.
  void Tell(Connection* connection, v1::TensorLink message)
      ABSL_LOCKS_EXCLUDED(mu_);
  void NoteRows(const Connection* connection, const Tensor& rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Deliver(Connection* connection, TensorSink* sink, Tensor tensor)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Loses it for a tensor of another size than that, and says so.
  void Refuse(Connection* connection, uint64_t channel, size_t num_values)
      ABSL_LOCKS_EXCLUDED(mu_);
  // One channel is over, the connection goes on.
  void Lose(Connection* connection, uint64_t channel,
            const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone(Connection* connection, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  void CountMalformed(const Connection& connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const rpc::ChannelSecurity security_;
  const std::unique_ptr<SideLinks> links_;  // outlives the connections
  LinkReceiverCounts link_counts_;
  mutable absl::Mutex mu_;
  absl::CondVar ended_;
  int num_streams_ ABSL_GUARDED_BY(mu_) = 0;  // whose on_done is to come
  std::map<std::string, std::shared_ptr<Connection>> connections_
      ABSL_GUARDED_BY(mu_);  // by address
  absl::flat_hash_map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mu_);
  // By address, why it was lost last: a long outage is one line.
  std::map<std::string, std::string> logged_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_READER_CLIENT_H_
