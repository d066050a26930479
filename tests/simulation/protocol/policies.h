// Length policies in a schedule: which request asks for which, which drafts
// have files for those that need one, and a library that has all.

#ifndef TESTS_SIMULATION_PROTOCOL_POLICIES_H_
#define TESTS_SIMULATION_PROTOCOL_POLICIES_H_

#include "draft_worker/policy_library.h"
#include "tests/simulation/protocol/schedule.h"

namespace nacre::protocol {

// Of a generator of its own: the rest of a schedule does not depend on it.
void DrawPolicies(Schedule* schedule);

// What the target of that table says to the request, as the recording that the
// policy `oracle` reads.
void RecordAnswer(int table, coordinator::RequestSpec* spec);

// Calibrations of every policy that reads one, of random weights; or none.
draft_worker::PolicyLibrary& Library(bool has_files);

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_POLICIES_H_
