#!/usr/bin/env python3
"""Time of MPI's all-reduce between two processes: the blocking call, and the non-blocking one, which allows a deadline.

    bench/mpi_calls.py

Measured without the library's locks for several threads (level 0) and with them (level 2). Prints a line for each call
and size: best and median of seven rounds, microseconds. Needs mpicc and mpirun.
"""
import os
import subprocess
import tempfile

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRounds = 7 };

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static void exchange(int blocking, float* values, int count) {
  if (blocking) {
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return;
  }
  MPI_Request request;
  int done = 0;
  MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  while (!done) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  const int wanted = argc > 1 ? atoi(argv[1]) : MPI_THREAD_SINGLE;
  int level = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, wanted, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int bytes = 1024; bytes <= 4 << 20; bytes *= 4) {
    float* const values = calloc((size_t)bytes, 1);
    const int calls = bytes <= 65536 ? 3000 : 300;
    for (int blocking = 1; blocking >= 0; --blocking) {
      double micros[kRounds];
      for (int round = 0; round < kRounds; ++round) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (int i = 0; i < calls; ++i) exchange(blocking, values, bytes / 4);
        micros[round] = (MPI_Wtime() - begin) / calls * 1e6;
      }
      qsort(micros, kRounds, sizeof *micros, by_value);
      if (rank == 0)
        printf("level %d, %s, %d bytes: best %.2f, median %.2f us\n", level,
               blocking ? "MPI_Allreduce" : "MPI_Iallreduce", bytes, micros[0], micros[kRounds / 2]);
    }
    free(values);
  }
  MPI_Finalize();
  return 0;
}
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "calls.c"), os.path.join(folder, "calls")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        subprocess.run(["mpicc", "-O2", source, "-o", program], check=True)
        for level in ("0", "2"):
            subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", program, level], check=True)


if __name__ == "__main__":
    main()
