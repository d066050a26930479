// The bundled target and the drafts that read its rows, a GliDe and an EAGLE
// draft, with the rows by a NCCL of the tests: as many tokens are accepted as
// with gRPC, and no token depends on what becomes of the link.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/eagle_projection.h"
#include "model/load_model.h"
#include "model/remote_eagle.h"
#include "tests/testing/in_process_pair.h"
#include "tests/worker/tensors/nccl_pair.h"

namespace nacre::worker {
namespace {

using nacre::testing::GenerateAlone;
using nacre::testing::InProcessPair;
using nacre::testing::PairExtras;
using nacre::testing::PairRequest;
using speculation::Method;

// How far rows have got, by channel. The way between is another thread's.
class Progress {
 public:
  void OnSubscribed(uint64_t channel) {
    absl::MutexLock lock(&mu_);
    published_.erase(channel);
    delivered_.erase(channel);
  }
  void OnPublished(uint64_t channel, int end) {
    absl::MutexLock lock(&mu_);
    published_[channel] = end;
  }
  void OnDelivered(uint64_t channel, int end) {
    absl::MutexLock lock(&mu_);
    delivered_[channel] = std::max(delivered_[channel], end);
  }
  // All that was published has come.
  bool is_settled() const {
    absl::MutexLock lock(&mu_);
    for (const auto& [channel, end] : published_) {
      const auto it = delivered_.find(channel);
      if (it == delivered_.end() || it->second < end) return false;
    }
    return true;
  }
  // What was under way is not to come: the target is to send it again.
  void Resume() {
    absl::MutexLock lock(&mu_);
    published_ = delivered_;
  }

 private:
  mutable absl::Mutex mu_;
  std::map<uint64_t, int> published_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, int> delivered_ ABSL_GUARDED_BY(mu_);
};

class WatchedPublisher final : public TensorPublisher {
 public:
  WatchedPublisher(TensorPublisherService* service, Progress* progress)
      : service_(service), progress_(progress) {}
  bool HasReaders(uint64_t channel) const override {
    return service_->HasReaders(channel);
  }
  void Publish(const Tensor& tensor) override { service_->Publish(tensor); }
  void SetRowsWanted(std::function<void()> wake) override {
    service_->SetRowsWanted(std::move(wake));
  }
  absl::optional<RowsWanted> WantedRows(uint64_t channel,
                                        int there) const override {
    return service_->WantedRows(channel, there);
  }
  void PublishRows(const Tensor& rows) override {
    progress_->OnPublished(rows.tag.channel, rows.tag.position + rows.shape[0]);
    service_->PublishRows(rows);
  }
  void RefuseRows(uint64_t, const RowsWanted&,
                  const absl::Status& why) override {
    ADD_FAILURE() << why;
  }
  void SkipRows(uint64_t channel, const RowsWanted& wanted, int to) override {
    service_->SkipRows(channel, wanted, to);
  }

 private:
  TensorPublisherService* const service_;
  Progress* const progress_;
};

class WatchedReader final : public TensorReader {
 public:
  WatchedReader(TensorReader* reader, const TensorPublisherService* service,
                Progress* progress)
      : reader_(reader), service_(service), progress_(progress) {}

  // The target has heard of it when this returns.
  void Subscribe(Subscription subscription) override {
    progress_->OnSubscribed(subscription.channel);
    subscription.sink =
        std::make_shared<Sink>(std::move(subscription.sink), progress_);
    const int before = service_->stats().subscriptions;
    reader_->Subscribe(std::move(subscription));
    EXPECT_TRUE(
        Eventually([&] { return service_->stats().subscriptions > before; }));
  }
  void WantRows(uint64_t channel, int end) override {
    reader_->WantRows(channel, end);
  }
  void Unsubscribe(uint64_t channel) override {
    const int before = service_->stats().subscriptions;
    reader_->Unsubscribe(channel);
    EXPECT_TRUE(
        Eventually([&] { return service_->stats().subscriptions < before; }));
    progress_->OnSubscribed(channel);
  }

 private:
  class Sink final : public TensorSink {
   public:
    Sink(std::shared_ptr<TensorSink> sink, Progress* progress)
        : sink_(std::move(sink)), progress_(progress) {}
    void OnTensor(ReceivedTensor received) override {
      const TensorTag tag = received.tensor.tag;
      const int count = received.tensor.shape[0];
      sink_->OnTensor(std::move(received));
      progress_->OnDelivered(tag.channel, tag.position + count);
    }
    void OnLost(uint64_t channel, const absl::Status& status) override {
      ADD_FAILURE() << "a channel is lost: " << status;
      sink_->OnLost(channel, status);
    }

