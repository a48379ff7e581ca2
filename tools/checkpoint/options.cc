#include "tools/checkpoint/options.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "io/checkpoint/stoppable_calls.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

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

void add_source_options(CLI::App& app, CheckpointFlags& flags) {
  app.option_defaults()->group("Input");
  app.add_option("--step", flags.step,
                 "step to use from a folder of checkpoints; default: the newest complete one")
      ->type_name("N")
      ->default_str("");
  app.add_flag("--last-good", flags.last_good,
               "use the newest checkpoint that verifies, and log which one");
  app.add_option("--from", flags.from, "form of the input")
      ->type_name("FORM")
      ->check(CLI::IsMember({"auto", "checkpoint", "safetensors", "npz", "fluid-combined",
                             "fluid-separate", "original"})
                  .description(""));
  app.add_option("--beside", flags.beside,
                 "folder on another disk with files of the same checkpoint, or checkpoints, as the "
                 "first path; may be repeated")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.add_option("--program", flags.program, "program that declares the variables of the input")
      ->type_name("FILE");
  app.add_option("--slices", flags.slices,
                 "slices.json of a job: PATH has snapshots of its servers, which are joined")
      ->type_name("FILE");
  app.add_option("--vars", flags.vars,
                 "only variables whose names match these globs (* and ?), comma-separated")
      ->type_name("GLOB,...");
  app.add_option("--unique-id", flags.unique_id,
                 "unique id of the save to read from a checkpoint of the original")
      ->type_name("N")
      ->default_str("");
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
      ->check(CLI::Range(0, 65536).description(""));
  app.add_option("--to-slices", flags.to_slices,
                 "reshard: slices.json of the job that will load the new snapshots")
      ->type_name("FILE");
  app.add_option("--axis", flags.axis, "reshard: axis along which tensors are split")
      ->type_name("N")
      ->check(CLI::Range(0, 15).description(""));
  app.add_flag("--cut-whole", flags.cut_whole,
               "reshard: also split tensors that were stored whole");
  app.add_option("--rows", flags.rows,
                 "reshard: assign table rows by remainder or in contiguous ranges (neighbours)")
      ->type_name("HOW")
      ->check(CLI::IsMember({"remainder", "neighbours"}).description(""));
  app.add_option("--max-memory", flags.max_memory,
                 "reshard: bytes of tensor data held in memory at a time")
      ->type_name("BYTES")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50U).description(""));
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
      ->check(CLI::NonNegativeNumber.description(""));
  app.add_option("--atol", flags.atol, "diff: absolute tolerance")
      ->type_name("X")
      ->check(CLI::NonNegativeNumber.description(""));
  app.add_option("--keep", flags.keep, "gc: number of complete checkpoints to keep")
      ->type_name("N");
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

Status check_stopped(const CheckpointFlags& flags) {
  return flags.stop != nullptr && *flags.stop ? io::stopped_error() : Ok();
}

std::vector<std::string> beside_of(const CheckpointFlags& flags, const std::string& path) {
  llvm::StringRef rest(path);
  const bool is_first = !flags.paths.empty() && rest.consume_front(flags.paths[0]);
  const bool inside = rest.empty() || rest.front() == '/' || flags.paths[0].back() == '/';
  return is_first && inside ? flags.beside : std::vector<std::string>();
}

io::CheckpointLoadOptions load_options(const Tool& tool, const CheckpointFlags& flags,
                                       const std::string& path) {
  return {.threads = tool.common().threads, .calls = flags.calls, .beside = beside_of(flags, path)};
}

bool has_manifest(const CheckpointFlags& flags, const std::string& path) {
  std::vector<std::string> folders = beside_of(flags, path);
  folders.push_back(path);
  return std::ranges::any_of(folders, [](const std::string& folder) {
    std::error_code error;
    return fs::exists(folder + "/" + std::string(io::kManifestName), error);
  });
}

StatusOr<std::vector<io::CheckpointEntry>> list_steps(const CheckpointFlags& flags,
                                                      const std::string& path) {
  return io::list_checkpoints(path, nullptr, beside_of(flags, path));
}

jobs::SnapshotOptions snapshot_options(const Tool& tool) {
  return {tool.common().threads, tool.common().max_model_bytes, tool.log_sink()};
}

StatusOr<int> run_checkpoint(Tool& tool, const CheckpointFlags& flags) {
  const auto* const command = std::ranges::find(kCommands, flags.command, &Command::name);
  if (command == kCommands.end()) {
    std::vector<std::string_view> names;
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
  if (!flags.beside.empty() && flags.command == "gc")
    return Status(StatusCode::kUsage, "--beside: gc does not accept it; run gc once per disk");
  return command->run(tool, flags);
}

StatusOr<std::string> resolve_checkpoint(const Tool& tool, const CheckpointFlags& flags,
                                         const std::string& path) {
  std::error_code error;
  if (has_manifest(flags, path)) return path;
  if (!fs::is_directory(path, error)) return NotFound("no such folder").in_file(path);
  if (flags.last_good) {
    MILLRACE_ASSIGN_OR_RETURN(
        const io::LastCheckpoint last,
        io::open_last_checkpoint(path, true, load_options(tool, flags, path)));
    for (const Status& status : last.skipped)
      tool.log(LogLevel::kWarning,
               "skipped: " + status.location().to_string() + ": " + status.message());
    tool.log(LogLevel::kInfo, "reads " + last.checkpoint.folder());
    return last.checkpoint.folder();
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto entries, list_steps(flags, path));
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const bool wanted = flags.step < 0 ? entry->complete : entry->step == flags.step;
    if (wanted) return entry->folder;
  }
  if (flags.step >= 0) return NotFound("no checkpoint of step {}", flags.step).in_file(path);
  return NotFound("no checkpoint: there is no {} and no complete step-<n>", io::kManifestName)
      .in_file(path);
}

}  // namespace millrace::tools
