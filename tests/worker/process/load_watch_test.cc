#include "worker/process/load_watch.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace nacre::worker {
namespace {

// Of a process that loads: what was done, in order.
struct Loading {
  Loading()
      : watch(std::make_unique<LoadWatch>(
            NodeProcess{&exit,
                        [this](const absl::Status& status) {
                          done.push_back("quit: " + status.ToString());
                          quit.Notify();
                        }},
            [this](const absl::Status& status) {
              done.push_back("tell: " + status.ToString());
            })) {}

  ExitSignal exit;
  std::vector<std::string> done;
  absl::Notification quit;
  std::unique_ptr<LoadWatch> watch;
};

TEST(LoadWatchTest, TellsTheOthersAndEndsTheProcess) {
  Loading told;
  told.exit.Drain();
  told.quit.WaitForNotification();
  told.watch.reset();
  EXPECT_EQ(told.done, (std::vector<std::string>{"tell: OK", "quit: OK"}));
  Loading fails;
  const absl::Status failure = absl::UnavailableError("node 1 is lost");
  fails.exit.Fail(failure);
  fails.quit.WaitForNotification();
  fails.watch.reset();
  EXPECT_EQ(fails.done,
            (std::vector<std::string>{"tell: " + failure.ToString(),
                                      "quit: " + failure.ToString()}));
}

TEST(LoadWatchTest, OnceItIsLoadedTheProcessEndsInItsOwnTime) {
  Loading loaded;
  loaded.watch.reset();
  loaded.exit.Drain();
  EXPECT_TRUE(loaded.done.empty());
  loaded.exit.Wait();
  EXPECT_TRUE(loaded.exit.draining());
}

TEST(LoadWatchTest, AProcessThatCannotBeEndedIsNot) {
  ExitSignal exit;
  bool told = false;
  {
    const LoadWatch watch({&exit, nullptr},
                          [&](const absl::Status&) { told = true; });
    exit.Drain();
  }
  EXPECT_FALSE(told);
}

}  // namespace
}  // namespace nacre::worker
