#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/save_streams.h"
#include "io/npz.h"
#include "io/output_file.h"
#include "io/params_manifest.h"
#include "jobs/checkpoint/write_values.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/source.h"
#include "tools/checkpoint/write_params.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

// Reads values and reports their bytes to the progress bar.
class Reader {
 public:
  Reader(const CheckpointFlags& flags, const jobs::TensorSource& source, ByteProgress& progress)
      : flags_(flags), source_(source), progress_(progress) {}
  [[nodiscard]] StatusOr<Value> operator()(const std::string& name) const {
    MILLRACE_RETURN_IF_ERROR(check_stopped(flags_));
    StatusOr<Value> value = source_.load(name);
    if (value.ok()) progress_.add(io::tensor_bytes(*value));
    return value;
  }
  [[nodiscard]] StatusOr<io::TensorFileEntry> facts(const std::string& name) const {
    MILLRACE_RETURN_IF_ERROR(check_stopped(flags_));
    return source_.facts(name);
  }

 private:
  const CheckpointFlags& flags_;
  const jobs::TensorSource& source_;
  ByteProgress& progress_;
};

using Names = std::vector<std::string>;

StatusOr<std::vector<io::TensorFileEntry>> facts_of_convert(const Names& names,
                                                            const Reader& read) {
  std::vector<io::TensorFileEntry> entries;
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(io::TensorFileEntry entry, read.facts(name));
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Holds one value in memory at a time, also when it writes to stdout.
Status to_npz(Tool& tool, const CheckpointFlags& flags, const Names& names, const Reader& read,
              Replace replace) {
  const std::string& output = tool.common().output;
  std::optional<io::OutputFile> file;
  if (output != "-") {
    MILLRACE_ASSIGN_OR_RETURN(io::OutputFile created, io::OutputFile::create(output, replace));
    file.emplace(std::move(created));
  }
  io::NpzStream stream([&](std::span<const std::string_view> pieces) -> Status {
    MILLRACE_RETURN_IF_ERROR(check_stopped(flags));
    if (file) return file->write(pieces);
    for (const std::string_view piece : pieces)
      MILLRACE_RETURN_IF_ERROR(tool.write_file("-", piece));
    return Ok();
  });
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const Value value, read(name));
    MILLRACE_RETURN_IF_ERROR(stream.add(name, value));
  }
  MILLRACE_RETURN_IF_ERROR(stream.finish());
  return file ? file->commit(flags.sync) : Ok();
}

Status to_checkpoint(const CheckpointFlags& flags, const std::string& folder,
                     const std::vector<io::TensorFileEntry>& entries, const Reader& read,
                     Replace replace) {
  io::CheckpointSaveOptions options;
  options.replace = replace;
  options.sync = flags.sync;
  options.step = std::max<int64_t>(flags.step, 0);
  options.calls = flags.calls;
  return io::save_values(entries, read, folder, options);
}

// Files that must not exist unless --force is given.
Names outputs_of(const CheckpointFlags& flags, const std::string& output, const Names& names) {
  if (flags.to == "checkpoint") return {output + "/" + std::string(io::kManifestName)};
  if (flags.to != "fluid-separate") return {output};
  Names paths;
  for (const std::string& name : names) paths.push_back(output + "/" + name);
  return paths;
}

Status write_convert(Tool& tool, const CheckpointFlags& flags, const Names& names,
                     const jobs::TensorSource& source) {
  const std::string& output = tool.common().output;
  ByteProgress progress = progress_of(tool, flags, "convert", source.bytes());
  const Reader read(flags, source, progress);
  const Replace replace = tool.common().force ? Replace::kYes : Replace::kNo;
  if (flags.to == "npz") return to_npz(tool, flags, names, read, replace);
  if (flags.to == "fluid-combined") {
    MILLRACE_RETURN_IF_ERROR(jobs::write_combined(output, names, read, replace, flags.sync));
    return io::write_file_manifest(output, names, flags.sync);
  }
  if (flags.to == "fluid-separate") {
    MILLRACE_RETURN_IF_ERROR(jobs::write_separate(output, names, read, replace, flags.sync));
    return io::write_folder_manifest(output, names, {}, flags.sync);
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<io::TensorFileEntry> entries,
                            facts_of_convert(names, read));
  if (flags.to == "safetensors") return io::write_tensor_file(output, entries, read, replace);
  return to_checkpoint(flags, output, entries, read, replace);
}

}  // namespace

StatusOr<int> checkpoint_convert(Tool& tool, const CheckpointFlags& flags) {
  const std::string& output = tool.common().output;
  if (flags.to.empty())
    return Status(StatusCode::kUsage, "convert: expected --to with the form of the output");
  if (output.empty())
    return Status(StatusCode::kUsage, "convert: expected -o with the path of the output");
  if (output == "-" && tool.common().json)
    return Status(StatusCode::kUsage, "convert: --json and '-o -' both write to stdout");
  MILLRACE_ASSIGN_OR_RETURN(const auto source, open_source(tool, flags, flags.paths[0]));
  Names names = source->names();
  if (const auto wanted = name_globs(flags.vars))
    std::erase_if(names, [&](const std::string& name) { return !wanted(name); });
  if (names.empty()) return NotFound("no variable to convert").in_file(flags.paths[0]);
  const WriteReport report{"convert", source->form(), flags.to, names.size(), source->bytes(), {}};
  if (flags.dry_run) {
    MILLRACE_RETURN_IF_ERROR(check_writable(tool, outputs_of(flags, output, names)));
    MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
    return kDone;
  }
  MILLRACE_RETURN_IF_ERROR(write_convert(tool, flags, names, *source));
  MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
  return kDone;
}

}  // namespace millrace::tools
