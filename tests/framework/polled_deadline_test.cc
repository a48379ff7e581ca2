#include "framework/base/polled_deadline.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

// A process that was stopped for longer than its deadline has the rest of the time left.
namespace millrace {
namespace {

using std::chrono::milliseconds;

TEST(PolledDeadline, Passes) {
  PolledDeadline deadline{milliseconds(20)};
  while (!deadline.has_passed()) usleep(1000);
  EXPECT_LE(deadline.left().count(), 0);
  EXPECT_TRUE(PolledDeadline{milliseconds(0)}.has_passed());
}

// The child writes one byte before it is stopped and one after; it ends with 0 if its deadline of
// five seconds has not passed although it was stopped for longer.
TEST(PolledDeadline, DoesNotPassWhileTheProcessIsStopped) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    PolledDeadline deadline{milliseconds(5000)};
    const char byte = 'a';
    if (write(ends[1], &byte, 1) != 1) _exit(2);
    raise(SIGSTOP);
    _exit(deadline.has_passed() ? 1 : 0);
  }
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  usleep(5'500'000);
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace millrace
