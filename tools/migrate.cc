// migrate: writes an inference model in the format of another framework.

#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "interchange/onnx/export.h"
#include "interchange/pir/export.h"
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

struct Model {
  std::string path;  // of the program
  std::unique_ptr<Program> program;
  io::ParamValues params;
};

StatusOr<Model> read_model(Tool& tool, const MigrateFlags& flags) {
  Model model;
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  MILLRACE_ASSIGN_OR_RETURN(model.path, io::find_program(flags.folder));
  MILLRACE_ASSIGN_OR_RETURN(model.program, read_program(tool, model.path));
  const Program& program = *model.program;
  if (Status checked = ops::check_program(*registry, program); !checked.ok())
    return std::move(checked).in_file(model.path);
  if (!io::persistables_of(program).empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::find_params(flags.folder, model.path,
                                                                      program, flags.params_file));
    MILLRACE_ASSIGN_OR_RETURN(
        model.params, io::read_parameters(path, program, {.threads = tool.common().threads}));
  }
  return model;
}

Status write_onnx(Tool& tool, const MigrateFlags& flags, const Model& model,
                  std::map<std::string, Dims> dims) {
  StatusOr<std::string> bytes = interchange::export_onnx(
      *model.program, model.params, {.opset = flags.opset, .input_dims = std::move(dims)});
  if (!bytes.ok()) return std::move(bytes).status().in_file(model.path);
  return tool.write_output(*bytes);
}

// Two files: PREFIX.json and PREFIX.pdiparams. A model without parameters has the first only.
Status write_pir(Tool& tool, const Model& model, std::map<std::string, Dims> dims) {
  const CommonOptions& common = tool.common();
  StatusOr<interchange::PirModel> made =
      interchange::export_pir(*model.program, model.params, {.input_dims = std::move(dims)});
  if (!made.ok()) return std::move(made).status().in_file(model.path);
  std::vector<io::NamedValue> values;
  for (const std::string& name : made->parameters) values.push_back({name, &model.params.at(name)});
  if (!values.empty()) {
    const io::SaveOptions options{.replace = common.force ? Replace::kYes : Replace::kNo};
    MILLRACE_RETURN_IF_ERROR(io::save_combined(common.output + ".pdiparams", values, options));
  }
  return tool.write_file(common.output + ".json", made->program);
}

Status check_flags(const Tool& tool, const MigrateFlags& flags) {
  if (flags.to == "program")
    return Unimplemented("--to {}: models can be written as onnx or pir only", flags.to);
  if (flags.to != "onnx" && flags.to != "pir")
    return {StatusCode::kUsage, "--to: expected onnx or pir, found '" + flags.to + "'"};
  if (tool.common().output.empty())
    return {StatusCode::kUsage, "expected --output, the file to write, or for pir its prefix"};
  if (flags.to == "pir" && tool.common().output == "-")
    return {StatusCode::kUsage, "--to pir writes two files: expected their prefix as --output"};
  if (flags.to == "pir" && tool.given("--opset"))
    return {StatusCode::kUsage, "--opset belongs to --to onnx"};
  return Ok();
}

StatusOr<int> migrate_model(Tool& tool, const MigrateFlags& flags) {
  MILLRACE_RETURN_IF_ERROR(check_flags(tool, flags));
  std::map<std::string, Dims> dims;
  for (const std::string& text : flags.input_dims) MILLRACE_RETURN_IF_ERROR(parse_dims(text, dims));
  MILLRACE_ASSIGN_OR_RETURN(const Model model, read_model(tool, flags));
  MILLRACE_RETURN_IF_ERROR(flags.to == "onnx" ? write_onnx(tool, flags, model, std::move(dims))
                                              : write_pir(tool, model, std::move(dims)));
  return kDone;
}

}  // namespace
}  // namespace millrace::tools

int millrace::tools::migrate(int argc, char** argv) {
  Tool tool(
      {.name = "migrate",
       .purpose = std::string(kMigratePurpose),
       .examples = {"migrate --to onnx MODEL_DIR -o model.onnx",
                    "migrate --to onnx --opset 21 --params-file params MODEL_DIR -o m.onnx",
                    "migrate --to pir MODEL_DIR -o model"},
       .exit_codes = {{0, "done"}},
       .notes = {"An op, attribute or input without a counterpart is refused: exit code 7.",
                 "onnx: LoD of a feed x becomes the inputs x.lod0, x.lod1, ... (int64 offsets).",
                 "pir: -o PREFIX writes PREFIX.json and PREFIX.pdiparams, which release 3.3 of "
                 "PaddlePaddle loads."},
       .unread = {"--json", "--seed"}});
  MigrateFlags flags;
  tool.app()
      .add_option("--to", flags.to, "format to write: onnx or pir")
      ->type_name("FORMAT")
      ->required();
  tool.app()
      .add_option("--opset", flags.opset, "operator set of onnx, 17 to 21")
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
