#include <memory>
#include <utility>
#include <vector>

#include "io/model_folder.h"
#include "jobs/checkpoint/export_model.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/write_params.h"
#include "tools/common/program_options.h"

namespace millrace::tools {

StatusOr<int> checkpoint_export(Tool& tool, const CheckpointFlags& flags) {
  const std::string& output = tool.common().output;
  if (flags.model_dir.empty())
    return Status(StatusCode::kUsage,
                  "export: expected --model-dir with the folder of the inference program");
  if (output.empty())
    return Status(StatusCode::kUsage, "export: expected -o with the folder of the output");
  MILLRACE_ASSIGN_OR_RETURN(const std::string model, io::find_program(flags.model_dir));
  MILLRACE_ASSIGN_OR_RETURN(const auto program, read_program(tool, model));
  jobs::SourceOptions plain = flags.source;
  if (plain.program.empty()) plain.program = model;  // program whose variables combined files have
  std::vector<std::unique_ptr<jobs::TensorSource>> sources;
  std::vector<std::string> forms;
  uint64_t bytes = 0;
  for (const std::string& path : flags.paths) {
    MILLRACE_ASSIGN_OR_RETURN(auto source, jobs::open_source(plain, path));
    bytes += source->bytes();
    forms.push_back(source->form());
    sources.push_back(std::move(source));
  }
  MILLRACE_RETURN_IF_ERROR(jobs::check_read(flags.source, forms));
  StatusOr<jobs::ModelValues> values = jobs::ModelValues::find(*program, sources);
  if (!values.ok()) return std::move(values).status().in_file(flags.paths[0]);
  if (flags.dry_run) {
    MILLRACE_RETURN_IF_ERROR(check_writable(tool, {output + "/__model__"}));
  } else {
    ByteProgress progress = progress_of(tool, flags, "export", bytes);
    MILLRACE_RETURN_IF_ERROR(jobs::export_model(*values, model, tool.common().max_model_bytes,
                                                flags.params_filename, output,
                                                write_options(tool, flags, progress)));
  }
  const WriteReport report{
      "export", sources.front()->form(), "model", values->names().size(), bytes, {}};
  MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
  return kDone;
}

}  // namespace millrace::tools
