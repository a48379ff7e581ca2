#include "tools/run/options.h"

#include <algorithm>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "kernels/cpu/cpu_isa.h"
#include "tools/common/numbers.h"
#include "tools/common/switch.h"
#include "tools/run/check_gradients.h"

namespace millrace::tools {
namespace {

void add_parallel_options(CLI::App& app, ParallelFlags& flags) {
  app.option_defaults()->group("Several devices");
  app.add_option("--loss", flags.loss,
                 "loss of a training program; default: the var whose gradient the program seeds")
      ->type_name("VAR");
  app.add_option(
         "--reduce-strategy", flags.reduce_strategy,
         "allreduce: every device updates all parameters; reduce: each device updates a share")
      ->type_name("WORD");
  app.add_option("--gradient-scale", flags.gradient_scale,
                 "coeff_num_device, one, customized, or weighted (by rows)")
      ->type_name("WORD");
  app.add_option("--customized-loss-grad", flags.customized_loss_grad,
                 "gradient of the loss that is fed")
      ->type_name("VAR");
  app.add_option("--split", flags.split, "rows per device: floor or ceil of the mean")
      ->type_name("WORD");
  app.add_option("--rows-per-device", flags.rows_per_device, "rows of each device: 2,1")
      ->type_name("N,...")
      ->delimiter(',');
  app.add_option(
         "--feed-mode", flags.feed_mode,
         "split: feeds are split over the devices; list: members devD/<var> for each device")
      ->type_name("WORD");
  add_switch(app, "--merge-fetches", flags.merge_fetches,
             "concatenate the results of the devices; otherwise members devD/<var>");
  app.add_option("--persistables-of", flags.persistables_of,
                 "what --save-persistables writes: first, or all as devD/<var>")
      ->type_name("WORD");
  add_switch(app, "--sync-batch-norm", flags.sync_batch_norm,
             "batch norm statistics over the batches of all devices");
  app.add_option("--micro-batches", flags.micro_batches,
                 "number of micro-batches per device whose gradients are summed before one update")
      ->check(whole_number(1, 1 << 20));
  app.add_option("--bucket-bytes", flags.bucket_bytes,
                 "bytes of gradients per exchange; 0: one gradient per exchange")
      ->default_str("1 MiB, 4 MiB between processes")
      ->check(whole_number(int64_t{0}, int64_t{1} << 40));
  app.add_option("--build-strategy", flags.build_strategy,
                 "a field of the BuildStrategy, docs/processes.md; may be repeated")
      ->type_name("FIELD=VALUE");
  app.add_option("--exec-strategy", flags.exec_strategy,
                 "a field of the ExecutionStrategy, likewise")
      ->type_name("FIELD=VALUE");
  app.add_option("--share-vars-program", flags.share_vars_program,
                 "program that runs once afterwards with the variables of this run")
      ->type_name("FILE");
  app.add_option("--share-vars-feed", flags.share_vars_feed, "its feeds, npz")->type_name("FILE");
  app.add_option("--share-vars-fetch", flags.share_vars_fetch, "vars it returns")
      ->type_name("VAR,...")
      ->delimiter(',');
  app.add_option("--share-vars-output", flags.share_vars_output, "npz file for these vars")
      ->type_name("FILE");
}

void add_program_options(CLI::App& app, RunOptions& options) {
  app.option_defaults()->group("Program");
  app.add_option("--program", options.program, "program file")->type_name("FILE");
  app.add_option("--startup", options.startup, "startup program, run once before")
      ->type_name("FILE");
  app.add_option("--params", options.params,
                 "parameters: npz, combined file, or folder with one file per var")
      ->type_name("PATH");
  app.add_option("--model-dir", options.model_dir, "inference model folder")->type_name("DIR");
  app.add_option("--params-filename", options.params_filename, "combined file in --model-dir")
      ->type_name("NAME");
  app.add_option("--batch", options.batch,
                 "run every line {\"program\", \"feed\", \"fetch\", \"output\"} of this file")
      ->type_name("LIST.jsonl");
}

void add_data_options(CLI::App& app, RunOptions& options) {
  app.option_defaults()->group("Data");
  app.add_option("--feed", options.feeds,
                 "in.npz, x=x.npy, or generated: x=zeros, x=random:SEED, x=8x13xf32=random:7; may "
                 "be repeated, x=... replaces x of a file")
      ->type_name("FILE");
  app.add_option("--lod", options.lods, "LoD offsets of a feed, one option per level: x=0,2,5")
      ->type_name("VAR=OFFSETS");
  app.add_option("--feed-steps", options.feed_steps, "npz with members stepK/<var>")
      ->type_name("FILE");
  app.add_option("--data", options.data, "examples to train on, csv or npz; see --epochs")
      ->type_name("FILE");
  app.add_option("--columns", options.columns, "vars of a csv file: x=0:12,y=13")
      ->type_name("VAR=COLUMNS,...");
  app.add_option("--files", options.files,
                 "examples to train on: MultiSlot or delimited text, plain, gzip or zstd; patterns "
                 "like 'part-*', - is standard input")
      ->type_name("PATTERN,...")
      ->delimiter(',');
  app.add_option("--slots", options.slots,
                 "fields of a line of --files: {\"slots\": [{\"name\", \"type\", "
                 "\"is_dense\", \"shape\"}, ...]}, or a list of names; docs/data_files.md")
      ->type_name("FILE.json");
  add_switch(app, "--allow-pipe-command", options.allow_pipe_command,
             "run the pipe_command of --slots, a shell command that each file is sent through");
  app.add_option("--dataset", options.dataset,
                 "queue: read --files while training; memory: read them before training, so that "
                 "--shuffle can shuffle them")
      ->check(CLI::IsMember({"queue", "memory"}).description(""))
      ->type_name("queue|memory");
  app.add_option("--reader-threads", options.reader_threads, "threads that read --files")
      ->default_str("1, or thread_num of --slots")
      ->check(whole_number(1, 256))
      ->type_name("R");
  app.add_option("--worker-threads", options.worker_threads,
                 "threads that run steps at the same time: of an asynchronous trainer, or of a run "
                 "on one device, where they update the same parameters; docs/data_files.md")
      ->check(whole_number(1, 256))
      ->type_name("T");
  app.add_option("--batch-size", options.batch_size, "examples per step of --data and --files")
      ->default_str("64, or that of --slots")
      ->check(whole_number(int64_t{1}, int64_t{1} << 40));
  app.add_option("--epochs", options.epochs, "number of passes over --data or --files")
      ->check(whole_number(int64_t{1}, int64_t{1} << 40));
  add_switch(app, "--shuffle", options.shuffle, "shuffle the examples in every epoch");
  add_switch(app, "--drop-last", options.drop_last,
             "leave out batches with fewer examples than --batch-size");
  app.add_option("--divide", options.divide,
                 "how trainers divide --data and --files, the same ones for all: none: each reads "
                 "all; files: each reads some files; examples: each a random share of the lines")
      ->check(CLI::IsMember({"none", "files", "examples"}).description(""))
      ->type_name("none|files|examples");
  add_switch(app, "--reshuffle-epochs", options.reshuffle_epochs,
             "with --divide examples: other shares in every epoch");
  app.add_option("--trainers", options.trainers, "number of trainers of the job, for --divide")
      ->default_str("that of the launcher, or of a fleet job")
      ->check(whole_number(1, 1 << 20))
      ->type_name("N");
}

void add_step_options(CLI::App& app, RunOptions& options) {
  app.add_option("--fetch", options.fetches,
                 "vars to return; default: the fetch targets of the program")
      ->type_name("VAR,...")
      ->delimiter(',');
  app.add_option("--steps", options.steps, "number of runs of the program")
      ->check(whole_number(int64_t{1}, int64_t{1} << 40));
  app.add_option("--max-steps", options.max_steps, "maximum number of steps")
      ->type_name("N")
      ->default_str("")
      ->check(whole_number(int64_t{1}, int64_t{1} << 40));
}

void add_dump_options(CLI::App& app, RunOptions& options) {
  app.add_option("--print-period", options.print_period, "log the fetches every N steps; 0: never")
      ->type_name("N")
      ->check(whole_number<int64_t>(0));
  app.add_option("--dump-fields", options.dump.fields,
                 "vars with a row or sequence per example that are written in every step, a line "
                 "per example; docs/data_files.md")
      ->type_name("VAR,...")
      ->delimiter(',');
  app.add_option("--dump-params", options.dump.params, "vars that are written whole, likewise")
      ->type_name("VAR,...")
      ->delimiter(',');
  app.add_option("--dump-dir", options.dump.folder, "folder for them, a file per trainer or rank")
      ->type_name("DIR");
  app.add_option("--dump-interval", options.dump.interval, "write only every N-th step")
      ->type_name("N")
      ->check(whole_number(int64_t{1}, int64_t{1} << 40));
}

void add_saving_options(CLI::App& app, RunOptions& options) {
  app.add_option("--save-persistables", options.save_persistables,
                 "npz with all persistable vars after the last step")
      ->type_name("FILE");
  app.add_option("--save-params", options.save_params,
                 "persistable vars in the original's format: a folder (one file per var) or a file")
      ->type_name("PATH");
  app.add_option(
         "--save-programs", options.save_programs,
         "programs that trainer 0 runs at the end to save the vars of the servers (io_save0, "
         "io_save1), instead of the generated ones")
      ->type_name("FILE,...")
      ->delimiter(',');
  app.add_option("--save-model", options.save_model,
                 "inference model of the vars in --model-fetches after the last step")
      ->type_name("DIR");
  app.add_option("--model-feeds", options.model_feeds, "input vars of the model")
      ->type_name("VAR,...")
      ->delimiter(',');
  app.add_option("--model-fetches", options.model_fetches, "output vars of the model")
      ->type_name("VAR,...")
      ->delimiter(',');
  app.add_option("--model-program", options.model_program,
                 "program from which the model is taken; required for a transpiled job: the "
                 "program before transpilation")
      ->type_name("FILE");
}

void add_run_checkpoint_options(CLI::App& app, RunOptions& options) {
  app.option_defaults()->group("Checkpoints");
  app.add_option("--save-every", options.save_every, "steps between checkpoints")
      ->type_name("N")
      ->default_str("")
      ->check(whole_number<int64_t>(0));
  app.add_option("--checkpoint-dir", options.checkpoint_dir, "folder of the checkpoints")
      ->type_name("DIR");
  app.add_option("--keep-last", options.keep_last, "number of checkpoints to keep; 0: all")
      ->type_name("N")
      ->check(whole_number(0));
  app.add_option("--resume", options.resume,
                 "continue from a checkpoint; auto: from the newest intact one in --checkpoint-dir")
      ->type_name("auto|PATH");
  app.add_flag("--fail-on-save-error", options.fail_on_save_error,
               "stop if a checkpoint cannot be saved");
}

void add_run_how_options(CLI::App& app, RunOptions& options) {
  app.option_defaults()->group("Data");
  app.add_option("--curve", options.curve, "plot (SVG) of the first fetch over the steps")
      ->type_name("FILE");
  app.option_defaults()->group("How");
  app.add_option("--progress", options.progress, "auto, never or json")->type_name("MODE");
  app.add_option(
         "--devices", options.devices,
         "cpu:N; cpu: CPU_NUM of the environment, else 1; gpu:N: ops that have a GPU kernel run on "
         "the GPU with this number; gpu:N,M: several GPUs, which split the batches; {rank} is "
         "replaced by the rank of the process")
      ->type_name("DEVICES");
  app.add_option(
         "--precision", options.precision,
         "precision of matrix products: f32; bf16 (CPU) or tf32 (GPU) for rounded factors; f64: "
         "the whole program runs in float64, to check the accuracy of float32 results")
      ->check(CLI::IsMember({"f32", "bf16", "tf32", "f64"}).description(""))
      ->type_name("TYPE");
  add_switch(app, "--optimize", options.optimize,
             "rewrite the program to run faster; results change at most by rounding");
  app.add_option("--cpu-isa", options.cpu_isa,
                 "forbid newer instructions than avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16 "
                 "or amx, to see what an older processor computes and how fast")
      ->check(CLI::IsMember(kernels::cpu_isa_names()).description(""))
      ->default_str("all of the processor")
      ->type_name("NAME");
  add_switch(app, "--inter-op", options.inter_op,
             "with several threads: run independent ops concurrently if that is faster");
  app.add_option("--allow-dir", options.allow_dir, "folder that load and save ops may access")
      ->type_name("DIR");
}

void add_measuring_options(CLI::App& app, RunOptions& options) {
  app.add_option("--benchmark", options.benchmark, "time N steps and print one JSON line")
      ->type_name("N")
      ->check(whole_number<int64_t>(0));
  app.add_option("--warmup", options.warmup, "steps before the timed ones")
      ->type_name("K")
      ->check(whole_number<int64_t>(0));
  app.add_option("--duration", options.duration,
                 "minimum duration of --benchmark in seconds, with more than N steps if necessary")
      ->check(real_number(0.0, 1e6))
      ->type_name("S");
  app.add_option("--profile", options.profile, "write a Chrome trace")->type_name("FILE");
  app.add_flag("--op-profile", options.op_profile, "show the time of each op type");
  app.add_option("--check-against", options.check_against,
                 "compare the fetched vars with an npz, or a single one with an npy; exit 1 if "
                 "they differ")
      ->type_name("FILE");
  app.add_option("--rtol", options.rtol, "relative tolerance of --check-against")
      ->check(real_number(0));
  app.add_option("--atol", options.atol, "absolute tolerance of --check-against")
      ->check(real_number(0));
  app.add_flag("--check-nan", options.check_nan,
               "stop at the first op that writes a NaN or an infinity");
  app.add_flag(
      "--debug-memory", options.debug_memory,
      "fill uninitialized and freed memory with NaN and extreme numbers, and stop at an op "
      "that writes to freed memory");
  app.add_flag(
      "--print-plan", options.print_plan,
      "print the ops in their order and their memory after the last step, instead of the results");
}

}  // namespace

void fill_in_rank(RunOptions& options, int rank, const std::string& output) {
  const auto by_rank = [](const std::string& path) { return path != of_rank(path, 0); };
  options.examples_by_rank =
      by_rank(options.data) || std::any_of(options.files.begin(), options.files.end(), by_rank);
  options.output = output;
  ParallelFlags& parallel = options.parallel;
  for (std::string* const path : {&options.output,
                                  &options.program,
                                  &options.startup,
                                  &options.params,
                                  &options.model_dir,
                                  &options.feed_steps,
                                  &options.data,
                                  &options.slots,
                                  &options.batch,
                                  &options.dump.folder,
                                  &options.curve,
                                  &options.save_persistables,
                                  &options.save_params,
                                  &options.save_model,
                                  &options.model_program,
                                  &options.check_against,
                                  &options.profile,
                                  &options.checkpoint_dir,
                                  &options.resume,
                                  &options.allow_dir,
                                  &parallel.share_vars_program,
                                  &parallel.share_vars_feed,
                                  &parallel.share_vars_output,
                                  &options.ps.stats,
                                  &options.devices})
    *path = of_rank(std::move(*path), rank);
  for (auto* const paths : {&options.feeds, &options.files, &options.save_programs})
    for (std::string& path : *paths) path = of_rank(std::move(path), rank);
}

StatusOr<jobs::FeedOptions> feed_options(const Tool& tool, const RunOptions& options) {
  jobs::FeedOptions feed;
  feed.values = options.feeds;
  feed.lods = options.lods;
  feed.in_float64 = options.precision == "f64";
  feed.steps_file = options.feed_steps;
  feed.steps = options.steps;
  feed.max_steps = options.max_steps;
  feed.data = options.data;
  feed.columns = options.columns;
  feed.files = options.files;
  feed.slots = options.slots;
  feed.allow_pipe_command = options.allow_pipe_command;
  feed.in_memory = options.dataset == "memory";
  feed.reader_threads = options.reader_threads;
  feed.batch_size = options.batch_size;
  feed.epochs = options.epochs;
  feed.shuffle = options.shuffle;
  feed.seed = tool.common().seed;
  feed.drop_last = options.drop_last;
  feed.reshuffle_epochs = options.reshuffle_epochs;
  return feed;
}

Status divide_examples(const Tool& tool, const RunOptions& options, int trainer, int known,
                       jobs::FeedOptions& feed) {
  if (options.divide == "none") {
    if (known > 1 && !options.examples_by_rank && !(feed.files.empty() && feed.data.empty()))
      tool.log(LogLevel::kWarning,
               fmt::format("all {} trainers read the same examples; --divide, or {{rank}} in "
                           "{}, gives each a share",
                           known, feed.files.empty() ? "--data" : "--files"));
    return Ok();
  }
  if (options.examples_by_rank)
    return {StatusCode::kUsage, "--divide: all trainers need the same files, found {rank}"};
  // only trainers read --trainers
  const int stated = options.ps.role.empty() ? 0 : options.trainers;
  if (stated > 0 && known > 0 && stated != known)
    return {StatusCode::kUsage, fmt::format("--trainers: expected {}, found {}", known, stated)};
  const int trainers = known > 0 ? known : stated;
  if (trainers == 0)
    return {StatusCode::kUsage, "--divide: expected --trainers with the number of trainers"};
  feed.divide = options.divide == "files" ? jobs::Divide::kFiles : jobs::Divide::kExamples;
  feed.trainer = trainer;
  feed.trainers = trainers;
  return Ok();
}

jobs::DumpOptions dump_options(const Tool& tool, const RunOptions& options, int trainer) {
  jobs::DumpOptions dump = options.dump;
  dump.trainer = trainer;
  dump.replace = tool.common().force ? Replace::kYes : Replace::kNo;
  return dump;
}

void add_run_options(Tool& tool, RunOptions& options) {
  CLI::App& app = tool.app();
  add_program_options(app, options);
  add_data_options(app, options);
  add_step_options(app, options);
  add_dump_options(app, options);
  add_saving_options(app, options);
  add_run_checkpoint_options(app, options);
  add_run_how_options(app, options);
  add_measuring_options(app, options);
  add_check_gradients_options(app, options.check_gradients);
  add_parallel_options(app, options.parallel);
  add_trainer_flags(tool, options.ps);
  add_job_flags(tool, options.ps);
  add_server_flags(tool, options.ps);
  add_rank_options(app, options.ranks);
  app.option_defaults()->group("Options");
}

}  // namespace millrace::tools
