#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jobs/data/feed_options.h"
#include "jobs/data/step_dump.h"
#include "tools/common/tool.h"
#include "tools/ps/flags.h"
#include "tools/run/ranks.h"

namespace millrace::gpu {
class Context;
}

namespace millrace::tools {

/// Options of run-program for several devices.
struct ParallelFlags {
  std::string loss;
  std::string reduce_strategy = "allreduce";
  std::string gradient_scale = "coeff_num_device";
  std::string customized_loss_grad;
  std::string split = "floor";
  std::vector<int64_t> rows_per_device;
  std::string feed_mode = "split";
  bool merge_fetches = true;
  std::string persistables_of = "first";
  std::string share_vars_program;
  std::string share_vars_feed;
  std::vector<std::string> share_vars_fetch;
  std::string share_vars_output;
  bool sync_batch_norm = false;
  int micro_batches = 1;
  std::optional<int64_t> bucket_bytes;
  std::vector<std::string> build_strategy;  ///< each FIELD=VALUE
  std::vector<std::string> exec_strategy;   ///< likewise
};

/// Options of run-program --check-gradients.
struct GradientCheckFlags {
  std::string params;  ///< "a,b"; empty: all
  std::vector<std::string> no_grad;
  std::string dtype = "f64";
  double epsilon = 0;  ///< 0: depends on the type, as for the tolerance
  double tolerance = 0;
  int64_t samples = 6;
};

/// Options of run-program.
struct RunOptions {
  std::string program;
  std::string output;  ///< -o with the rank filled in; empty if it was not given
  std::string startup;
  std::string params;              ///< npz, combined file, or folder with one file per var
  std::string model_dir;           ///< inference model folder
  std::string params_filename;     ///< combined file in model_dir
  std::vector<std::string> feeds;  ///< "in.npz" or "x=x.npy"
  std::vector<std::string> lods;   ///< "x=0,2,5", one entry per level
  std::vector<std::string> fetches;
  std::string feed_steps;
  std::string data;                ///< csv or npz with examples
  std::string columns;             ///< csv: "x=0:12,y=13"
  std::vector<std::string> files;  ///< patterns of MultiSlot or delimited text
  std::string slots;               ///< description of the fields of their lines
  bool allow_pipe_command = false;
  bool reshuffle_epochs = false;
  std::string dataset = "queue";  ///< or memory
  int reader_threads = 0;         ///< 0: from the slots file, else 1
  int worker_threads = 1;
  int64_t batch_size = 0;  ///< 0: from the slots file, else 64
  int64_t epochs = 1;
  bool shuffle = true;
  bool drop_last = false;
  std::string divide = "none";    ///< or files, examples
  int trainers = 0;               ///< 0: not given
  bool examples_by_rank = false;  ///< set by fill_in_rank(): `data` or `files` had {rank}
  int64_t steps = 1;
  int64_t max_steps = 0;     ///< 0: no limit
  int64_t print_period = 0;  ///< steps between logs of the fetches; 0: never
  jobs::DumpOptions dump;    ///< without number and replace
  std::string progress = "auto";
  std::string curve;  ///< SVG of the first fetch over the steps
  std::string save_persistables;
  std::string save_params;
  std::vector<std::string> save_programs;  ///< of a distributed job, instead of the generated ones
  std::string save_model;                  ///< folder for an inference model
  std::string model_program;  ///< program from which it is taken; empty: the program that ran
  std::vector<std::string> model_feeds;
  std::vector<std::string> model_fetches;
  int64_t save_every = 0;  ///< steps between checkpoints; 0: none
  std::string checkpoint_dir;
  int keep_last = 5;
  std::string resume;  ///< "auto", a checkpoint or a folder of them
  bool fail_on_save_error = false;
  std::string batch;
  int64_t benchmark = 0;
  int64_t warmup = 3;
  double duration = 0;        ///< minimum seconds of a benchmark
  bool op_profile = false;    ///< a table of op types and their times
  std::string check_against;  ///< npz or npy with expected results
  double rtol = 1e-5;
  double atol = 1e-8;
  std::string profile;
  bool check_nan = false;
  GradientCheckFlags check_gradients;
  bool print_plan = false;
  bool debug_memory = false;  ///< fill uninitialized memory with NaN
  std::string precision =
      "f32";              ///< of matrix products: f32, bf16 or tf32; f64: of the whole program
  bool optimize = true;   ///< rewrite the program to run faster
  bool inter_op = false;  ///< several threads: independent ops may run concurrently
  std::string cpu_isa;    ///< newest instructions that kernels use; empty: all of the processor
  std::string devices = "cpu";
  /// The GPUs that `devices` names; opened once for all programs.
  std::vector<std::shared_ptr<gpu::Context>> gpus;
  std::string allow_dir;  ///< folder that ops such as load and save may access
  ParallelFlags parallel;
  PsFlags ps;
  RankFlags ranks;
};

/// Replaces "{rank}" in the names of files, folders and devices by the rank, and sets `output`.
/// \param output  -o as it was given
void fill_in_rank(RunOptions& options, int rank, const std::string& output);

/// What the options feed to the steps of a run. Errors: kUnimplemented for --worker-threads in a
/// run without servers.
StatusOr<jobs::FeedOptions> feed_options(const Tool& tool, const RunOptions& options);

/// Sets the share of a trainer as --divide says. Warns if several trainers read the same examples.
/// \param known  number of trainers; 0: known from --trainers only
/// Errors: kUsage for a number of trainers that is missing or wrong, and for files that differ by
/// rank.
Status divide_examples(const Tool& tool, const RunOptions& options, int trainer, int known,
                       jobs::FeedOptions& feed);

/// The dumps of a trainer or rank.
jobs::DumpOptions dump_options(const Tool& tool, const RunOptions& options, int trainer);

/// Adds the options to the tool.
void add_run_options(Tool& tool, RunOptions& options);

}  // namespace millrace::tools
