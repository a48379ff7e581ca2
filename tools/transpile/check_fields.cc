#include "tools/transpile/check_fields.h"

#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace millrace::tools {
namespace {

// Kinds of transpilations, as bits.
enum Form : unsigned {
  kPserverForm = 1,
  kGeoForm = 2,
  kFederatedForm = 4,
  kNccl2Form = 8,
  kCollectiveForm = 16,
  kPassesForm = 32,
  kMinimizeForm = 64,
  kFleetForm = 128,
  kDownpourForm = 256,
};

constexpr unsigned kServersForms = kPserverForm | kGeoForm | kFederatedForm;
constexpr unsigned kClusterForms = kServersForms | kNccl2Form | kCollectiveForm;
constexpr unsigned kTrainingForms = kMinimizeForm | kFleetForm;

struct FieldUse {
  std::string_view flag;
  unsigned forms;  ///< the forms that read it
};

// Every option except the common ones, --program and --format, which all forms read.
constexpr FieldUse kFieldUses[] = {
    {"--startup", kClusterForms | kPassesForm | kTrainingForms | kDownpourForm},
    {"--pservers", kServersForms},
    {"--trainers", kClusterForms},
    {"--trainer-id", kClusterForms},
    {"--sync-mode", kPserverForm | kFederatedForm},
    {"--current-endpoint", kPserverForm | kGeoForm | kFederatedForm | kNccl2Form | kCollectiveForm},
    {"--slice-var-up", kPserverForm},
    {"--split-method", kServersForms},
    {"--min-block-size", kPserverForm | kGeoForm},
    {"--enable-dc-asgd", kPserverForm},
    {"--runtime-split-send-recv", kPserverForm},
    {"--half-async", kPserverForm},
    {"--completely-not-async", kPserverForm},
    {"--heter-workers", kClusterForms},
    {"--heter-returned", kClusterForms},
    {"--geo-sgd-mode", kPserverForm | kGeoForm},
    {"--geo-sgd-need-push-nums", kGeoForm},
    {"--mode", kPserverForm | kNccl2Form | kCollectiveForm},
    {"--transpiler", kClusterForms},
    {"--collective-mode", kCollectiveForm},
    {"--fuse-allreduce", kCollectiveForm},
    {"--scale-loss-gradient", kCollectiveForm},
    {"--nccl-comm-num", kNccl2Form | kCollectiveForm},
    {"--use-hierarchical-allreduce", kNccl2Form},
    {"--hierarchical-allreduce-inter-nranks", kNccl2Form},
    {"--random-seed", kServersForms},
    {"--parameter-order", kClusterForms},
    {"--device-count", kNccl2Form | kCollectiveForm},
    {"--config-sync-mode", kPserverForm},
    {"--print-log", kServersForms},
    {"--clip-on-trainer", kServersForms},
    {"--rpc-get-thread-num", kServersForms},
    {"--rpc-send-thread-num", kServersForms},
    {"--rpc-prefetch-thread-num", kServersForms},
    {"--sparse-tables", kPserverForm},
    {"--io-programs", kServersForms},
    {"--explain", kClusterForms},
    {"--strip-debug", kClusterForms | kPassesForm},
    {"--verify", kClusterForms | kPassesForm | kTrainingForms | kDownpourForm},
    {"--minimize", kTrainingForms | kDownpourForm},  // excluded there
    {"--fleet", kFleetForm | kDownpourForm},
    {"--downpour", kDownpourForm},
    {"--backward-only", kTrainingForms | kDownpourForm},
    {"--passes", kPassesForm},
    {"--print-after", kClusterForms | kPassesForm | kTrainingForms},
    {"--print-after-all", kClusterForms | kPassesForm | kTrainingForms},
    {"--dump-dir", kClusterForms | kPassesForm | kTrainingForms},
    {"--timing", kClusterForms | kPassesForm | kTrainingForms},
    {"--wait-port", 0},
    {"--program-attrs", 0},
};

struct FormName {
  unsigned form;
  std::string words;
};

FormName form_of(const Tool& tool, const TranspileOptions& options) {
  if (tool.given("--downpour")) return {kDownpourForm, "--downpour"};
  if (tool.given("--fleet")) return {kFleetForm, "--fleet"};
  if (tool.given("--minimize")) return {kMinimizeForm, "--minimize"};
  if (tool.given("--passes")) return {kPassesForm, "--passes"};
  if (options.transpiler == "geo") return {kGeoForm, "transpiler geo"};
  if (options.transpiler == "federated") return {kFederatedForm, "transpiler federated"};
  if (options.config.mode == "nccl2") return {kNccl2Form, "mode nccl2"};
  if (options.config.mode == "collective") return {kCollectiveForm, "mode collective"};
  return {kPserverForm, "mode pserver"};
}

}  // namespace

Status check_fields(const Tool& tool, const TranspileOptions& options) {
  const FormName form = form_of(tool, options);
  if (!options.program_attrs.empty() &&
      !nlohmann::json::parse(options.program_attrs, nullptr, false).is_object())
    return {StatusCode::kUsage, fmt::format("--program-attrs: expected a JSON object, found '{}'",
                                            options.program_attrs)};
  if (form.form == kPserverForm && options.config.geo_sgd_mode) {
    return Status(StatusCode::kUsage,
                  "geo_sgd_mode: with transpiler 'distribute' the servers update the parameters in "
                  "every step")
        .with_hint("use --transpiler geo");
  }
  if (form.form == kGeoForm && tool.given("--geo-sgd-mode") && !options.config.geo_sgd_mode)
    return {StatusCode::kUsage, "geo_sgd_mode is false, but transpiler is 'geo'"};
  if (!options.heter.returned.empty() && options.heter.endpoints.empty())
    return {StatusCode::kUsage, "--heter-returned needs --heter-workers"};
  for (const FieldUse& use : kFieldUses) {
    const std::string flag(use.flag);
    if ((use.forms & form.form) != 0 || !tool.differs(flag)) continue;
    tool.log(LogLevel::kWarning,
             use.forms == 0
                 ? fmt::format("{} has no effect in this tool", flag)
                 : fmt::format("{} has no effect: {} does not read it", flag, form.words));
  }
  return Ok();
}

}  // namespace millrace::tools
