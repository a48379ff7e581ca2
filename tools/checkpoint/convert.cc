#include "jobs/checkpoint/convert.h"

#include <algorithm>
#include <span>

#include "framework/base/errors.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/write_params.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace convert_parts {
namespace {

Status write(Tool& tool, const CheckpointFlags& flags, const std::vector<std::string>& names,
             jobs::ValuesForm form, const jobs::TensorSource& source) {
  const std::string& output = tool.common().output;
  ByteProgress progress = progress_of(tool, flags, "convert", source.bytes());
  jobs::WriteOptions options = write_options(tool, flags, progress);
  if (flags.source.step < 0) options.step = std::max<int64_t>(source.step(), 0);
  if (form != jobs::ValuesForm::kNpz || output != "-")
    return jobs::convert_values(source, names, form, output, options);
  const auto to_stdout = [&](std::span<const std::string_view> pieces) -> Status {
    for (const std::string_view piece : pieces)
      MILLRACE_RETURN_IF_ERROR(tool.write_file("-", piece));
    return Ok();
  };
  return jobs::stream_npz(source, names, to_stdout, options);
}

}  // namespace
}  // namespace convert_parts

StatusOr<int> checkpoint_convert(Tool& tool, const CheckpointFlags& flags) {
  const std::string& output = tool.common().output;
  const std::optional<jobs::ValuesForm> form = jobs::values_form(flags.to);
  if (!form)
    return Status(StatusCode::kUsage, "convert: expected --to with the form of the output");
  if (output.empty())
    return Status(StatusCode::kUsage, "convert: expected -o with the path of the output");
  if (output == "-" && tool.common().json)
    return Status(StatusCode::kUsage, "convert: --json and '-o -' both write to stdout");
  MILLRACE_ASSIGN_OR_RETURN(const auto source, jobs::open_source(flags.source, flags.paths[0]));
  jobs::SourceOptions read = flags.source;
  if (*form == jobs::ValuesForm::kCheckpoint) read.step = -1;  // it is that of the new checkpoint
  MILLRACE_RETURN_IF_ERROR(jobs::check_read(read, source->form()));
  std::vector<std::string> names = source->names();
  if (const auto wanted = name_globs(flags.vars))
    std::erase_if(names, [&](const std::string& name) { return !wanted(name); });
  if (names.empty()) return NotFound("no variable to convert").in_file(flags.paths[0]);
  const WriteReport report{"convert", source->form(), flags.to, names.size(), source->bytes(), {}};
  MILLRACE_RETURN_IF_ERROR(flags.dry_run
                               ? check_writable(tool, jobs::converted_files(*form, output, names))
                               : convert_parts::write(tool, flags, names, *form, *source));
  MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
  return kDone;
}

}  // namespace millrace::tools
