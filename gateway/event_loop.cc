#include "gateway/event_loop.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <thread>
#include <utility>

namespace nacre::gateway {
namespace {

// Of all connections together; each waits for one at a time.
constexpr int kMaxWaitingWork = 1024;

}  // namespace

class EventLoop::Impl {
 public:
  explicit Impl(int work_threads)
      : guard_(boost::asio::make_work_guard(io)),
        workers(static_cast<size_t>(work_threads)),
        thread([this] { io.run(); }) {}

  boost::asio::io_context io{1};

 private:
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
      guard_;

 public:
  boost::asio::thread_pool workers;
  std::atomic<int> waiting_work{0};
  std::thread thread;
};

EventLoop::EventLoop(int work_threads)
    : impl_(std::make_unique<Impl>(work_threads)) {}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::StopWork() {
  impl_->workers.stop();
  impl_->workers.join();
}

void EventLoop::Stop() {
  StopWork();
  if (!impl_->thread.joinable()) return;
  // Behind what was posted: the end of a call lets its objects go. Twice, since
  // what the loop's own thread has posted joins the others behind the function
  // that runs.
  Post([this] { Post([this] { impl_->io.stop(); }); });
  impl_->thread.join();
}

void EventLoop::Post(std::function<void()> function) {
  boost::asio::post(impl_->io, std::move(function));
}

void EventLoop::PostAfter(absl::Duration delay,
                          std::function<void()> function) {
  const auto timer = std::make_shared<boost::asio::steady_timer>(
      impl_->io, absl::ToChronoNanoseconds(delay));
  timer->async_wait([timer, function = std::move(function)](
                        const boost::system::error_code& error) {
    if (!error) function();
  });
}

bool EventLoop::PostWork(std::function<void()> function) {
  if (impl_->waiting_work.fetch_add(1) >= kMaxWaitingWork) {
    impl_->waiting_work.fetch_sub(1);
    return false;
  }
  boost::asio::post(impl_->workers,
                    [this, function = std::move(function)]() mutable {
                      impl_->waiting_work.fetch_sub(1);
                      function();
                    });
  return true;
}

boost::asio::io_context& EventLoop::io() { return impl_->io; }

}  // namespace nacre::gateway
