// quantize-program: finds scales for 8-bit integers from examples and writes a quantized model.

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/export.h"
#include "io/model_folder.h"
#include "io/npz.h"
#include "jobs/data/feed_files.h"
#include "jobs/data/feeder.h"
#include "jobs/run/calibrate.h"
#include "ops/registry.h"
#include "tools/common/numbers.h"
#include "tools/common/program_options.h"
#include "tools/common/tool.h"
#include "tools/verbs.h"
#include "transpiler/pass_manager.h"
#include "transpiler/register_all.h"

namespace millrace::tools {
namespace {

struct QuantizeFlags {
  std::string model_dir;
  std::string params_filename;
  std::string method = "abs-max";
  double percentile = 99.99;
  std::vector<std::string> types;
  std::vector<std::string> skip;
  jobs::FeedOptions feed;
};

StatusOr<jobs::CalibrationOptions> calibration(const Tool& tool, const QuantizeFlags& flags) {
  jobs::CalibrationOptions options{.percentile = flags.percentile,
                                   .threads = tool.common().threads};
  if (flags.method == "percentile") {
    options.method = jobs::ScaleMethod::kPercentile;
  } else if (flags.method == "entropy") {
    options.method = jobs::ScaleMethod::kEntropy;
  } else if (flags.method != "abs-max") {
    return Status(StatusCode::kUsage, "--method: expected abs-max, percentile or entropy, found '" +
                                          flags.method + "'");
  }
  if (tool.given("--percentile") && options.method != jobs::ScaleMethod::kPercentile)
    return Status(StatusCode::kUsage, "--percentile belongs to --method percentile");
  if (!(flags.percentile > 0 && flags.percentile <= 100))
    return Status(StatusCode::kUsage,
                  fmt::format("--percentile: expected a number above 0 and at most 100, found {}",
                              flags.percentile));
  if (flags.feed.values.empty() == flags.feed.steps_file.empty())
    return Status(StatusCode::kUsage, "expected examples: either --feed or --feed-steps");
  if (flags.feed.steps_file.empty() && tool.given("--steps"))
    return Status(StatusCode::kUsage, "--steps belongs to --feed-steps");
  if (flags.feed.values.empty() && !flags.feed.lods.empty())
    return Status(StatusCode::kUsage, "--lod belongs to --feed");
  if (tool.common().output.empty() || tool.common().output == "-")
    return Status(StatusCode::kUsage, "expected --output, the folder to write");
  return options;
}

// The program with the ops that round, whose scales have no values yet.
StatusOr<std::unique_ptr<Program>> with_rounding(const Program& program,
                                                 const QuantizeFlags& flags) {
  std::unique_ptr<Program> result = program.clone();
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  transpiler::PassRegistry passes;
  transpiler::register_all(passes);
  transpiler::Pipeline pipeline;
  pipeline.steps.push_back({"quantize-products", {{"types", flags.types}, {"skip", flags.skip}}});
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::PassManager manager,
                            transpiler::PassManager::create(passes, std::move(pipeline)));
  transpiler::PassContext context(*registry);
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::PipelineReport report,
                            manager.run(*result, context, {}));
  if (!report.changed())
    return Status(StatusCode::kInvalidProgram,
                  "the program has no product or convolution to quantize")
        .with_hint("--types and --skip leave some out; operands must be f32");
  return result;
}

// Steps are read at once: calibration needs them repeatedly.
StatusOr<std::vector<executor::NamedValues>> read_examples(const QuantizeFlags& flags,
                                                           const Program& program) {
  std::vector<executor::NamedValues> examples;
  if (flags.feed.steps_file.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(examples.emplace_back(), jobs::read_feeds(flags.feed, program));
    return examples;
  }
  MILLRACE_ASSIGN_OR_RETURN(executor::NamedValues all, io::read_values(flags.feed.steps_file));
  return jobs::split_steps(std::move(all), flags.feed.steps, flags.feed.steps_file);
}

std::string report_of(const Tool& tool, const Program& program,
                      const std::vector<jobs::ResultDifference>& differences) {
  size_t activations = 0;
  for (const Op& op : program.root().ops())
    activations += op.type() == "fake_quantize_dequantize_moving_average_abs_max" ? 1 : 0;
  if (tool.common().json) {
    nlohmann::ordered_json json{{"activations", activations},
                                {"results", nlohmann::ordered_json::array()}};
    for (const auto& each : differences)
      json["results"].push_back(
          {{"name", each.name}, {"relative", each.relative}, {"largest", each.largest}});
    return json.dump() + "\n";
  }
  std::string text = fmt::format("{} activations have scales\n", activations);
  for (const auto& each : differences)
    text += fmt::format("{}: differs by {:.3g} % of its norm, by at most {:.3g}\n", each.name,
                        100 * each.relative, each.largest);
  return text;
}

