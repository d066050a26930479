// A libnccl for the emulated devices: NCCL's own functions, as many as we load,
// in a library that is loaded like NCCL's. Ranks are threads of one process,
// with a device each. Where the environment names a folder,
// NACRE_NCCL_FOLDER, they may be processes, and say to each other what they
// have to say in files there. What ranks call is on the stream only after the
// state of the communicator was asked for twice: as late as NCCL's own threads
// may be. There it waits for the other ranks, as the kernels of NCCL do.
//
// Processes that share a GPU are refused as NCCL refuses them: unless each says
// that it is on another host (NCCL_HOSTID).
//
// It fails when asked to (nccl_library.h). What NCCL would not take is
// ncclInvalidUsage, or ends the program.

#include "tests/kernels/cuda/nccl_library.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace {

using nacre::kernels::cuda::NcclLibraryState;
using Bytes = std::vector<char>;
using Lock = std::lock_guard<std::mutex>;

NcclLibraryState state;
std::mutex mutex;  // of all below

enum class Call : char { kAllGather = 'a', kBroadcast = 'b' };

// What the ranks of one id have said to each other, by name: each is said once,
// and forgotten by one that knows that no rank needs it any more.
class World {
 public:
  virtual ~World() = default;
  virtual void Say(const std::string& name, Bytes bytes) = 0;
  // Empty: not yet.
  virtual std::optional<Bytes> Hear(const std::string& name) = 0;
  virtual void Forget(const std::string& name) = 0;
};

// Of threads.
class ThreadWorld : public World {
 public:
  void Say(const std::string& name, Bytes bytes) override {
    said_[name] = std::move(bytes);
  }
  std::optional<Bytes> Hear(const std::string& name) override {
    const auto found = said_.find(name);
    if (found == said_.end()) return std::nullopt;
    return found->second;
  }
  void Forget(const std::string& name) override { said_.erase(name); }

 private:
  std::map<std::string, Bytes> said_;
};

// Of processes: a file for each name, which is there as soon as it is whole.
class ProcessWorld : public World {
 public:
  explicit ProcessWorld(std::string prefix) : prefix_(std::move(prefix)) {}

