#include "tools/interrupt.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "common/check.h"

namespace nacre::tools {

InterruptWatcher::InterruptWatcher(std::function<void()> on_signal,
                                   Signals signals)
    : on_signal_(std::move(on_signal)),
      signals_(signals),
      stop_event_(eventfd(0, EFD_CLOEXEC)) {
  NACRE_CHECK(stop_event_ >= 0, "eventfd");
  thread_ = std::thread([this] { Watch(); });
}

InterruptWatcher::~InterruptWatcher() {
  const uint64_t one = 1;
  NACRE_CHECK(write(stop_event_, &one, sizeof(one)) == sizeof(one), "eventfd");
  thread_.join();
  close(stop_event_);
}

void InterruptWatcher::Watch() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  NACRE_CHECK(signal_fd >= 0, "signalfd");
  pollfd fds[2] = {{stop_event_, POLLIN, 0}, {signal_fd, POLLIN, 0}};
  nfds_t watched = 2;
  while (true) {
    if (poll(fds, watched, -1) < 0) continue;
    if (fds[0].revents != 0) break;
    signalfd_siginfo info;
    if (watched == 1 || read(signal_fd, &info, sizeof(info)) != sizeof(info)) {
      continue;
    }
    if (signals_ == Signals::kEachInterrupt && info.ssi_signo == SIGINT) {
      on_signal_();
      continue;
    }
    // This thread now takes the default action of the next one: the end.
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    if (signals_ == Signals::kEachInterrupt) raise(SIGTERM);
    watched = 1;
    on_signal_();
  }
  close(signal_fd);
}

}  // namespace nacre::tools
