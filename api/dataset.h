#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/array.h"
#include "framework/base/status.h"

struct ArrowArrayStream;  // of the Arrow C stream interface; Arrow libraries define it

namespace millrace {
class Program;
}

/// Training and inference from files of examples. The forms of the files, and which example is in
/// which batch, are those of `run-program --files` (docs/data_files.md).
namespace millrace::api {

struct Internals;
class Ranks;

/// How several trainers divide the examples. All of them must be given the same files.
enum class DatasetDivide {
  kNone,      ///< each reads all
  kFiles,     ///< each reads consecutive files of the list
  kExamples,  ///< each reads a random share of the lines of every file
};

/// Examples in Arrow form: a table, or a reader of a Parquet file.
struct ArrowSource {
  std::string name;  ///< for messages; every source has another one
  /// Starts a pass over the rows. Called by a thread that reads, once for every pass; the data set
  /// moves the stream out of the struct. Every pass must have the same rows.
  std::function<StatusOr<std::shared_ptr<ArrowArrayStream>>()> open;
};

/// Where the examples of a data set are, and how they become batches. One of `files` and `arrow`
/// has them. One of `use_vars`, `slots` and `slots_text` describes a line.
struct DatasetOptions {
  /// Names or patterns ("clicks/part-*"), matches in the order of their names; "-" is standard
  /// input. Plain, gzip or zstd.
  std::vector<std::string> files = {};
  /// Streams whose rows are the lines; the description has "format": "arrow", or `use_vars` names
  /// columns (docs/data_files.md). A stream is read one array at a time.
  std::vector<ArrowSource> arrow = {};
  /// MultiSlot text: vars of the program that the slots of a line feed, in order. float32 is a
  /// float slot, int64 a slot of ids; LoD level 0 is dense, with the dims of the var.
  std::vector<std::string> use_vars = {};
  std::string slots = {};       ///< file that describes the slots (JSON, docs/data_files.md)
  std::string slots_text = {};  ///< content of such a file
  /// Command of the shell that every file is sent through: its standard input is the decompressed
  /// file, its standard output has the lines. "cat" or empty: none. A pipe_command of `slots` or
  /// `slots_text` runs only with `allow_pipe_command`, because it is a command from a file.
  std::string pipe_command = {};
  bool allow_pipe_command = false;
  /// False: examples are read while a program runs (QueueDataset of the original). True:
  /// load_into_memory() reads them, so that they can be shuffled (InMemoryDataset).
  bool in_memory = false;
  int64_t batch_size = 0;  ///< examples; 0: as the description says, else 64
  int reader_threads = 0;  ///< that read files; 0: as the description says, else 1
  bool drop_last = false;  ///< leaves out batches with fewer examples
  uint64_t seed = 0;       ///< of local_shuffle()
  DatasetDivide divide = DatasetDivide::kNone;
  /// In memory, with kExamples: the n-th global_shuffle() reads the share of epoch n, so that the
  /// trainers exchange their examples. Each reads all files again.
  bool reshuffle_epochs = false;
  int trainer = 0;   ///< with `divide`: number of this trainer, from 0
  int trainers = 1;  ///< with `divide`: number of trainers
};

/// What is known when a callback of an epoch is called.
struct EpochStep {
  int64_t batch = 0;     ///< number of batches that are done
  int64_t examples = 0;  ///< in the last of them
  Arrays fetches;        ///< of the last batch, by name
  std::string text;      ///< "step 100: loss = 0.5", as `run-program --print-period` logs it
};

/// How a program runs over a data set. Each call is one epoch: every example once.
struct EpochOptions {
  std::vector<std::string> fetches = {};  ///< dense vars, computed in every batch
  int64_t print_period = 100;             ///< batches between calls of `on_print`
  /// Receives the fetches of every print_period-th batch; an error ends the epoch. It may read and
  /// set the variables of the program.
  std::function<Status(const EpochStep& step)> on_print = {};
  /// Batches before it are read but not run, to continue an epoch. More than the epoch has are an
  /// error (kInvalidArgument).
  int64_t first_batch = 0;
  /// Hogwild threads of an Executor or PreparedProgram: each runs whole batches, and all use the
  /// same variables. No update is lost, but a variable may change between two ops of a batch, so
  /// results depend on the timing. The threads of the executor are divided among them.
  /// kUnimplemented above 1 for others, for programs with loops or branches, and with a GPU or
  /// inter_op.
  int threads = 1;
};

/// Result of an epoch.
struct EpochResult {
  int64_t batches = 0;      ///< number of batches that were run
  int64_t examples = 0;     ///< number of examples in these batches
  int64_t left_out = 0;     ///< examples of batches that were not full, with `drop_last`
  double seconds = 0;       ///< of the whole epoch, wall-clock time
  double wait_seconds = 0;  ///< in which no example was available
  /// Means of the fetches that were one float number in every batch. A batch counts as often as it
  /// has examples.
  std::map<std::string, double> means;
  Arrays last;  ///< the fetches of the last batch
};

/// A set of examples in files. The functions train_from_dataset() and infer_from_dataset() of
/// executors and trainers run a program over it.
///
///   MILLRACE_ASSIGN_OR_RETURN(Dataset data,
///       Dataset::create(*main, {.files = {"part-*"}, .use_vars = {"x", "y"}, .in_memory = true}));
///   MILLRACE_RETURN_IF_ERROR(data.load_into_memory());
///   MILLRACE_RETURN_IF_ERROR(data.local_shuffle());
///   MILLRACE_ASSIGN_OR_RETURN(const EpochResult epoch,
///       executor.train_from_dataset(*main, scope, data, {.fetches = {"loss"}}));
///
/// Calls that come from a callback of an epoch over the same data set return kInvalidArgument.
/// Movable, except in such a callback. Thread-safety: one call at a time.
class Dataset {
 public:
  /// Finds the files. Examples are not read yet, except to count the values of slots that have a
  /// min_count.
  /// \param program  declares the vars that slots feed; needed during the call only
  /// Errors: kInvalidArgument naming the option, and for a var of use_vars that the program does
  /// not have; kInvalidData for the description; kNotFound for a pattern without files; kUsage for
  /// a file that is listed twice, and for a pipe_command of a description that is not allowed.
  static StatusOr<Dataset> create(const Program& program, const DatasetOptions& options);
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  ~Dataset();

