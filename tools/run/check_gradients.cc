#include "tools/run/check_gradients.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/json_writer.h"
#include "jobs/run/check_gradients.h"
#include "tools/common/numbers.h"
#include "tools/run/parallel.h"
#include "tools/run/session_options.h"

namespace millrace::tools {
namespace {

using executor::GradientReport;
using executor::ParamCheck;

executor::GradientCheckOptions check_options(const Tool& tool, const RunOptions& options) {
  const GradientCheckFlags& flags = options.check_gradients;
  executor::GradientCheckOptions out;
  out.loss = options.parallel.loss;
  llvm::SmallVector<llvm::StringRef, 8> params;
  llvm::StringRef(flags.params).split(params, ',', -1, false);
  for (const llvm::StringRef param : params) out.params.push_back(param.str());
  out.no_grad.insert(flags.no_grad.begin(), flags.no_grad.end());
  out.in_float64 = flags.dtype == "f64";
  out.epsilon = flags.epsilon;
  out.tolerance = flags.tolerance;
  out.samples = flags.samples;
  out.seed = tool.common().seed;
  out.threads = tool.common().threads;
  out.optimize = options.optimize;
  return out;
}

std::string place_of(const executor::GradientSample& sample) {
  if (sample.is_direction) return "direction";
  return fmt::format("[{}]", fmt::join(sample.at, ", "));
}

std::string report_table(const GradientReport& report) {
  size_t width = 9;
  for (const ParamCheck& check : report.params) width = std::max(width, check.param.size());
  std::string out = fmt::format("loss {} = {:.9g}\n", fmt::join(report.losses, " + "), report.loss);
  out += fmt::format("{:<{}} {:>9} {:>14} {:>14} {:>10}  {}\n", "parameter", width, "checked",
                     "analytical", "numerical", "error", "at element");
  for (const ParamCheck& check : report.params) {
    const executor::GradientSample& worst = check.worst;
    out += fmt::format("{:<{}} {:>9} {:>14.7g} {:>14.7g} {:>10.3g}  {}{}{}\n", check.param, width,
                       fmt::format("{}/{}", check.checked, check.elements), worst.analytical,
                       worst.numerical, worst.error, place_of(worst),
                       check.grad.empty() ? ", no gradient" : "", check.ok ? "" : "  WRONG");
  }
  return out;
}

std::string report_json(const GradientReport& report) {
  JsonWriter writer;
  writer.begin_object().member("ok", report.ok());
  writer.key("losses").begin_array().inline_array();
  for (const std::string& loss : report.losses) writer.value(loss);
  writer.end_array().member("loss", report.loss).key("parameters").begin_array();
  for (const ParamCheck& check : report.params) {
    writer.begin_object().member("name", check.param).key("gradient");
    check.grad.empty() ? writer.null() : writer.value(check.grad);
    writer.member("elements", check.elements).member("checked", check.checked);
    writer.member("ok", check.ok).key("worst").begin_object();
    writer.member("analytical", check.worst.analytical).member("numerical", check.worst.numerical);
    writer.member("error", check.worst.error).key("at");
    if (check.worst.is_direction) {
      writer.value("direction");
    } else {
      writer.begin_array().inline_array();
      for (const int64_t index : check.worst.at) writer.value(index);
      writer.end_array();
    }
    writer.end_object().end_object();
  }
  writer.end_array().key("notes").begin_array();
  for (const std::string& note : report.notes) writer.value(note);
  return writer.end_array().end_object().take();
}

}  // namespace

void add_check_gradients_options(CLI::App& app, GradientCheckFlags& flags) {
  app.option_defaults()->group("Checking gradients");
  app.add_option("--check-gradients", flags.params,
                 "compare the gradients of the first step with central differences in float64, for "
                 "these parameters (default: all). --loss names the loss of a forward program")
      ->type_name("[PARAM,...]")
      ->expected(0, 1);
  app.add_option("--check-epsilon", flags.epsilon, "difference that is added to an element")
      ->type_name("E")
      ->default_str("1e-5, for f32 1e-2")
      ->check(positive_number());
  app.add_option("--check-tolerance", flags.tolerance, "largest relative difference")
      ->type_name("T")
      ->default_str("1e-5, for f32 5e-2")
      ->check(positive_number());
  app.add_option("--check-samples", flags.samples,
                 "elements of a parameter that are varied one by one, besides all at once; 0: all")
      ->type_name("N")
      ->check(whole_number<int64_t>(0));
  app.add_option("--check-dtype", flags.dtype,
                 "f64: the program runs in float64; f32: in its declared types")
      ->check(CLI::IsMember({"f64", "f32"}).description(""))
      ->type_name("TYPE");
  app.add_option("--check-no-grad", flags.no_grad,
                 "vars in the no_grad_set with which the program was generated")
      ->type_name("VAR,...")
      ->delimiter(',');
}

Status check_gradients_usage(const Tool& tool) {
  const bool wanted = tool.given("--check-gradients");
  static constexpr const char* kOwn[] = {"--check-epsilon", "--check-tolerance", "--check-samples",
                                         "--check-dtype", "--check-no-grad"};
  static constexpr const char* kOthers[] = {"--fetch",
                                            "--steps",
                                            "--max-steps",
                                            "--epochs",
                                            "--batch",
                                            "--benchmark",
                                            "--profile",
                                            "--op-profile",
                                            "--check-nan",
                                            "--check-against",
                                            "--print-plan",
                                            "--curve",
                                            "--save-params",
                                            "--save-model",
                                            "--save-persistables",
                                            "--save-every",
                                            "--micro-batches",
                                            "--split",
                                            "--precision",
                                            "--rows-per-device",
                                            "--feed-mode",
                                            "--merge-fetches",
                                            "--gradient-scale",
                                            "--cluster",
                                            "--role",
                                            "--build-strategy",
                                            "--exec-strategy",
                                            "--reduce-strategy",
                                            "--share-vars-program",
                                            "--persistables-of",
                                            "--inter-op",
                                            "--worker-threads"};
  if (!wanted) {
    for (const char* const option : kOwn) {
      if (tool.given(option))
        return {StatusCode::kUsage, fmt::format("{} needs --check-gradients", option)};
    }
    return Ok();
  }
  for (const char* const option : kOthers) {
    if (tool.given(option))
      return {StatusCode::kUsage, fmt::format("{} has no effect with --check-gradients", option)};
  }
  return Ok();
}

StatusOr<int> run_check_gradients(Tool& tool, const RunOptions& options,
                                  const std::shared_ptr<const executor::Runtime>& runtime) {
  MILLRACE_ASSIGN_OR_RETURN(const int devices, device_count(options));
  if (devices != 1 || !options.gpus.empty()) {
    return Status(StatusCode::kUsage,
                  "--check-gradients runs on one device: expected --devices cpu:1");
  }
  RunOptions unnamed = options;  // the loss of a forward program is no setting of devices
  unnamed.parallel.loss.clear();
  MILLRACE_ASSIGN_OR_RETURN(const jobs::SessionOptions how, session_options(tool, unnamed));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::FeedOptions feed, feed_options(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(
      const GradientReport report,
      jobs::check_gradients(how, feed, check_options(tool, options), runtime));
  for (const std::string& note : report.notes) tool.log(LogLevel::kInfo, note);
  MILLRACE_RETURN_IF_ERROR(tool.write_file(
      options.output, tool.common().json ? report_json(report) : report_table(report)));
  return report.ok() ? kDone : kAnswerIsNo;
}

}  // namespace millrace::tools
