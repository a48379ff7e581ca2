#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::io {

/// Which lines of the files belong to one trainer of several. Of each group of as many lines as
/// there are trainers, every trainer has one; a hash of file and group decides which. The lines of
/// all trainers together are all lines, each exactly once, if all are given the same files in the
/// same order.
struct LineShare {
  int trainer = 0;
  int trainers = 1;
  /// Each number gives other shares; 0: those of runs that keep them in all epochs.
  int64_t epoch = 0;

  /// \param file  position in the list of files  \param line  from 0
  [[nodiscard]] bool has(size_t file, int64_t line) const {
    if (trainers <= 1) return true;
    const auto all = static_cast<uint64_t>(trainers);
    const auto at = static_cast<uint64_t>(line);
    const uint64_t salt = epoch == 0 ? 0 : mixed(~static_cast<uint64_t>(epoch));
    const uint64_t turn = mixed(mixed(file) ^ salt ^ (at / all)) % all;
    return (at % all + turn) % all == static_cast<uint64_t>(trainer);
  }
  /// Number of the lines of a file that has `lines` of them.
  [[nodiscard]] int64_t count(size_t file, int64_t lines) const {
    if (trainers <= 1) return lines;
    int64_t sum = lines / trainers;
    for (int64_t line = lines - lines % trainers; line < lines; ++line)
      sum += has(file, line) ? 1 : 0;
    return sum;
  }

 private:
  // SplitMix64: the same on every machine.
  static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
  }
};

}  // namespace millrace::io
