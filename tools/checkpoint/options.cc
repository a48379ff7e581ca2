#include "tools/checkpoint/options.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/checkpoint/stoppable_calls.h"
#include "tools/common/numbers.h"

namespace millrace::tools {
namespace {

struct Command {
  std::string_view name;
  size_t least;
  size_t most;
  const char* usage;
  StatusOr<int> (*run)(Tool&, const CheckpointFlags&);
};

constexpr std::array<Command, 8> kCommands = {{
    {"list", 1, 1, "list DIR", checkpoint_list},
    {"show", 1, 2, "show PATH [TENSOR]", checkpoint_show},
    {"verify", 1, 64, "verify PATH...", checkpoint_verify},
    {"reshard", 1, 1, "reshard DIR --pservers LIST -o OUT", checkpoint_reshard},
    {"convert", 1, 1, "convert PATH --to FORM -o OUT", checkpoint_convert},
    {"export", 1, 64, "export PATH... --model-dir DIR -o OUT", checkpoint_export},
    {"diff", 2, 2, "diff A B", checkpoint_diff},
    {"gc", 1, 1, "gc DIR --keep N", checkpoint_gc},
}};

// Options that some commands only read, and these commands.
struct CommandUse {
  const char* flag;
  std::string_view commands;
};

constexpr CommandUse kCommandUses[] = {
    {"--from", "show convert export diff"},
    {"--program", "show verify convert export diff"},
    {"--slices", "show reshard convert export diff"},
    {"--unique-id", "convert"},
    {"--step", "show verify reshard convert export diff"},
    {"--last-good", "show reshard convert export diff"},
    {"--vars", "show convert diff"},
    {"--to", "convert"},
    {"--model-dir", "export"},
    {"--params-filename", "export"},
    {"--pservers", "reshard"},
    {"--ranks", "reshard"},
    {"--to-slices", "reshard"},
    {"--axis", "reshard"},
    {"--cut-whole", "reshard"},
    {"--rows", "reshard"},
    {"--max-memory", "reshard"},
    {"--no-sync", "reshard convert export"},
    {"--dry-run", "reshard convert export gc"},
    {"--rtol", "diff"},
    {"--atol", "diff"},
    {"--keep", "gc"},
    {"--kill-point", "reshard"},
    {"--all-incomplete", "gc"},
};

// An option that selects what is written or removed must not be ignored.
Status check_command_uses(const Tool& tool, llvm::StringRef command) {
  for (const CommandUse& use : kCommandUses) {
    if (!tool.given(use.flag)) continue;
    llvm::SmallVector<llvm::StringRef, 8> readers;
    llvm::StringRef(use.commands).split(readers, ' ');
    if (llvm::is_contained(readers, command)) continue;
    return {StatusCode::kUsage, fmt::format("{}: {} does not read it, only {}", use.flag,
                                            command.str(), fmt::join(readers, ", "))};
  }
  return Ok();
}

void add_source_options(CLI::App& app, CheckpointFlags& flags) {
  app.option_defaults()->group("Input");
  app.add_option("--step", flags.source.step,
                 "step to use from a folder of checkpoints; default: the newest complete one")
      ->type_name("N")
      ->default_str("")
      ->check(whole_number<int64_t>(0));
  app.add_flag("--last-good", flags.source.last_good,
               "use the newest checkpoint that verifies, and log which one");
  app.add_option("--from", flags.from, "form of the input")
      ->type_name("FORM")
      ->check(CLI::IsMember({"auto", "checkpoint", "safetensors", "npz", "fluid-combined",
                             "fluid-separate", "original"})
                  .description(""));
  app.add_option("--beside", flags.source.beside,
                 "folder on another disk with files of the same checkpoint, or checkpoints, as the "
                 "first path; may be repeated")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.add_option("--program", flags.source.program,
                 "program that declares the variables of the input")
      ->type_name("FILE");
  app.add_option("--slices", flags.source.slices,
                 "slices.json of a job: PATH has snapshots of its servers, which are joined; "
                 "reshard: or the "
                 "folder of a fleet job")
      ->type_name("FILE");
  app.add_option("--vars", flags.vars,
                 "only variables whose names match these globs (* and ?), comma-separated")
      ->type_name("GLOB,...");
  app.add_option("--unique-id", flags.source.unique_id,
                 "unique id of the save to read from a checkpoint of the original")
      ->type_name("N")
      ->default_str("")
      ->check(whole_number<int64_t>(0));
}

void add_output_options(CLI::App& app, CheckpointFlags& flags) {
  app.option_defaults()->group("Output");
  app.add_option("--to", flags.to, "form of the output")
      ->type_name("FORM")
      ->check(
          CLI::IsMember({"checkpoint", "safetensors", "npz", "fluid-combined", "fluid-separate"})
              .description(""));
  app.add_option("--model-dir", flags.model_dir, "export: folder of the inference program")
      ->type_name("DIR");
  app.add_option("--params-filename", flags.params_filename,
                 "export: write one combined file of this name; default: one file per variable")
      ->type_name("NAME");
  app.add_option("--pservers", flags.pservers,
                 "reshard: endpoints of the new servers, comma-separated")
      ->type_name("LIST");
  app.add_option("--ranks", flags.ranks, "reshard: number of ranks, instead of --pservers")
      ->type_name("N")
      ->default_str("")
      ->check(whole_number(0, 65536));
  app.add_option(
         "--to-slices", flags.to_slices,
         "reshard: slices.json of the job that will load the new snapshots, or the folder of a "
         "fleet job")
      ->type_name("FILE");
  app.add_option("--axis", flags.axis, "reshard: axis along which tensors are split")
      ->type_name("N")
      ->check(whole_number(0, 15));
  app.add_flag("--cut-whole", flags.split_whole,
               "reshard: also split tensors that were stored whole");
  app.add_option("--rows", flags.rows,
                 "reshard: assign table rows by remainder or in contiguous ranges (neighbours)")
      ->type_name("HOW")
      ->check(CLI::IsMember({"remainder", "neighbours"}).description(""));
  app.add_option("--max-memory", flags.max_memory,
                 "reshard: bytes of tensor data held in memory at a time")
      ->type_name("BYTES")
      ->check(whole_number(int64_t{1}, int64_t{1} << 50U));
  app.add_flag("!--no-sync", flags.sync, "do not wait until the data is on disk");
  app.add_flag("--dry-run", flags.dry_run, "only report what would be written (gc: removed)");
}

}  // namespace

void add_checkpoint_options(Tool& tool, CheckpointFlags& flags) {
  CLI::App& app = tool.app();
  app.add_option("COMMAND", flags.command,
                 "list, show, verify, reshard, convert, export, diff or gc")
      ->required()
      ->group("Arguments");
  app.add_option("PATHS", flags.paths, "files and folders")->group("Arguments");
  add_source_options(app, flags);
  add_output_options(app, flags);
  app.option_defaults()->group("diff and gc");
  app.add_option("--rtol", flags.rtol, "diff: relative tolerance")
      ->type_name("X")
      ->check(real_number(0));
  app.add_option("--atol", flags.atol, "diff: absolute tolerance")
      ->type_name("X")
      ->check(real_number(0));
  app.add_option("--keep", flags.keep, "gc: number of complete checkpoints to keep")
      ->type_name("N")
      ->check(whole_number(1));
  app.add_flag("--all-incomplete", flags.all_incomplete,
               "gc: also remove incomplete checkpoints newer than the newest complete one; only "
               "while no job writes there");
  app.option_defaults()->group("Options");
  tool.rare(app.add_option("--progress", flags.progress, "auto, never or json")
                ->type_name("HOW")
                ->check(CLI::IsMember({"auto", "never", "json"}).description("")));
  tool.rare(app.add_option("--kill-point", flags.kill_point,
                           "for tests of reshard: the process kills itself when it reaches this "
                           "point for the COUNT-th time")
                ->type_name("NAME[:COUNT]"));
}

StatusOr<std::shared_ptr<ps::KillPoint>> kill_point_of(const CheckpointFlags& flags) {
  if (flags.kill_point.empty()) return std::shared_ptr<ps::KillPoint>();
  return ps::KillPoint::parse(flags.kill_point);
}

void finish_flags(const Tool& tool, const std::atomic<bool>& stop, CheckpointFlags& flags) {
  jobs::SourceOptions& source = flags.source;
  source.from = jobs::values_form(flags.from).value_or(jobs::ValuesForm::kAuto);
  source.allow_original = flags.command == "convert";
  if (!flags.paths.empty()) source.root = flags.paths[0];
  source.threads = tool.common().threads;
  source.max_program_bytes = tool.common().max_model_bytes;
  source.calls = io::stoppable(io::system_file_calls(), stop);
  source.proceed = [&stop] { return stop ? io::stopped_error() : Ok(); };
  source.log = tool.log_sink();
}

StatusOr<int> run_checkpoint(Tool& tool, const CheckpointFlags& flags) {
  const auto* const command = std::ranges::find(kCommands, flags.command, &Command::name);
  if (command == kCommands.end()) {
    std::vector<std::string_view> names;
    names.reserve(kCommands.size());
    for (const Command& each : kCommands) names.push_back(each.name);
    const std::string nearest = nearest_name(flags.command, names);
    Status status(StatusCode::kUsage, fmt::format("unknown command {}", in_quotes(flags.command)));
    return nearest.empty()
               ? std::move(status).with_hint("see checkpoint --help")
               : std::move(status).with_hint(fmt::format("did you mean '{}'?", nearest));
  }
  if (flags.paths.size() < command->least || flags.paths.size() > command->most) {
    return Status(StatusCode::kUsage, fmt::format("expected checkpoint {}, found {} paths",
                                                  command->usage, flags.paths.size()));
  }
  MILLRACE_RETURN_IF_ERROR(check_command_uses(tool, flags.command));
  if (flags.source.last_good && flags.source.step >= 0)
    return Status(StatusCode::kUsage, "--last-good and --step: expected only one of them");
  if (!flags.source.beside.empty() && flags.command == "gc")
    return Status(StatusCode::kUsage, "--beside: gc does not accept it; run gc once per disk");
  return command->run(tool, flags);
}

}  // namespace millrace::tools
