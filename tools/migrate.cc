// migrate: writes an inference model in the format of another framework.

#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "interchange/onnx/export.h"
#include "io/model_folder.h"
#include "ops/verify.h"
#include "tools/common/program_options.h"
#include "tools/common/tool.h"
#include "tools/verbs.h"

namespace millrace::tools {
namespace {

struct MigrateFlags {
  std::string to;
  std::string folder;
  std::string params_file;
  int opset = interchange::kFirstOpset;
  std::vector<std::string> input_dims;
};

// "x=-1,3,224,224"
Status parse_dims(const std::string& text, std::map<std::string, Dims>& dims) {
  const auto [name, list] = llvm::StringRef(text).split('=');
  Dims found;
  llvm::SmallVector<llvm::StringRef, 6> parts;
  list.split(parts, ',');
  for (const llvm::StringRef part : parts) {
    int64_t dim = 0;
    if (name.empty() || part.getAsInteger(10, dim) || dim < -1)
      return {StatusCode::kUsage, "--input-dims: expected NAME=D,D,... , found '" + text + "'"};
    found.push_back(dim);
  }
  dims[name.str()] = found;
  return Ok();
}

StatusOr<int> migrate_model(Tool& tool, const MigrateFlags& flags) {
  if (flags.to == "pir" || flags.to == "program")
    return Unimplemented("--to {}: models can be written as onnx only", flags.to);
  if (flags.to != "onnx")
    return Status(StatusCode::kUsage, "--to: expected onnx, found '" + flags.to + "'");
  if (tool.common().output.empty())
    return Status(StatusCode::kUsage, "expected --output, the file to write");
  interchange::OnnxOptions options{.opset = flags.opset};
  for (const std::string& text : flags.input_dims)
    MILLRACE_RETURN_IF_ERROR(parse_dims(text, options.input_dims));
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::find_program(flags.folder));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, read_program(tool, path));
  if (Status checked = ops::check_program(*registry, *program); !checked.ok())
    return std::move(checked).in_file(path);
  io::ParamValues params;
  if (!io::persistables_of(*program).empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string params_path,
                              io::find_params(flags.folder, path, *program, flags.params_file));
    MILLRACE_ASSIGN_OR_RETURN(
        params, io::read_parameters(params_path, *program, {.threads = tool.common().threads}));
  }
  StatusOr<std::string> model = interchange::export_onnx(*program, params, options);
  if (!model.ok()) return std::move(model).status().in_file(path);
  MILLRACE_RETURN_IF_ERROR(tool.write_output(*model));
  return kDone;
}

}  // namespace
}  // namespace millrace::tools

int millrace::tools::migrate(int argc, char** argv) {
  Tool tool({.name = "migrate",
             .purpose = std::string(kMigratePurpose),
             .examples = {"migrate --to onnx MODEL_DIR -o model.onnx",
                          "migrate --to onnx --opset 21 --params-file params MODEL_DIR -o m.onnx"},
             .exit_codes = {{0, "done"}},
             .notes = {"An op, attribute or input without a counterpart is refused: exit code 7.",
                       "LoD of a feed x becomes the inputs x.lod0, x.lod1, ... (int64 offsets)."},
             .unread = {"--json", "--seed"}});
  MigrateFlags flags;
  tool.app().add_option("--to", flags.to, "format to write: onnx")->type_name("FORMAT")->required();
  tool.app()
      .add_option("--opset", flags.opset, "operator set of ONNX, 17 to 21")
      ->type_name("N")
      ->capture_default_str();
  tool.app()
      .add_option("--params-file", flags.params_file,
                  "combined parameter file in the folder; found by its name if not given")
      ->type_name("NAME");
  tool.app()
      .add_option("--input-dims", flags.input_dims,
                  "dims of an input instead of the declared ones; -1: unknown until run time")
      ->type_name("NAME=D,...");
  tool.app()
      .add_option("folder", flags.folder, "folder of the model")
      ->type_name("DIR")
      ->required();
  return tool.run(argc, argv, [&] { return migrate_model(tool, flags); });
}
