// Any bytes as what reaches a coordinator: requests of clients, registrations
// and session streams of workers, in any order. The real dispatcher must
// survive, end each request at most once and forget all of them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/check.h"
#include "coordinator/api/request_convert.h"
#include "coordinator/dispatch/dispatcher.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/recording_client.h"
#include "tests/coordinator/recording_sink.h"
#include "tests/fuzz/chunks.h"
#include "wire/hello_codec.h"
#include "wire/session_codec.h"

namespace {

using namespace nacre;               // NOLINT: a program of its own
using namespace nacre::coordinator;  // NOLINT

constexpr size_t kMaxWorkers = 6;

class World {
 public:
  World() {
    v1::Hello hello;
    hello.set_protocol_version(wire::kProtocolVersion);
    hello.set_role(v1::WORKER_ROLE_TARGET);
    hello.set_address("target");
    hello.set_incarnation("1");
    hello.set_fingerprint("big");
    hello.set_numerics_id("n");
    hello.set_model_vocab_size(ByteTokenizer::kVocabSize);
    hello.set_tokenizer_vocab_size(ByteTokenizer::kVocabSize);
    hello.set_context_length(256);
    hello.set_kv_capacity_tokens(1024);
    hello.add_eos_token_ids(ByteTokenizer::kEos);
    Attach(hello);
    hello.set_role(v1::WORKER_ROLE_DRAFT);
    hello.set_address("draft");
    Attach(hello);
  }

  // op: bits 0-2 what, bits 3-7 whom.
  void Do(const fuzz::Chunk& chunk) {
    const int whom = chunk.op >> 3;
    switch (chunk.op % 8) {
      case 0: {
        v1::GenerateRequest request;
        if (fuzz::ChunkReader::Parse(chunk, &request)) Generate(request);
        return;
      }
      case 1: {
        v1::TargetEvent event;
        if (fuzz::ChunkReader::Parse(chunk, &event)) {
          Hear(whom, WorkerRole::kTarget, event);
        }
        return;
      }
      case 2: {
        v1::DraftEvent event;
        if (fuzz::ChunkReader::Parse(chunk, &event)) {
          Hear(whom, WorkerRole::kDraft, event);
        }
        return;
      }
      case 3: {
        v1::WorkerEvent event;
        if (fuzz::ChunkReader::Parse(chunk, &event)) Attach(event.hello());
        return;
      }
      case 4:
        if (workers_.size() > 2 || chunk.size > 0) Remove(whom);
        return;
      case 5:
        if (!sessions_.empty()) {
          dispatcher_.Cancel(sessions_[whom % sessions_.size()]);
        }
        return;
      case 6:
        if (!sinks_.empty()) {
          const size_t i = whom % sinks_.size();
          sinks_[i]->set_pending_chunks(chunk.size % 40);
          dispatcher_.OnSinkDrained(sessions_[i]);
        }
        return;
      default:
        now_ns_ += int64_t{chunk.size} << whom;
        dispatcher_.Tick();
    }
  }

  void End() {
    while (!workers_.empty()) Remove(0);
    for (const uint64_t id : sessions_) dispatcher_.Cancel(id);
    NACRE_CHECK(dispatcher_.sessions().empty(), "a session is left");
    NACRE_CHECK(dispatcher_.workers().empty(), "a worker is left");
    for (const auto& sink : sinks_) {
      NACRE_CHECK(sink->num_ends() <= 1, "a request has ended twice");
    }
  }

 private:
  void Generate(const v1::GenerateRequest& request) {
    const absl::optional<WorkerInfo> model = dispatcher_.model();
    if (!model.has_value()) return;
    absl::StatusOr<RequestSpec> spec =
        ParseRequest(FieldsOf(request), tokenizer_, *model);
    if (!spec.ok()) {
      NACRE_CHECK(!spec.status().message().empty(), "an error without words");
      return;
    }
    for (int choice = 0; choice < spec->num_choices; ++choice) {
      auto sink = std::make_shared<RecordingSink>();
      const auto id = dispatcher_.Start(ChoiceOf(*spec, choice), sink);
      if (!id.ok()) return;
      sinks_.push_back(std::move(sink));
      sessions_.push_back(*id);
    }
  }

  void Attach(const v1::Hello& hello) {
    if (workers_.size() == kMaxWorkers) return;
    const absl::StatusOr<WorkerInfo> info = wire::Decode(hello);
    if (!info.ok()) return;
    const auto id =
        AddWorker(&dispatcher_, *info, std::make_shared<RecordingClient>());
    if (id.ok()) workers_.push_back({*id, info->role});
  }

  void Remove(int whom) {
    if (workers_.empty()) return;
    const auto worker = workers_.begin() + whom % workers_.size();
    dispatcher_.RemoveWorker(worker->id);
    workers_.erase(worker);
  }

  // The worker's stream carries only what its kind says.
  void Hear(int whom, WorkerRole role, const auto& event) {
    if (workers_.empty()) return;
    const Worker& worker = workers_[whom % workers_.size()];
    if (worker.role == role) {
      dispatcher_.OnEvents(worker.id, wire::Decode(event));
    }
  }

  const ByteTokenizer tokenizer_;
  int64_t now_ns_ = 1000;
  Dispatcher dispatcher_{
      {.tokenizer = &tokenizer_, .now_ns = [this] { return now_ns_ += 10; }}};
  struct Worker {
    uint64_t id = 0;
    WorkerRole role = WorkerRole::kTarget;
  };
  std::vector<Worker> workers_;
  std::vector<uint64_t> sessions_;
  std::vector<std::shared_ptr<RecordingSink>> sinks_;  // of sessions_
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World world;
  fuzz::ChunkReader reader(data, size);
  fuzz::Chunk chunk;
  while (reader.Next(&chunk)) world.Do(chunk);
  world.End();
  return 0;
}
