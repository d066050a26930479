// A libnccl for the emulated devices: NCCL's own functions, as many as we load,
// in a library that is loaded like NCCL's. Ranks are threads of one process,
// with a device each. What they call is on the stream only after the state of
// the communicator was asked for twice: as late as NCCL's own threads may be.
// There it waits for the other ranks, as the kernels of NCCL do.
//
// It fails when asked to (nccl_library.h). What NCCL would not take is
// ncclInvalidUsage, or ends the program.

#include "tests/kernels/cuda/nccl_library.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace {

using nacre::kernels::cuda::NcclLibraryState;
using Bytes = std::vector<char>;
using Lock = std::lock_guard<std::mutex>;

NcclLibraryState state;
std::mutex mutex;  // of all below

enum class Call { kAllGather, kBroadcast };

// What all ranks call together.
struct Meeting {
  Call what = Call::kAllGather;
  std::map<int, Bytes> parts;  // by rank
  int taken = 0;               // by how many ranks
};

// The ranks of one id.
struct World {
  int ranks = 0;
  std::set<int> joined;
  std::map<int, Meeting> meetings;  // by their index
  // Sends that no receive has met yet, by (from, to).
  std::map<std::pair<int, int>, std::deque<Bytes>> wires;
};

// A rank. What is on a stream may outlive its communicator.
struct Member {
  std::shared_ptr<World> world;
  int rank = 0;
  bool aborted = false;
  int num_meetings = 0;
  int num_calls = 0;  // collective calls and groups
};

struct Transfer {
  bool is_send = false;
  void* data = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

// The open group of a thread.
thread_local int group_depth = 0;
thread_local std::map<ncclComm_t, std::vector<Transfer>> group;

std::map<std::string, std::shared_ptr<World>> worlds;
int num_ids = 0;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "libnccl of the tests: %s\n", what);
  std::exit(1);
}

// Of a call that can fail.
ncclResult_t Begin() {
  return state.calls++ == state.failing_call ? ncclSystemError
                                             : state.result.load();
}

bool IsLost(const Member& member, int call) {
  return member.rank == state.lost_rank && call >= state.lost_call;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Member> member;
  std::function<void()> begun;  // queues what was called
  int asked = 0;                // how often, since then
};

namespace {

ncclResult_t Queue(ncclComm_t comm, cudaStream_t stream,
                   std::vector<const void*> pointers,
                   std::function<bool()> run) {
  const Lock lock(mutex);
  if (comm->begun != nullptr) return ncclInvalidUsage;  // it is busy
  ++state.queued;
  comm->asked = 0;
  comm->begun = [stream, pointers = std::move(pointers), run = std::move(run)] {
    state.enqueue(stream, pointers, run);
  };
  return ncclInProgress;
}

// One rank's part of a meeting: it gives its part at once, and is done when it
// has `take`n those of all.
std::function<bool()> Meet(
    const std::shared_ptr<Member>& member, Call what, const void* part,
    size_t bytes, std::function<void(const std::map<int, Bytes>&)> take) {
  const Lock lock(mutex);
  const int index = member->num_meetings++;
  const int call = member->num_calls++;
  return [=] {
    const Lock lock(mutex);
    if (member->aborted) return true;
    World& world = *member->world;
    Meeting& meeting = world.meetings[index];
    if (meeting.parts.empty()) meeting.what = what;
    if (meeting.what != what) Die("ranks call different functions");
    const auto* const data = static_cast<const char*>(part);
    if (!IsLost(*member, call)) {
      meeting.parts.emplace(member->rank, Bytes(data, data + bytes));
    }
    for (const auto& [rank, other] : meeting.parts) {
      if (other.size() != bytes) Die("ranks call with different sizes");
    }
    if (state.holds_values ||
        static_cast<int>(meeting.parts.size()) < world.ranks) {
      return false;
    }
    take(meeting.parts);
    if (++meeting.taken == world.ranks) world.meetings.erase(index);
    return true;
  };
}

// All transfers of a group. Sends are done at once.
std::function<bool()> Exchange(const std::shared_ptr<Member>& member,
                               const std::vector<Transfer>& transfers) {
  const Lock lock(mutex);
  const int call = member->num_calls++;
  std::deque<Transfer> receives;
  std::vector<Transfer> sends;
  for (const Transfer& transfer : transfers) {
    if (transfer.is_send) {
      sends.push_back(transfer);
    } else {
      receives.push_back(transfer);
    }
  }
  return [=]() mutable {
    const Lock lock(mutex);
    if (member->aborted) return true;
    World& world = *member->world;
    for (const Transfer& send : std::exchange(sends, {})) {
      if (IsLost(*member, call)) continue;
      const auto* const data = static_cast<const char*>(send.data);
      world.wires[{member->rank, send.peer}].emplace_back(data,
                                                          data + send.bytes);
    }
    for (; !receives.empty(); receives.pop_front()) {
      const Transfer& receive = receives.front();
      std::deque<Bytes>& wire = world.wires[{receive.peer, member->rank}];
      if (wire.empty() || state.holds_values) return false;
      if (wire.front().size() != receive.bytes) Die("another size was sent");
      std::memcpy(receive.data, wire.front().data(), receive.bytes);
      wire.pop_front();
    }
    return true;
  };
}

ncclResult_t QueueTransfers(ncclComm_t comm, cudaStream_t stream,
                            const std::vector<Transfer>& transfers) {
  std::vector<const void*> pointers;
  for (const Transfer& transfer : transfers) pointers.push_back(transfer.data);
  return Queue(comm, stream, std::move(pointers),
               Exchange(comm->member, transfers));
}

thread_local cudaStream_t group_stream = nullptr;

ncclResult_t Add(const Transfer& transfer, ncclDataType_t type, ncclComm_t comm,
                 cudaStream_t stream) {
  if (const ncclResult_t failed = Begin(); failed != ncclSuccess) return failed;
  if (type != ncclInt8 || transfer.peer < 0 ||
      transfer.peer >= comm->member->world->ranks) {
    return ncclInvalidArgument;
  }
  if (group_depth == 0) return QueueTransfers(comm, stream, {transfer});
  group[comm].push_back(transfer);
  group_stream = stream;
  return ncclSuccess;
}

}  // namespace

