#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/multi_slot/arrow_rows.h"

namespace millrace::jobs {

/// How the trainers of a job, or the ranks of a run, divide their examples.
enum class Divide : uint8_t {
  kNone,      ///< each reads all of them
  kFiles,     ///< each reads some of the files, consecutive ones
  kExamples,  ///< each reads a random share of the lines of every file, see io::LineShare
};

/// What the steps of a run are fed with. At most one of `steps_file`, `data` and `files` is given;
/// `values` are fed in every step in any case.
struct FeedOptions {
  std::vector<std::string> values;  ///< files and generated values, see read_feeds()
  std::vector<std::string> lods;    ///< "x=0,2,5", one entry per level
  bool in_float64 = false;          ///< converts float32 values; not those of `data` and `files`
  std::string steps_file;           ///< npz with members stepK/<var>
  int64_t steps = 1;                ///< without `data` and `files`
  int64_t max_steps = 0;            ///< 0: no limit
  std::string data;                 ///< csv or npz with examples
  std::string columns;              ///< csv: "x=0:12,y=13"
  std::vector<std::string> files;   ///< patterns of MultiSlot text; "-" is standard input
  /// Arrow streams by name, in place of `files`, which then has their names in order. Each is
  /// opened again for every pass.
  std::map<std::string, io::ArrowOpener> streams = {};
  std::string slots;  ///< file that describes the fields of their lines
  /// A pipe_command of `slots` may run. It is a command of the shell, with all rights of the
  /// process.
  bool allow_pipe_command = false;
  bool in_memory = false;  ///< `files` are read before training, so that they can be shuffled
  int reader_threads = 0;  ///< that read `files`; 0: from the slots file, else 1
  int64_t batch_size = 0;  ///< examples; 0: from the slots file, else 64
  int64_t epochs = 1;      ///< passes over `data` or `files`
  bool shuffle = true;     ///< in every epoch
  uint64_t seed = 0;       ///< of shuffling
  bool drop_last = false;  ///< leaves out batches with fewer examples
  /// Of `data` and `files`. All trainers must be given the same ones.
  Divide divide = Divide::kNone;
  /// With Divide::kExamples of `files`: every epoch has other shares.
  bool reshuffle_epochs = false;
  int trainer = 0;   ///< with `divide`: number of this one
  int trainers = 1;  ///< of the job
};

}  // namespace millrace::jobs
