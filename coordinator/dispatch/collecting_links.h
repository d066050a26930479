// Links that make messages of the calls: what those over gRPC and those of a
// simulation have in common.
//
// Not thread-safe: the dispatcher's lock is theirs.

#ifndef COORDINATOR_DISPATCH_COLLECTING_LINKS_H_
#define COORDINATOR_DISPATCH_COLLECTING_LINKS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "coordinator/dispatch/openings.h"
#include "coordinator/dispatch/worker_link.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"

namespace nacre::coordinator {

// A message to a worker, whose openings are yet to be built.
template <typename Commands, typename Opening>
struct MessageOf {
  // Builds them.
  Commands Take() && {
    for (const Opening& opening : openings) {
      commands.open.push_back(opening.Message());
    }
    return std::move(commands);
  }

  Commands commands;
  std::vector<Opening> openings;
};
using TargetMessage = MessageOf<wire::TargetCommands, TargetOpening>;
using DraftMessage = MessageOf<wire::DraftCommands, DraftOpening>;

// `Link` is TargetLink or DraftLink.
template <typename Link, typename Message>
class CollectingLink : public Link {
 public:
  void Close(uint64_t session_id) override {
    Next().commands.close.push_back(session_id);
  }
  void Keep(const std::vector<uint64_t>& session_ids) override {
    // The worker applies it first: closes that wait here are of an earlier
    // message, or they would count as lost. Openings that follow are not
    // touched.
    Cut();
    Next().commands.kept = session_ids;
  }
  void ReportKv(const wire::KvReport& report) override {
    Next().commands.kv_report = report;
  }
  void Cut() override {
    if (std::exchange(pending_, false)) Queue(std::exchange(next_, {}));
  }

 protected:
  // A message is complete.
  virtual void Queue(Message message) = 0;

  // The message since the last Cut, which gets something to say.
  Message& Next() {
    pending_ = true;
    return next_;
  }

 private:
  Message next_;
  bool pending_ = false;
};

class CollectingTargetLink : public CollectingLink<TargetLink, TargetMessage> {
 public:
  void OpenTarget(const TargetOpening& opening) override {
    Next().openings.push_back(opening);
  }
  void RelayTail(uint64_t session_id, const speculation::Tail& tail) override {
    Next().commands.tails.push_back({session_id, tail});
  }
  void UpdateTarget(uint64_t session_id,
                    const speculation::TargetPlan& plan) override {
    Next().commands.plans.push_back({session_id, plan});
  }
  void AttachDraft(uint64_t session_id, uint32_t epoch,
                   int opened_length) override {
    Next().commands.draft_attached.push_back(
        {session_id, epoch, opened_length});
  }
  void LoseDraft(uint64_t session_id) override {
    Next().commands.draft_lost.push_back(session_id);
  }
  void Acknowledge(uint64_t session_id, int committed_length) override {
    Next().commands.acknowledged.push_back({session_id, committed_length});
  }
};

class CollectingDraftLink : public CollectingLink<DraftLink, DraftMessage> {
 public:
  void OpenDraft(const DraftOpening& opening) override {
    Next().openings.push_back(opening);
  }
  void RelayCommit(uint64_t session_id,
                   const speculation::Commit& commit) override {
    Next().commands.commits.push_back({session_id, commit});
  }
  void UpdateDraft(uint64_t session_id,
                   const speculation::DraftPlan& plan) override {
    Next().commands.plans.push_back({session_id, plan});
  }
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_COLLECTING_LINKS_H_