extern "C" {

NcclLibraryState* NcclLibrary() { return &state; }

void ResetNcclLibrary() {
  state.version = NCCL_VERSION_CODE;
  state.result = ncclSuccess;
  state.async_error = ncclSuccess;
  state.last_error = "";
  state.failing_call = state.async_rank = state.lost_rank = -1;
  state.holds_joins = state.holds_values = false;
  state.lost_call = state.calls = state.aborts = state.queued = 0;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = state.version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock(mutex);
  std::memset(id->internal, 0, sizeof(id->internal));
  std::snprintf(id->internal, sizeof(id->internal), "id %d", num_ids++);
  return Begin();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const Lock lock(mutex);
  *comm = new ncclComm;
  ++state.comms;
  state.nranks = nranks;
  state.rank = rank;
  state.id.assign(id.internal, sizeof(id.internal));
  state.config = *config;
  std::shared_ptr<World>& world = worlds[state.id];
  if (world == nullptr) world = std::make_shared<World>();
  (*comm)->member = std::make_shared<Member>();
  (*comm)->member->world = world;
  (*comm)->member->rank = rank;
  const ncclResult_t failed = Begin();
  if (failed != ncclSuccess) return failed;
  world->ranks = nranks;
  if (!world->joined.insert(rank).second) Die("a rank joins twice");
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  std::function<void()> begun;
  {
    const Lock lock(mutex);
    const Member& member = *comm->member;
    *error = ncclSuccess;
    if (state.async_rank < 0 || state.async_rank == member.rank) {
      *error = state.async_error;
    }
    if (*error != ncclSuccess) return ncclSuccess;
    if (state.holds_joins ||
        static_cast<int>(member.world->joined.size()) < member.world->ranks) {
      *error = ncclInProgress;
    } else if (comm->begun != nullptr) {
      if (comm->asked++ == 0) {
        *error = ncclInProgress;
      } else {
        begun = std::exchange(comm->begun, nullptr);
      }
    }
  }
  if (begun != nullptr) begun();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Lock lock(mutex);
  comm->member->aborted = true;
  delete comm;
  --state.comms;
  ++state.aborts;
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return Add({true, const_cast<void*>(data), count, peer}, type, comm, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Add({false, data, count, peer}, type, comm, stream);
}

ncclResult_t ncclAllGather(const void* part, void* all, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  if (const ncclResult_t failed = Begin(); failed != ncclSuccess) return failed;
  if (type != ncclInt8) return ncclInvalidArgument;
  const auto take = [all, count](const std::map<int, Bytes>& parts) {
    for (const auto& [rank, bytes] : parts) {
      std::memcpy(static_cast<char*>(all) + static_cast<size_t>(rank) * count,
                  bytes.data(), count);
    }
  };
  return Queue(comm, stream, {part, all},
               Meet(comm->member, Call::kAllGather, part, count, take));
}

ncclResult_t ncclBroadcast(const void* data, void* out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  if (const ncclResult_t failed = Begin(); failed != ncclSuccess) return failed;
  if (type != ncclInt8) return ncclInvalidArgument;
  const auto take = [out, count, root](const std::map<int, Bytes>& parts) {
    std::memcpy(out, parts.at(root).data(), count);
  };
  return Queue(comm, stream, {data, out},
               Meet(comm->member, Call::kBroadcast, data, count, take));
}

ncclResult_t ncclGroupStart() {
  const ncclResult_t failed = Begin();
  if (failed == ncclSuccess) ++group_depth;
  return failed;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  const auto transfers = std::exchange(group, {});
  --group_depth;
  if (const ncclResult_t failed = Begin(); failed != ncclSuccess) return failed;
  ncclResult_t result = ncclSuccess;
  for (const auto& [comm, own] : transfers) {
    result = QueueTransfers(comm, group_stream, own);
    if (result != ncclInProgress) return result;
  }
  return result;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "other error";
}

const char* ncclGetLastError(ncclComm_t) { return state.last_error; }

}  // extern "C"
