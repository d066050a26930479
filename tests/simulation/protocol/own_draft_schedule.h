// What targets draft from themselves in a schedule: heads, a draft over
// features, one over keys and values, or nothing of the kind. And texts that
// are long enough for all that these do.

#ifndef TESTS_SIMULATION_PROTOCOL_OWN_DRAFT_SCHEDULE_H_
#define TESTS_SIMULATION_PROTOCOL_OWN_DRAFT_SCHEDULE_H_

#include <cstdint>
#include <string>

#include "tests/simulation/protocol/schedule.h"

namespace nacre::protocol {

// Of generators of their own: the rest of a schedule does not depend on them.
void DrawOwnDrafts(Schedule* schedule);

// In some schedules the last two requests have a prompt of more tokens than
// wait to be fed, or than one look feeds, the same one. Or they have a long
// answer.
void DrawLongText(uint64_t seed, RequestOptions* request);

std::string DescribeOwnDrafts(const Schedule& schedule);

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_OWN_DRAFT_SCHEDULE_H_
