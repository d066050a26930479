#include "tests/testing/network_hosts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::testing {
namespace {

constexpr size_t kMaxFrameBytes = 2048;  // the cards' MTU is 1500
constexpr char kCard[] = "eth0";

absl::Status SystemError(const std::string& what) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(errno));
  return errno == EPERM || errno == EACCES ? absl::PermissionDeniedError(text)
                                           : absl::UnavailableError(text);
}

int OpenOwnNamespace() {
  return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
}

std::string AddressOf(size_t host) { return absl::StrCat("10.0.0.", host + 1); }

sockaddr Ipv4(const std::string& text) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  sockaddr result;
  std::memcpy(&result, &address, sizeof(result));
  return result;
}

ifreq Interface(const char* name) {
  ifreq request = {};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  return request;
}

absl::Status SetUp(int socket, const char* name) {
  ifreq request = Interface(name);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(socket, SIOCSIFFLAGS, &request) < 0) {
    return SystemError(absl::StrCat("setting ", name, " up"));
  }
  return absl::OkStatus();
}

// Loopback and the card, in the namespace that the thread is in.
absl::Status Configure(const std::string& address) {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (any < 0) return SystemError("socket");
  const auto close_any = absl::MakeCleanup([any] { close(any); });
  NACRE_RETURN_IF_ERROR(SetUp(any, "lo"));
  ifreq request = Interface(kCard);
  request.ifr_addr = Ipv4(address);
  if (ioctl(any, SIOCSIFADDR, &request) < 0) return SystemError("SIOCSIFADDR");
  request = Interface(kCard);
  request.ifr_netmask = Ipv4("255.255.255.0");
  if (ioctl(any, SIOCSIFNETMASK, &request) < 0) {
    return SystemError("SIOCSIFNETMASK");
  }
  return SetUp(any, kCard);
}

// A card in the namespace that the thread is in; it goes with the descriptor.
absl::StatusOr<int> OpenCard() {
  const int card = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (card < 0) return SystemError("/dev/net/tun");
  ifreq request = Interface(kCard);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(card, TUNSETIFF, &request) < 0) {
    const absl::Status status = SystemError("TUNSETIFF");
    close(card);
    return status;
  }
  return card;
}

}  // namespace

NetworkHosts::Visit::Visit(const NetworkHosts& network, int host)
    : home_(OpenOwnNamespace()) {
  int name_space = -1;
  {
    absl::MutexLock lock(&network.mu_);
    name_space = network.hosts_.at(static_cast<size_t>(host)).name_space;
  }
  NACRE_CHECK(setns(name_space, CLONE_NEWNET) == 0, std::strerror(errno));
}

NetworkHosts::Visit::~Visit() {
  NACRE_CHECK(setns(home_, CLONE_NEWNET) == 0, std::strerror(errno));
  close(home_);
}

absl::StatusOr<std::unique_ptr<NetworkHosts>> NetworkHosts::Create(int count) {
  NACRE_CHECK(count >= 1 && count <= 200, "hosts of one /24");
  auto network = absl::WrapUnique(new NetworkHosts);
  network->wake_ = eventfd(0, EFD_CLOEXEC);
  if (network->wake_ < 0) return SystemError("eventfd");
  for (int i = 0; i < count; ++i) NACRE_RETURN_IF_ERROR(network->AddHost());
  network->thread_ = std::thread([network = network.get()] { network->Run(); });
  return network;
}

absl::Status NetworkHosts::AddHost() {
  const int home = OpenOwnNamespace();
  if (home < 0) return SystemError("/proc/thread-self/ns/net");
  const auto close_home = absl::MakeCleanup([home] { close(home); });
  if (unshare(CLONE_NEWNET) < 0) return SystemError("a network namespace");
  const auto return_home = absl::MakeCleanup([home] {
    NACRE_CHECK(setns(home, CLONE_NEWNET) == 0, std::strerror(errno));
  });
  absl::MutexLock lock(&mu_);
  const std::string address = AddressOf(hosts_.size());
  // What it opens is closed with the other hosts, also after an error.
  Host& host = hosts_.emplace_back();
  host.name_space = OpenOwnNamespace();
  if (host.name_space < 0) return SystemError("/proc/thread-self/ns/net");
  NACRE_ASSIGN_OR_RETURN(host.card, OpenCard());
  return Configure(address);
}

