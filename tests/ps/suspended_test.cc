// A server whose machine was suspended, in this program: the clock that counts that time is ahead.
#include <atomic>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/boot_clock.h"
#include "tests/io/temp_folder.h"
#include "tests/ps/direct_server.h"
#include "tests/ps/server_fixture.h"

namespace {

std::atomic<int64_t> seconds_of_sleep{0};

}  // namespace

// Takes the place of the C library's function in the whole program.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_BOOTTIME) time->tv_sec += seconds_of_sleep;
  return result;
}

namespace millrace::ps {
namespace {

using test::DirectServer;
using test::DirectTrainer;
using test::put_numbers;
using ::testing::HasSubstr;

TEST(SuspendedServer, LooksForAnotherOneBeforeItAnswers) {
  const ::millrace::testing::TempFolder disk;
  ServerOptions options;
  options.snapshot_root = disk.path();
  options.snapshot_every = 100;
  options.snapshot_durable = true;  // so the first fetch waits for the first snapshot
  DirectServer server(sync_server(1), options, [](Scope& scope) {
    put_numbers<float>(scope, "w", DType::kFloat32, {8, 16});
    put_numbers<float>(scope, "rate", DType::kFloat32, {0.5});
  });
  server.serve();
  DirectTrainer trainer(server, 0, 7);
  trainer.hello();
  ASSERT_TRUE(trainer.fetch().ok());
  std::ofstream(disk / "server-0.term") << "5\n";  // another one has begun
  ASSERT_TRUE(trainer.send("w@GRAD", floats({2, 4})).ok());
  const BootClock::duration before = suspended_time();
  seconds_of_sleep += 20;
  EXPECT_GE(suspended_time() - before, std::chrono::seconds(19));
  EXPECT_THAT(trainer.fetch().to_string(), HasSubstr("it has term 5, this one has term 1"));
  EXPECT_THAT(server.end().to_string(), HasSubstr("it has term 5, this one has term 1"));
}

}  // namespace
}  // namespace millrace::ps
