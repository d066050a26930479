// nacre.v1.Tensors: publishes tensors over one gRPC stream a reader, served on
// the worker's port beside its own service.
//
// Back-pressure is gRPC's: a stream has one chunk under way, and what is
// published meanwhile waits in the reader's LatestQueue. A tensor that was
// begun is sent to its end. Readers that ask get the values over a link beside
// it, if the publisher has those (link_sender.h). Rows that were under way when
// a link failed are wanted again: nothing of them is kept here.
//
// Thread-safe. Owns one thread, which begins the writes: a write takes tens of
// microseconds, and the publisher is an engine.

#ifndef WORKER_TENSORS_PUBLISHER_SERVICE_H_
#define WORKER_TENSORS_PUBLISHER_SERVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "proto/tensors.grpc.pb.h"
#include "worker/tensors/link_sender.h"
#include "worker/tensors/side_link.h"
#include "worker/tensors/tensor_publisher.h"

namespace nacre::worker {

class TensorPublisherService final : public v1::Tensors::CallbackService,
                                     public TensorPublisher {
 public:
  static constexpr size_t kMaxChannels = 4096;  // of one reader
  // Of the target that a reader was made for, or of its draft: SHA-256, hex.
  static constexpr size_t kMaxFingerprint = 64;

  // Null: all values go over gRPC.
  explicit TensorPublisherService(std::unique_ptr<SideLinks> links = nullptr);
  // After the server has ended its calls.
  ~TensorPublisherService() override;

  bool HasReaders(uint64_t channel) const override ABSL_LOCKS_EXCLUDED(mu_);
  void Publish(const Tensor& tensor) override ABSL_LOCKS_EXCLUDED(mu_);
  void SetRowsWanted(std::function<void()> wake) override
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::optional<RowsWanted> WantedRows(uint64_t channel,
                                        int there) const override
      ABSL_LOCKS_EXCLUDED(mu_);
  void PublishRows(const Tensor& tensor) override ABSL_LOCKS_EXCLUDED(mu_);
  void RefuseRows(uint64_t channel, const RowsWanted& wanted,
                  const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mu_);
  void SkipRows(uint64_t channel, const RowsWanted& wanted, int to) override
      ABSL_LOCKS_EXCLUDED(mu_);
  // Call it before the server shuts down.
  void EndReaders(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mu_);

  grpc::ServerBidiReactor<v1::TensorRequest, v1::TensorEvent>* Read(
      grpc::CallbackServerContext* context) override;

  Stats stats() const override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Reader;
  // Of rows, with what it wants.
  struct RowsReader {
    Reader* reader = nullptr;
    RowsWanted wanted;
    // The last that were lost: those before `skipped_to`.
    int skipped_to = 0;
    int num_skipped = 0;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void OnRequest(Reader* reader, const v1::TensorRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the reader may have another one, which it then has; else it learns
  // why not.
  bool AddChannel(Reader* reader, uint64_t channel)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Subscribe(Reader* reader, uint64_t channel)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SubscribeRows(Reader* reader, const v1::RowsRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The reader's link is over, and it says where it is.
  void ResumeRows(Reader* reader, const v1::TensorRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: it has none of that channel's.
  RowsReader* FindRows(const Reader* reader, uint64_t channel)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unsubscribe(Reader* reader, uint64_t channel)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnDone(Reader* reader) ABSL_LOCKS_EXCLUDED(mu_);
  // A reader wants rows, or can take some again.
  void WakeOwner() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnRowsSent() ABSL_LOCKS_EXCLUDED(mu_);
  // Its link has something to say, or room.
  void OnLinkChange(Reader* reader) ABSL_LOCKS_EXCLUDED(mu_);
  // Lets the thread begin to write to it.
  void Schedule(Reader* reader) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<SideLinks> links_;  // outlives the readers
  LinkSenderCounts link_counts_;
  mutable absl::Mutex mu_;
  absl::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // With their channels. They delete themselves when their calls end.
  absl::flat_hash_map<Reader*, absl::flat_hash_set<uint64_t>> readers_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::vector<Reader*>> by_channel_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::vector<RowsReader>> rows_
      ABSL_GUARDED_BY(mu_);
  // The size of rows_. The engine asks for it between all steps without the
  // lock, since most services have no reader of rows.
  std::atomic<size_t> num_rows_channels_{0};
  std::function<void()> wake_ ABSL_GUARDED_BY(mu_);
  std::vector<Reader*> scheduled_ ABSL_GUARDED_BY(mu_);
  uint64_t replaced_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t rows_sent_again_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<uint64_t> sent_{0};  // by the thread that writes
  std::atomic<uint64_t> sent_bytes_{0};
  std::thread thread_;
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_PUBLISHER_SERVICE_H_