NetworkHosts::~NetworkHosts() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    NACRE_CHECK(write(wake_, &one, sizeof(one)) == sizeof(one), "an eventfd");
    thread_.join();
  }
  for (const Host& host : hosts_) {
    for (int fd : {host.card, host.name_space}) {
      if (fd >= 0) close(fd);
    }
  }
  if (wake_ >= 0) close(wake_);
}

std::string NetworkHosts::address(int host) const {
  return AddressOf(static_cast<size_t>(host));
}

void NetworkHosts::SetLink(int host, const Link& link) {
  absl::MutexLock lock(&mu_);
  for (size_t i = 0; i < hosts_.size(); ++i) Receive(i, absl::Now());
  hosts_.at(static_cast<size_t>(host)).link = link;
}

void NetworkHosts::Run() {
  std::vector<pollfd> polled;
  {
    absl::MutexLock lock(&mu_);
    for (const Host& host : hosts_) polled.push_back({host.card, POLLIN, 0});
  }
  polled.push_back({wake_, POLLIN, 0});
  while (polled.back().revents == 0) {
    absl::Time next = absl::InfiniteFuture();
    {
      absl::MutexLock lock(&mu_);
      const absl::Time now = absl::Now();
      for (size_t i = 0; i < hosts_.size(); ++i) {
        if (polled[i].revents != 0) Receive(i, now);
      }
      for (; !delayed_.empty(); delayed_.pop()) {
        const Frame& frame = delayed_.top();
        next = frame.due;
        if (next > now) break;
        // A card that is full loses the frame, as a real one does.
        (void)!write(hosts_[frame.to].card, frame.bytes.data(),
                     frame.bytes.size());
        next = absl::InfiniteFuture();
      }
    }
    const timespec timeout =
        absl::ToTimespec(std::max(absl::ZeroDuration(), next - absl::Now()));
    ppoll(polled.data(), polled.size(),
          next == absl::InfiniteFuture() ? nullptr : &timeout, nullptr);
  }
}

void NetworkHosts::Receive(size_t from, absl::Time now) {
  char buffer[kMaxFrameBytes];
  ssize_t count = 0;
  while ((count = read(hosts_[from].card, buffer, sizeof(buffer))) > 0) {
    const std::string bytes(buffer, static_cast<size_t>(count));
    MacAddress to, sender;
    if (bytes.size() < to.size() + sender.size()) continue;
    std::copy_n(bytes.begin(), to.size(), to.begin());
    std::copy_n(bytes.begin() + to.size(), sender.size(), sender.begin());
    learned_[sender] = from;
    if (const auto known = learned_.find(to); known != learned_.end()) {
      Forward(from, known->second, bytes, now);
      continue;
    }
    for (size_t i = 0; i < hosts_.size(); ++i) Forward(from, i, bytes, now);
  }
}

void NetworkHosts::Forward(size_t from, size_t to, const std::string& bytes,
                           absl::Time now) {
  if (from == to || !hosts_[from].link.speaks || !hosts_[to].link.hears) return;
  absl::Time due = now;
  for (const Link& link : {hosts_[from].link, hosts_[to].link}) {
    std::uniform_real_distribution<double> share(0.0, 1.0);
    if (share(random_) < link.loss) return;
    due += link.delay + (2.0 * share(random_) - 1.0) * link.jitter;
  }
  delayed_.push({due, next_serial_++, to, bytes});
}

}  // namespace nacre::testing
