#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/checkpoint/save.h"
#include "io/checkpoint/tensor_file.h"
#include "io/npz.h"
#include "io/output_file.h"
#include "io/param_header.h"
#include "io/params.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/source.h"
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

// The vars one after another in the order of their names.
Status to_combined(const std::string& path, const Names& names, const Reader& read,
                   Replace replace) {
  MILLRACE_ASSIGN_OR_RETURN(io::OutputFile file, io::OutputFile::create(path, replace));
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const Value value, read(name));
    MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::combined_bytes({{name, &value}}));
    const std::string_view piece = bytes;
    MILLRACE_RETURN_IF_ERROR(file.write({&piece, 1}));
  }
  return file.commit(true);
}

Status to_separate(const std::string& folder, const Names& names, const Reader& read,
                   Replace replace) {
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const Value value, read(name));
    MILLRACE_RETURN_IF_ERROR(
        io::save_separate(folder, {{name, &value}}, {.replace = replace, .sync = false}));
  }
  return Ok();
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

}  // namespace

StatusOr<int> checkpoint_convert(Tool& tool, const CheckpointFlags& flags) {
  const std::string& output = tool.common().output;
  if (flags.to.empty())
    return Status(StatusCode::kUsage, "convert: --to says which form is written");
  if (output.empty()) return Status(StatusCode::kUsage, "convert: -o says where");
  MILLRACE_ASSIGN_OR_RETURN(const auto source, open_source(tool, flags, flags.paths[0]));
  Names names = source->names();
  if (const auto wanted = name_globs(flags.vars))
    std::erase_if(names, [&](const std::string& name) { return !wanted(name); });
  if (names.empty()) return NotFound("no var to convert").in_file(flags.paths[0]);
  ByteProgress progress(
      tool.common().quiet ? ProgressMode::kNever : progress_mode(flags.progress).value(), "convert",
      source->bytes());
  const Reader read(*source, progress);
  const Replace replace = tool.common().force ? Replace::kYes : Replace::kNo;
  Status status;
  if (flags.to == "safetensors") {
    status = to_safetensors(output, names, read, *source, replace);
  } else if (flags.to == "npz") {
    status = to_npz(tool, names, read);
  } else if (flags.to == "fluid-combined") {
    status = to_combined(output, names, read, replace);
  } else if (flags.to == "fluid-separate") {
    status = to_separate(output, names, read, replace);
  } else {
    status = to_checkpoint(flags, output, names, read, replace);
  }
  MILLRACE_RETURN_IF_ERROR(std::move(status));
  tool.log(LogLevel::kInfo,
           fmt::format("{} -> {}, {} vars", source->form(), flags.to, names.size()));
  return kDone;
}

}  // namespace millrace::tools
