#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::jobs {

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
  std::string slots;                ///< description of the fields of their lines
  bool in_memory = false;  ///< `files` are read before training, so that they can be shuffled
  int reader_threads = 1;  ///< that read `files`
  int64_t batch_size = 0;  ///< examples; 0: from the slots file, else 64
  int64_t epochs = 1;      ///< passes over `data` or `files`
  bool shuffle = true;     ///< in every epoch
  uint64_t seed = 0;       ///< of shuffling
};

}  // namespace millrace::jobs