  void Say(const std::string& name, Bytes bytes) override {
    const std::string begun = prefix_ + name + ".begun";
    std::ofstream file(begun, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    std::filesystem::rename(begun, prefix_ + name);
  }
  std::optional<Bytes> Hear(const std::string& name) override {
    std::ifstream file(prefix_ + name, std::ios::binary);
    if (!file.is_open()) return std::nullopt;
    return Bytes(std::istreambuf_iterator<char>(file), {});
  }
  void Forget(const std::string& name) override {
    std::filesystem::remove(prefix_ + name);
  }

 private:
  const std::string prefix_;
};

// A rank. What is on a stream may outlive its communicator.
struct Member {
  std::shared_ptr<World> world;
  int rank = 0;
  int ranks = 0;
  bool joined = false;  // and so have all others
  bool is_refused = false;
  bool aborted = false;
  int num_meetings = 0;
  int num_calls = 0;  // collective calls and groups
  // Transfers so far with each other rank.
  std::map<int, int> sent;
  std::map<int, int> received;
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

// Where ranks are processes; null: they are threads.
const char* FolderOfProcesses() { return std::getenv("NACRE_NCCL_FOLDER"); }

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

std::string JoinName(int rank) { return "joins " + std::to_string(rank); }
std::string PartName(int meeting, int rank) {
  return "part " + std::to_string(meeting) + " " + std::to_string(rank);
}
std::string TransferName(int from, int to, int number) {
  return "transfer " + std::to_string(from) + " " + std::to_string(to) + " " +
         std::to_string(number);
}

// The GPU that a rank is on, as NCCL tells them apart. Threads have one each,
// whatever they say.
Bytes PlaceOf(int rank) {
  std::string place = "thread " + std::to_string(rank);
  if (FolderOfProcesses() != nullptr) {
    const char* const host = std::getenv("NCCL_HOSTID");
    place = std::string(host == nullptr ? "this host" : host) + ", device " +
            std::to_string(state.device());
  }
  return Bytes(place.begin(), place.end());
}

// Whether all ranks have joined.
bool HaveJoined(Member* member) {
  if (state.holds_joins) return false;
  if (member->joined) return true;
  std::vector<Bytes> places;
  for (int rank = 0; rank < member->ranks; ++rank) {
    std::optional<Bytes> place = member->world->Hear(JoinName(rank));
    if (!place.has_value()) return false;
    for (const Bytes& other : places) {
      member->is_refused = member->is_refused || other == *place;
    }
    places.push_back(*std::move(place));
  }
  member->joined = true;
  return true;
}

// One rank's part of a meeting: it gives its part at once, and is done when it
// has `take`n those of all, in order.
std::function<bool()> Meet(
    const std::shared_ptr<Member>& member, Call what, const void* part,
    size_t bytes, std::function<void(const std::vector<Bytes>&)> take) {
  const Lock lock(mutex);
  const int index = member->num_meetings++;
  const int call = member->num_calls++;
  return [=, gives = true]() mutable {
    const Lock lock(mutex);
    if (member->aborted) return true;
    World& world = *member->world;
    if (std::exchange(gives, false) && !IsLost(*member, call)) {
      const auto* const data = static_cast<const char*>(part);
      Bytes own(data, data + bytes);
      own.push_back(static_cast<char>(what));
      world.Say(PartName(index, member->rank), std::move(own));
    }
    if (state.holds_values) return false;
    std::vector<Bytes> parts;
    for (int rank = 0; rank < member->ranks; ++rank) {
      std::optional<Bytes> said = world.Hear(PartName(index, rank));
      if (!said.has_value()) return false;
      if (said->back() != static_cast<char>(what)) {
        Die("ranks call different functions");
      }
      said->pop_back();
      if (said->size() != bytes) Die("ranks call with different sizes");
      parts.push_back(*std::move(said));
    }
    take(parts);
    // All have begun this meeting, so they are through with the one before.
    world.Forget(PartName(index - 1, member->rank));
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
      world.Say(
          TransferName(member->rank, send.peer, member->sent[send.peer]++),
          Bytes(data, data + send.bytes));
    }
    for (; !receives.empty(); receives.pop_front()) {
      const Transfer& receive = receives.front();
      if (state.holds_values) return false;
      int& number = member->received[receive.peer];
      const std::string name = TransferName(receive.peer, member->rank, number);
      const std::optional<Bytes> said = world.Hear(name);
      if (!said.has_value()) return false;
      if (said->size() != receive.bytes) Die("another size was sent");
      std::memcpy(receive.data, said->data(), receive.bytes);
      world.Forget(name);
      ++number;
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
      transfer.peer >= comm->member->ranks) {
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
  state.version_here = nullptr;
  state.result = ncclSuccess;
  state.async_error = ncclSuccess;
  state.last_error = "";
  state.failing_call = state.async_rank = state.lost_rank = -1;
  state.holds_joins = state.holds_values = false;
  state.lost_call = state.calls = state.aborts = state.queued = 0;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = state.version_here ? state.version_here() : state.version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock(mutex);
  std::memset(id->internal, 0, sizeof(id->internal));
  std::snprintf(id->internal, sizeof(id->internal), "id %d %d",
                static_cast<int>(getpid()), num_ids++);
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
  if (const char* const folder = FolderOfProcesses();
      world == nullptr && folder != nullptr) {
    world = std::make_shared<ProcessWorld>(std::string(folder) + "/" +
                                           id.internal + " ");
  } else if (world == nullptr) {
    world = std::make_shared<ThreadWorld>();
  }
  (*comm)->member = std::make_shared<Member>();
  (*comm)->member->world = world;
  (*comm)->member->rank = rank;
  (*comm)->member->ranks = nranks;
  const ncclResult_t failed = Begin();
  if (failed != ncclSuccess) return failed;
  if (world->Hear(JoinName(rank)).has_value()) Die("a rank joins twice");
  world->Say(JoinName(rank), PlaceOf(rank));
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  std::function<void()> begun;
  {
    const Lock lock(mutex);
    Member& member = *comm->member;
    *error = ncclSuccess;
    if (state.async_rank < 0 || state.async_rank == member.rank) {
      *error = state.async_error;
    }
    if (*error != ncclSuccess) return ncclSuccess;
    if (!HaveJoined(&member)) {
      *error = ncclInProgress;
    } else if (member.is_refused) {
      state.last_error = "Duplicate GPU detected";
      *error = ncclInvalidUsage;
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
  const auto take = [all, count](const std::vector<Bytes>& parts) {
    auto* to = static_cast<char*>(all);
    for (const Bytes& part_of_rank : parts) {
      std::memcpy(to, part_of_rank.data(), count);
      to += count;
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
  const auto take = [out, count, root](const std::vector<Bytes>& parts) {
    std::memcpy(out, parts[static_cast<size_t>(root)].data(), count);
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
