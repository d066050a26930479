// Links between pairs of workers over which tensors go from GPU to GPU. One
// thread drives them all: it joins, posts, looks for transfers that are
// through, and gives up those that have failed or take too long. Senders and
// receivers only leave their tensors here, so that no engine ever waits for a
// peer. To take memory of a GPU, and to abort, may wait for all that it does,
// another link's transfer included: each link has a thread of its own for that.
//
// Thread-safe. Listeners are called on the links' thread.

#ifndef WORKER_TENSORS_NCCL_LINK_H_
#define WORKER_TENSORS_NCCL_LINK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/nccl_api.h"
#include "worker/tensors/nccl_lanes.h"
#include "worker/tensors/nccl_transfers.h"
#include "worker/tensors/side_link.h"
#include "worker/tensors/tensor_chunks.h"

namespace nacre::worker {

class NcclLinks;

class NcclLink final : public SideLink {
 public:
  bool HasRoom() const override ABSL_LOCKS_EXCLUDED(mu_);
  bool Send(std::shared_ptr<const WireTensor> tensor) override
      ABSL_LOCKS_EXCLUDED(mu_);
  bool Expect(size_t num_bytes) override ABSL_LOCKS_EXCLUDED(mu_);
  void Close() override ABSL_LOCKS_EXCLUDED(mu_, calls_mu_);

 private:
  friend class NcclLinks;
  static constexpr size_t kMostExpected = 64;

  struct Waiting {
    uint64_t number = 0;
    size_t num_bytes = 0;
    std::shared_ptr<const WireTensor> tensor;  // of a sender
  };

  NcclLink(NcclLinks* links, LinkEnd end, LinkListener* listener)
      : links_(links), end_(end), listener_(listener) {}

  bool Add(size_t num_bytes, std::shared_ptr<const WireTensor> tensor,
           size_t limit) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether it is over.
  bool TakeNext(Waiting* next) ABSL_LOCKS_EXCLUDED(mu_);
  void Report(const NcclTransfers::Done& done)
      ABSL_LOCKS_EXCLUDED(mu_, calls_mu_);
  void Fail(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_, calls_mu_);
  bool is_over() const ABSL_LOCKS_EXCLUDED(mu_);

  NcclLinks* const links_;
  const LinkEnd end_;
  absl::Mutex calls_mu_;  // held while the listener is called; before mu_
  LinkListener* listener_ ABSL_GUARDED_BY(calls_mu_);  // null: closed
  mutable absl::Mutex mu_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  size_t outstanding_ ABSL_GUARDED_BY(mu_) = 0;  // waiting or under way
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
};

class NcclLinks final : public SideLinks {
 public:
  struct Options {
    absl::Duration setup_timeout = absl::Seconds(30);  // until a link is up
    absl::Duration transfer_timeout = absl::Seconds(2);
  };

  NcclLinks(std::unique_ptr<kernels::NcclApi> api, const Options& options);
  // After all links are closed or have failed.
  ~NcclLinks() override;

  const char* kind() const override { return "NCCL"; }
  size_t max_bytes() const override { return NcclTransfers::kMaxBytes; }
  std::string version() const override { return api_->version(); }
  std::shared_ptr<SideLink> Open(LinkEnd end, std::string id,
                                 LinkListener* listener) override
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class NcclLink;
  struct Driven;  // of the thread

  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  void Run();
  // One round over all of them; what is over goes to `ending`. Whether
  // something is under way.
  bool DriveAll(const absl::Status& bound, NcclLanes* lanes,
                std::vector<std::unique_ptr<Driven>>* links,
                std::vector<std::unique_ptr<Driven>>* ending)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Aborts it, by its helper.
  void BeginEnd(Driven* driven) ABSL_LOCKS_EXCLUDED(mu_);
  // New links, after a wait for something to do; false: the end.
  bool AwaitWork(bool is_busy, std::vector<std::unique_ptr<Driven>>* driven)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Drive(Driven* driven, NcclLanes* lanes);
  // On its helper thread, one after the other.
  void Help(Driven* driven, std::function<void()> work)
      ABSL_LOCKS_EXCLUDED(mu_);
  void BeginLane(Driven* driven, NcclLanes* lanes) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Begin(Driven* driven);
  absl::Status CheckTime(const Driven& driven) const;

  const std::unique_ptr<kernels::NcclApi> api_;
  const Options options_;
  absl::Mutex mu_;
  absl::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool has_work_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<Driven>> new_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_NCCL_LINK_H_
