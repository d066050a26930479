// What targets of the world draft from themselves, as the checks see it.
//
// Plain values.

#ifndef TESTS_SIMULATION_PROTOCOL_OWN_ROWS_H_
#define TESTS_SIMULATION_PROTOCOL_OWN_ROWS_H_

#include <cstdint>

namespace nacre::protocol {

class LogitTable;

// What targets have heads from, or a draft of their own; null: none.
struct OwnTables {
  const LogitTable* heads = nullptr;
  const LogitTable* drafter = nullptr;
  bool reads_kv = false;  // the draft, and not features
};

// The last text of a session that its target's draft was asked after.
struct OwnLook {
  int length = -1;  // in tokens; -1: none
  uint64_t hash = 0;
  int first = 0;  // where what the draft saw of it begins
};

// What a target's session has for drafts of its own.
struct OwnDrafts {
  OwnLook look;
  // It has computed its given text from there to there, and taken the rest
  // over.
  int fed_from = 0;
  int fed_end = 0;
};

// Steps that verify rows of the target's own.
struct OwnCounts {
  int64_t rows = 0;
  int64_t walks = 0;                     // steps that committed some of them
  int64_t beside = 0, beside_walks = 0;  // likewise, of those off their path
  int64_t remembered = 0;                // from answers to other requests
  int64_t of_heads = 0, head_walks = 0;  // steps with what only heads say
  // Likewise of a draft over features, and of one over keys and values.
  int64_t of_features = 0, feature_walks = 0;
  int64_t of_kv = 0, kv_walks = 0;
  // Of the walks of both:
  int64_t exchanged = 0;    // the request has had several drafts
  int64_t failed_over = 0;  // ... several targets
  int64_t beheaded = 0;     // what the draft saw did not begin with the text
  // Steps without rows, of sessions that their draft was not asked about.
  int64_t unasked = 0;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_OWN_ROWS_H_
