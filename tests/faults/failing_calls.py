#!/usr/bin/env python3
"""The n-th fsync, write or connect of a process fails, for every n of a short job with snapshots.

    tests/faults/failing_calls.py --bin-dir build/dev/tools [--most 1000] [--case ../shared/goldens/ps_sync/linear_exact_3s4t]

The job passes with the same bits, or its processes end with an error, one of which has the text of the system's error, and
the job that is started again on the snapshots has the same bits. --most: as many of the n, evenly spread, for each process
and call (8).

Exit status: 0 all passed, 1 not. Needs numpy and a C compiler.
"""
import argparse
import os
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import Job  # noqa: E402

STEPS = 3
SERVER_FLAGS = ["--start-timeout-ms", "10000", "--silence-timeout-ms", "8000", "--snapshot-every", "1", "--snapshot-durable"]
TRAINER_FLAGS = ["--deadline-ms", "15000", "--silence-timeout-ms", "8000", "--force"]

# Counts the calls of one kind in a file, a byte each, and lets one of them fail. Writes count where they go to a file.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(const char* call) {
  const char* const wanted = getenv("FAILING_CALL");
  if (wanted == NULL || strcmp(wanted, call) != 0) return 0;
  static long count = 0;
  const long own = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
  const int file = (int)syscall(SYS_openat, AT_FDCWD, getenv("FAILING_COUNT"), O_WRONLY | O_APPEND | O_CREAT, 0644);
  syscall(SYS_write, file, ".", 1);
  syscall(SYS_close, file);
  return own == atol(getenv("FAILING_AT"));
}
static int is_file(int file) {
  struct stat facts;
  return fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
}
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(error) do { errno = (error); return -1; } while (0)

int fsync(int file) { if (fails("fsync")) FAIL(EIO); return NEXT(fsync)(file); }
int fdatasync(int file) { if (fails("fsync")) FAIL(EIO); return NEXT(fdatasync)(file); }
ssize_t write(int file, const void* data, size_t size) {
  if (is_file(file) && fails("write")) FAIL(ENOSPC);
  return NEXT(write)(file, data, size);
}
ssize_t pwrite(int file, const void* data, size_t size, off_t at) {
  if (is_file(file) && fails("write")) FAIL(ENOSPC);
  return NEXT(pwrite)(file, data, size, at);
}
ssize_t writev(int file, const struct iovec* parts, int count) {
  if (is_file(file) && fails("write")) FAIL(ENOSPC);
  return NEXT(writev)(file, parts, count);
}
int connect(int file, const struct sockaddr* to, socklen_t size) {
  if (to->sa_family != AF_UNIX && fails("connect")) FAIL(ECONNREFUSED);
  return NEXT(connect)(file, to, size);
}
"""
CALLS = (("server", "fsync", "Input/output error"), ("server", "write", "No space left on device"),
         ("trainer", "write", "No space left on device"), ("trainer", "connect", "Connection refused"))


def require(condition, message):
    if not condition:
        raise RuntimeError(message)


def same(job, want):
    got = job.load("after.npz")
    return set(got) == set(want) and all(np.array_equal(got[name], value) for name, value in want.items())


def run(job, role, shim, call, at):
    """Runs the job; in process 0 of the role, call number `at` fails. Returns all statuses."""
    plain, counted = dict(job.env), os.path.join(job.dir, "count")
    failing = {**plain, "LD_PRELOAD": shim, "FAILING_CALL": call, "FAILING_AT": str(at), "FAILING_COUNT": counted}
    flags = ["--snapshot-dir", os.path.join(job.dir, "snapshots")]
    for i, _ in enumerate(job.servers):
        job.env = failing if (role, i) == ("server", 0) else plain
        job.start_server(i, wait=False, flags=flags)
    for t, _ in enumerate(job.trainers):
        job.env = failing if (role, t) == ("trainer", 0) else plain
        job.start_trainer(t)
    job.env = plain
    return [code for side in job.wait_all(90) for code in side]


def check(args, shim, role, call, error, at):
    """Returns how many such calls the process made."""
    with Job(args.bin_dir, args.case, STEPS, SERVER_FLAGS, TRAINER_FLAGS) as job:
        want = job.prepare(with_proxies=False).reference()
        codes = run(job, role, shim, call, at)
        said = "\n".join(f"{process.text[-300:]}" for process in job.processes[1:])
        require(all(code is not None and 0 <= code < 128 for code in codes), f"processes end with {codes}: {said}")
        counted = os.path.join(job.dir, "count")
        count = os.path.getsize(counted) if os.path.exists(counted) else 0
        if set(codes) == {0}:
            require(same(job, want), "the job passes with another result")
            return count
        require(error in said, f"no process names the error '{error}' ({codes}): {said}")
        for name in ("after.npz", "count"):
            if os.path.exists(f"{job.dir}/{name}"):
                os.remove(f"{job.dir}/{name}")
        codes = run(job, role, shim, call, 0)
        said = "\n".join(f"{process.text[-300:]}" for process in job.processes[-len(codes):])
        require(set(codes) == {0} and same(job, want), f"started again, the job ends with {codes}: {said}")
        return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--case", default=os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                       "../../../shared/goldens/ps_sync/linear_exact_3s4t"))
    args = parser.parse_args()
    failed = 0
    with Job(args.bin_dir, args.case, STEPS) as scratch:
        source, shim = f"{scratch.dir}/shim.c", f"{scratch.dir}/shim.so"
        with open(source, "w", encoding="utf-8") as file:
            file.write(SHIM)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
        for role, call, error in CALLS:
            begin, wrong = time.monotonic(), []
            count = check(args, shim, role, call, error, 0)
            tried = sorted({1 + i * count // min(count, args.most) for i in range(min(count, args.most))})
            for at in tried:
                try:
                    check(args, shim, role, call, error, at)
                except (RuntimeError, OSError) as problem:
                    wrong.append(f"number {at}: {problem}")
            failed += len(wrong)
            print(f"{role} {call}: {len(tried)} of {count} calls, {len(wrong)} wrong ({time.monotonic() - begin:.0f} s)",
                  *wrong, sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