StatusOr<int> quantize(Tool& tool, const QuantizeFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(const jobs::CalibrationOptions options, calibration(tool, flags));
  MILLRACE_ASSIGN_OR_RETURN(const std::string path, io::find_program(flags.model_dir));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, read_program(tool, path));
  MILLRACE_ASSIGN_OR_RETURN(
      const std::string params,
      io::find_params(flags.model_dir, path, *program, flags.params_filename));
  Scope scope;
  MILLRACE_RETURN_IF_ERROR(
      io::load_parameters(params, *program, scope, {.threads = tool.common().threads}));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> quantized,
                            with_rounding(*program, flags));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<executor::NamedValues> examples,
                            read_examples(flags, *program));
  MILLRACE_RETURN_IF_ERROR(jobs::calibrate(*program, *quantized, scope, examples, options));
  const std::string& folder = tool.common().output;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return IoError("cannot create '{}': {}", folder, error.message());
  const io::SaveOptions saving{.replace = tool.common().force ? Replace::kYes : Replace::kNo};
  MILLRACE_RETURN_IF_ERROR(io::save_parameters(folder + "/__params__", *quantized, scope, saving));
  MILLRACE_RETURN_IF_ERROR(tool.write_file(folder + "/__model__", export_program(*quantized)));
  MILLRACE_ASSIGN_OR_RETURN(
      const std::vector<jobs::ResultDifference> differences,
      jobs::compare_results(*program, *quantized, scope, examples, options.threads));
  MILLRACE_RETURN_IF_ERROR(tool.write_file("", report_of(tool, *quantized, differences)));
  return kDone;
}

void add_options(Tool& tool, QuantizeFlags& flags) {
  CLI::App& app = tool.app();
  app.add_option("--model-dir", flags.model_dir, "inference model folder")
      ->type_name("DIR")
      ->required();
  app.add_option("--params-filename", flags.params_filename,
                 "combined parameter file in the folder; found by its name if not given")
      ->type_name("NAME");
  app.add_option("--feed", flags.feed.values,
                 "one example: NAME=FILE.npy, or FILE.npz with arrays by name")
      ->type_name("FEED");
  app.add_option("--lod", flags.feed.lods, "LoD of a fed var, such as x=0,2,5")->type_name("LOD");
  app.add_option("--feed-steps", flags.feed.steps_file,
                 "examples of each step: an npz with arrays stepK/NAME")
      ->type_name("FILE");
  app.add_option("--steps", flags.feed.steps, "number of steps in --feed-steps")
      ->type_name("N")
      ->check(whole_number<int64_t>(1))
      ->capture_default_str();
  app.add_option("--method", flags.method,
                 "how the scale of an activation follows from its magnitudes: abs-max, percentile "
                 "or entropy")
      ->type_name("METHOD")
      ->capture_default_str();
  app.add_option("--percentile", flags.percentile, "share that the scale covers, in percent")
      ->type_name("P")
      ->capture_default_str();
  app.add_option("--types", flags.types,
                 "op types to quantize; default: conv2d, depthwise_conv2d, mul, matmul, matmul_v2")
      ->type_name("TYPE,...")
      ->delimiter(',');
  app.add_option("--skip", flags.skip, "vars whose products stay: operands or results")
      ->type_name("VAR,...")
      ->delimiter(',');
}

}  // namespace
}  // namespace millrace::tools

int millrace::tools::quantize_program(int argc, char** argv) {
  Tool tool(
      {.name = "quantize-program",
       .purpose = std::string(kQuantizeProgramPurpose),
       .examples = {"quantize-program --model-dir MODEL --feed-steps examples.npz --steps 8 -o Q",
                    "quantize-program --model-dir MODEL --feed x=x.npy --method entropy -o Q",
                    "run-program --model-dir Q --feed x=x.npy --output out.npz"},
       .exit_codes = {{0, "done"}, {4, "an op failed"}},
       .notes = {"Writes __model__ and __params__: the program with fake_quantize ops, which the "
                 "original reads too. run-program multiplies such operands as 8-bit integers.",
                 "Prints how far the results for the examples are from those of the given model."},
       .unread = {"--seed"}});
  QuantizeFlags flags;
  add_options(tool, flags);
  return tool.run(argc, argv, [&] { return quantize(tool, flags); });
}
