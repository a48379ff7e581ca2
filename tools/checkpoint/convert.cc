#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/save.h"
#include "io/checkpoint/tensor_file.h"
#include "io/npz.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/source.h"
#include "tools/checkpoint/write_params.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

// Reads values one after another and says so to the progress bar.
class Reader {
 public:
  Reader(const TensorSource& source, ByteProgress& progress)
      : source_(source), progress_(progress) {}
  [[nodiscard]] StatusOr<Value> operator()(const std::string& name) const {
    StatusOr<Value> value = source_.load(name);
    if (!value.ok()) return value;
    const auto* const rows = value->get_if<SelectedRows>();
    const auto* const tensor = rows == nullptr ? value->get_if<Tensor>() : &rows->value;
    if (tensor != nullptr) progress_.add(static_cast<uint64_t>(tensor->bytes()));
    return value;
  }

 private:
  const TensorSource& source_;
  ByteProgress& progress_;
};

using Names = std::vector<std::string>;

StatusOr<std::map<std::string, Value>> load_all(const Names& names, const Reader& read) {
  std::map<std::string, Value> values;
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(values[name], read(name));
  }
  return values;
}

Status to_safetensors(const std::string& path, const Names& names, const Reader& read,
                      const TensorSource& source, Replace replace) {
  std::vector<io::TensorFileEntry> entries;
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const Value value, source.load(name));
    MILLRACE_ASSIGN_OR_RETURN(io::TensorFileEntry entry, io::tensor_file_entry(name, value));
    entries.push_back(std::move(entry));
  }
  return io::write_tensor_file(path, entries, read, replace);
}

Status to_npz(Tool& tool, const Names& names, const Reader& read) {
  MILLRACE_ASSIGN_OR_RETURN(const auto values, load_all(names, read));
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(values));
  return tool.write_output(bytes);
}

Status to_checkpoint(const CheckpointFlags& flags, const std::string& folder, const Names& names,
                     const Reader& read, Replace replace) {
  MILLRACE_ASSIGN_OR_RETURN(const auto values, load_all(names, read));
  io::LocalState state;
  for (const auto& [name, value] : values) state.add(name, value);
  io::CheckpointSaveOptions options;
  options.replace = replace;
  options.sync = flags.sync;
  options.step = std::max<int64_t>(flags.step, 0);
  return io::save_state_dict(state, folder, options);
}

// Files that must not be there without --force.
Names outputs_of(const CheckpointFlags& flags, const std::string& output, const Names& names) {
  if (flags.to == "checkpoint") return {output + "/" + std::string(io::kManifestName)};
  if (flags.to != "fluid-separate") return {output};
  Names paths;
  for (const std::string& name : names) paths.push_back(output + "/" + name);
  return paths;
}

Status write(Tool& tool, const CheckpointFlags& flags, const Names& names,
             const TensorSource& source) {
  const std::string& output = tool.common().output;
  ByteProgress progress(
      tool.common().quiet ? ProgressMode::kNever : progress_mode(flags.progress).value(), "convert",
      source.bytes());
  const Reader read(source, progress);
  const Replace replace = tool.common().force ? Replace::kYes : Replace::kNo;
  if (flags.to == "safetensors") return to_safetensors(output, names, read, source, replace);
  if (flags.to == "npz") return to_npz(tool, names, read);
  if (flags.to == "fluid-combined") return write_combined(output, names, read, replace, flags.sync);
  if (flags.to == "fluid-separate") return write_separate(output, names, read, replace, flags.sync);
  return to_checkpoint(flags, output, names, read, replace);
}

}  // namespace

StatusOr<int> checkpoint_convert(Tool& tool, const CheckpointFlags& flags) {
  const std::string& output = tool.common().output;
  if (flags.to.empty())
    return Status(StatusCode::kUsage, "convert: --to says which form is written");
  if (output.empty()) return Status(StatusCode::kUsage, "convert: -o says where");
  if (output == "-" && tool.common().json)
    return Status(StatusCode::kUsage, "convert: --json and -o - both want stdout");
  MILLRACE_ASSIGN_OR_RETURN(const auto source, open_source(tool, flags, flags.paths[0]));
  Names names = source->names();
  if (const auto wanted = name_globs(flags.vars))
    std::erase_if(names, [&](const std::string& name) { return !wanted(name); });
  if (names.empty()) return NotFound("no var to convert").in_file(flags.paths[0]);
  const WriteReport report{"convert", source->form(), flags.to, names.size(), source->bytes(), {}};
  if (flags.dry_run) {
    MILLRACE_RETURN_IF_ERROR(check_writable(tool, outputs_of(flags, output, names)));
    MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
    return kDone;
  }
  MILLRACE_RETURN_IF_ERROR(write(tool, flags, names, *source));
  MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
  return kDone;
}

}  // namespace millrace::tools