  /// Replaces the list of files; examples in memory are dropped. Errors: as create(), and then
  /// nothing changes.
  Status set_files(const std::vector<std::string>& files);
  /// The same for streams. Errors: also kInvalidArgument if the examples are not in Arrow form.
  Status set_arrow(const std::vector<ArrowSource>& sources);
  /// Vars that the examples feed, in the order of a line.
  [[nodiscard]] std::vector<std::string> fed_vars() const;

  /// In memory: reads the examples of this trainer, in place of those in memory.
  /// Errors: kUnimplemented for a data set that is not in memory; kInvalidData with file, line and
  /// slot, and for files without examples; kIo; kResource. The memory is then empty.
  Status load_into_memory();
  /// The same in a thread. Until wait_preload() all other calls return kInvalidArgument.
  Status preload();
  /// Waits for preload(), and returns its errors. Errors: kInvalidArgument without preload().
  Status wait_preload();
  /// Drops the examples in memory.
  Status release_memory();
  /// Number of examples in memory; 0 while preload() reads.
  [[nodiscard]] int64_t examples_in_memory() const;

  /// Shuffles the examples in memory. The order depends on the seed and the number of calls since
  /// they were loaded: a call before each epoch gives the batches of `run-program --dataset
  /// memory`. Errors: kUnimplemented for a data set that is not in memory; kInvalidArgument before
  /// load_into_memory().
  Status local_shuffle();
  /// Shuffles the examples of all trainers. With one trainer this is local_shuffle(). With several,
  /// the data set must have `divide` kExamples, so that each trainer already has a random share of
  /// the lines; with `reshuffle_epochs` it gets another one. A call before each epoch gives the
  /// batches of `run-program --dataset memory --divide examples`.
  /// Errors: those of local_shuffle(), with `reshuffle_epochs` of load_into_memory();
  /// kUnimplemented for trainers that have read files of their own: they need the call below.
  /// \param trainers  of the job, at least 1
  Status global_shuffle(int trainers = 1);
  /// Shuffles the examples of all ranks, of which each has loaded files of its own: rows are
  /// exchanged through the group. Each example is then on exactly one rank, and the numbers of
  /// examples differ by at most one. All ranks must call it equally often since they have loaded,
  /// with the same seed and slots; which rank gets which row depends on the seed, the number of the
  /// call and the files only. Needs memory for twice the examples of a rank. \param ranks  all of
  /// them call it; one rank alone shuffles its own examples
  /// Errors: those of local_shuffle(), reported to all ranks; kInvalidArgument for
  /// `reshuffle_epochs` and ranks that differ; kDistributed naming a rank that is lost.
  Status global_shuffle(const Ranks& ranks);

 private:
  friend struct Internals;
  struct Parts;
  explicit Dataset(std::unique_ptr<Parts> parts);
  PartsPtr<Parts> parts_;
};

}  // namespace millrace::api
