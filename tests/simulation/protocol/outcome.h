// What came of one schedule. Plain values.

#ifndef TESTS_SIMULATION_PROTOCOL_OUTCOME_H_
#define TESTS_SIMULATION_PROTOCOL_OUTCOME_H_

#include <cstdint>
#include <string>
#include <vector>

namespace nacre::protocol {

// What happened in a schedule, so that a test sees what its schedules exercise.
struct Counts {
  int64_t events = 0;
  int64_t steps = 0;         // of targets
  int64_t drafted = 0;       // tokens
  int64_t nodes = 0;         // that were made up beside drafted tokens
  int64_t ranks = 0;         // that drafts told
  int64_t placed_nodes = 0;  // what targets made of what drafts sent, where
  int64_t late_nodes = 0;    // they live on
  int64_t stale_nodes = 0;
  int64_t right_in_time = 0;  // right_nodes.h
  int64_t right_late = 0;
  int64_t right_lost = 0;
  int64_t tree_nodes = 0;      // of trees that drafts grew
  int64_t draft_branches = 0;  // that drafts fed in slots
  int64_t kept_slots = 0;      // of these, that became positions
  int64_t verified = 0;
  int64_t accepted = 0;
  int64_t stale = 0;  // messages that requests which completed were told of
  int64_t completed = 0;
  int64_t cancelled = 0;
  int64_t unavailable = 0;
  int64_t exhausted = 0;
  int64_t deadline_exceeded = 0;
  int64_t other_errors = 0;
  int64_t reattached = 0;  // drafts opened for a session that had one
  int64_t rejected = 0;    // messages, by engines
  int64_t injected = 0;
  int64_t faults = 0;
  int64_t cached = 0;            // prompt tokens
  int64_t policy_stops = 0;      // marks of length policies
  int64_t ended_trees = 0;       // of these, at the depth of a tree
  int64_t other_trees = 0;       // nodes of trees of sd and pearl
  int64_t unservable = 0;        // policies whose file no draft had
  int64_t hidden = 0;            // states of targets that reached drafts
  int64_t target_rows = 0;       // that drafts saw in their steps
  int64_t features = 0;          // of these
  int64_t skipped_features = 0;  // steps of drafts that miss the first of them
  int64_t behind_features = 0;   // tokens that drafts fed beyond them
  int64_t by_ratio = 0;          // requests that completed under the ratio test
  int64_t holds = 0;  // last rows that waited for the draft's next token
  int64_t untimed_holds = 0;  // likewise, where only that token ends the wait
  int64_t branch_rows = 0;    // of trees, beside the paths in place
  int64_t branch_walks = 0;   // steps that committed such rows
  int64_t suffix_rows = 0;    // that targets proposed to themselves
  int64_t suffix_walks = 0;   // steps that committed such rows
  int64_t remembered = 0;     // of these rows, from other requests' answers
  // Rows of targets' own beside their paths, where slots are fewer than nodes.
  int64_t few_slot_rows = 0;
  int64_t few_slot_walks = 0;  // steps that committed such rows
  int64_t head_steps = 0;      // with rows that only a target's heads said
  int64_t head_walks = 0;      // of these, those that committed rows
  int64_t drafter_looks =
      0;  // that drafts of targets' own were asked after texts
  int64_t drafter_texts = 0;  // rows of texts that they were fed before
  int64_t drafter_parts = 0;  // of these calls, as large as one may be
  int64_t drafter_gaps = 0;   // texts that they saw no beginning of
  int64_t drafter_forgets_unpaid =
      0;  // what they knew, as it could not be paid for
  int64_t drafter_forgets_full = 0;  // ... as they had no room
  int64_t drafter_full_texts = 0;    // calls without room, of texts
  int64_t drafter_full_roots = 0;    // ... of trees
  int64_t drafter_refusals = 0;      // sessions that they had no room for
  int64_t drafter_failures = 0;      // calls that failed otherwise
  int64_t feature_steps = 0;  // with rows that only a draft over features said
  int64_t feature_walks = 0;  // of these, those that committed rows
  int64_t kv_steps = 0;       // likewise, over keys and values
  int64_t kv_walks = 0;
  int64_t exchanged_walks =
      0;  // of both, of requests that have had several drafts
  int64_t failed_over_walks = 0;  // ... several targets
  int64_t beheaded_walks = 0;     // ... of a draft that saw no beginning
  int64_t unasked_steps =
      0;  // steps without rows or a look, where looks take time
  int64_t timed_head_looks = 0;  // rows of heads, where looks take time
  int64_t silenced = 0;  // workers that were out of service for their silence
  int64_t returned = 0;  // openings of sessions that their stream had before
  // Verdicts of such a session's earlier opening, and failures.
  int64_t late = 0;
  int64_t limited = 0;    // schedules with a limit of sessions on a target
  int64_t full = 0;       // openings that took a target's last place
  int64_t overtaken = 0;  // requests, as often as they may be
  int64_t waiting_resumes = 0;  // resumed calls that waited with others
  int64_t drained = 0;  // schedules that drain a target under many requests
  int64_t moved = 0;    // openings of theirs on a second target
  // Of services whose coordinators share their workers:
  int64_t shared = 0;  // schedules
  int64_t lost_coordinators = 0;
  int64_t resumed = 0;    // calls that went on after what their client had
  int64_t repeated = 0;   // calls whose client had nothing yet
  int64_t grants = 0;     // that changed
  int64_t held_back = 0;  // smaller ones than what was promised

  void Add(const Counts& other);
};

std::string Describe(const Counts& counts);

struct Outcome {
  std::string failure;  // empty: every invariant held
  std::string trace;    // of a failure, or all of it where asked for
  int64_t end_ns = 0;
  Counts counts;
  // The tokens that each request completed with, if it did.
  std::vector<std::vector<int32_t>> answers;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_OUTCOME_H_