   private:
    const std::shared_ptr<TensorSink> sink_;
    Progress* const progress_;
  };

  TensorReader* const reader_;
  const TensorPublisherService* const service_;
  Progress* const progress_;
};

class NcclDrafts : public NcclPair,
                   public ::testing::WithParamInterface<const char*> {
 protected:
  NcclDrafts() {
    const bool is_eagle = std::string(GetParam()) == "eagle";
    const std::string folder = std::string(NACRE_MODELS) + "/";
    kernels::BackendOptions options;
    options.kind = "cpu";
    for (auto& backend : backends_) backend = *kernels::CreateBackend(options);
    target_ = *model::LoadModel(folder + "target", backends_[0].get(),
                                {.kv_cache_bytes = 4 << 20});
    const model::ModelOptions draft = {.kv_cache_bytes = 4 << 20};
    if (is_eagle) {
      projection_ =
          *model::EagleProjection::Load(folder + "eagle", target_.get());
      draft_ = *model::RemoteEagle::Load(folder + "eagle", folder + "target",
                                         backends_[1].get(), draft);
    } else {
      draft_ = *model::LoadModel(folder + "glide", backends_[1].get(), draft);
    }
  }

  // Answers of all methods, with whatever has become of the link meanwhile.
  // How many drafted tokens were accepted.
  std::vector<int64_t> Generate(TensorReader* reader) {
    Progress progress;
    WatchedPublisher published(publisher_.get(), &progress);
    WatchedReader read(reader, publisher_.get(), &progress);
    PairExtras extras;
    extras.published = &published;
    extras.read = &read;
    extras.address = server_->address();
    extras.feature_source = projection_.get();
    extras.settle = [&] {
      EXPECT_TRUE(Eventually([&] {
        if (progress.is_settled()) return true;
        const uint64_t resumed = publisher_->stats().rows_sent_again;
        if (resumed == resumed_) return false;
        resumed_ = resumed;
        progress.Resume();
        return true;
      }));
    };
    std::vector<int64_t> accepted;
    InProcessPair pair(target_.get(), draft_.get(), /*seed=*/5, extras);
    for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
      PairRequest request;
      request.prompt = {1, 330, 45, 2011, 99, 641, 12};
      request.max_tokens = 50;
      request.method = method;
      EXPECT_EQ(pair.Generate(request), GenerateAlone(*target_, request));
      accepted.push_back(pair.stats().accepted);
      EXPECT_GT(accepted.back(), 0);
    }
    return accepted;
  }

  std::unique_ptr<kernels::Backend> backends_[2];
  std::unique_ptr<model::LanguageModel> target_;
  std::unique_ptr<model::EagleProjection> projection_;
  std::unique_ptr<model::LanguageModel> draft_;
  uint64_t resumed_ = 0;
};

TEST_P(NcclDrafts, AcceptWhatTheyAcceptWithGrpc) {
  Start();
  TensorReaderClient by_grpc({});
  const std::vector<int64_t> expected = Generate(&by_grpc);
  const auto hidden = Subscribe(*reader_, 1000, 10);
  AwaitUp();
  EXPECT_EQ(Generate(reader_.get()), expected);
  const TensorReader::Stats stats = reader_->stats();
  EXPECT_GT(stats.received_over_links, 0u);
  EXPECT_EQ(stats.received_over_links, stats.received);
  EXPECT_EQ(stats.received_bytes, by_grpc.stats().received_bytes);
  EXPECT_EQ(publisher_->stats().rows_sent_again, 0u);
}

TEST_P(NcclDrafts, SayWhatArSaysWhereverTheLinkIsLost) {
  for (int index = 1; index < 60; index += 13) {
    nccl_.LoseTransfer(nccl_.num_transfers() + index);
    Start({kNever, absl::Milliseconds(100)});
    resumed_ = 0;
    const auto hidden = Subscribe(*reader_, 1000, 10);
    AwaitUp();
    Generate(reader_.get());
    EXPECT_EQ(reader_->stats().link_failures, 1u);
    EXPECT_GT(publisher_->stats().rows_sent_again, 0u);
    EXPECT_EQ(reader_->stats().lost_channels, 0u);
    Stop();
  }
}

INSTANTIATE_TEST_SUITE_P(Drafts, NcclDrafts,
                         ::testing::Values("glide", "eagle"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace nacre::worker
