#include "tools/run/unused.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "fleet/launch/job_environment.h"
#include "framework/base/errors.h"
#include "tools/run/parallel.h"

namespace millrace::tools {
namespace {

// Kinds of runs, as bits.
enum Kind : unsigned {
  kOnceRun = 1,
  kBatchRun = 2,
  kTimedRun = 4,
  kTrainerRun = 8,
  kServerRun = 16,
  kClusterRun = 32,
  kHeterRun = 64,
  kAllRuns = 127,
};

enum class Unread : uint8_t { kWarn, kRefuse };

struct Use {
  std::string_view flag;
  unsigned kinds;               ///< the kinds that read it
  std::string_view needs = {};  ///< also needs one of these options: "--data|--files"
  Unread otherwise = Unread::kWarn;
};

constexpr unsigned kRuns = kOnceRun | kTimedRun | kTrainerRun;
constexpr unsigned kListens = kServerRun | kHeterRun;
constexpr unsigned kPeers = kTrainerRun | kListens;
constexpr unsigned kServes = kServerRun | kClusterRun;
constexpr std::string_view kExamples = "--data|--files";
constexpr Unread kRefuse = Unread::kRefuse;

// Every option of the program except the common ones; --cluster, --stats, --report and --metrics
// have separate checks.
constexpr Use kUses[] = {
    {"--program", kRuns | kListens, {}, kRefuse},
    {"--startup", kRuns | kListens, {}, kRefuse},
    {"--params", kRuns | kServes, {}, kRefuse},
    {"--model-dir", kOnceRun | kTimedRun, {}, kRefuse},
    {"--params-filename", kOnceRun | kTimedRun, "--model-dir|--save-model"},
    {"--batch", kBatchRun, {}, kRefuse},
    {"--feed", kRuns, {}, kRefuse},
    {"--lod", kRuns, {}, kRefuse},
    {"--feed-steps", kOnceRun | kTrainerRun | kClusterRun, {}, kRefuse},
    {"--data", kOnceRun | kTrainerRun, {}, kRefuse},
    {"--columns", kOnceRun | kTrainerRun, "--data"},
    {"--files", kOnceRun | kTrainerRun, {}, kRefuse},
    {"--slots", kOnceRun | kTrainerRun, "--files"},
    {"--allow-pipe-command", kOnceRun | kTrainerRun, "--files"},
    {"--dataset", kOnceRun | kTrainerRun, "--files"},
    {"--reader-threads", kOnceRun | kTrainerRun, "--files"},
    {"--worker-threads", kOnceRun | kTrainerRun | kClusterRun, {}, kRefuse},
    {"--batch-size", kOnceRun | kTrainerRun, kExamples},
    {"--epochs", kOnceRun | kTrainerRun, kExamples},
    {"--shuffle", kOnceRun | kTrainerRun, kExamples},
    {"--drop-last", kOnceRun | kTrainerRun, kExamples},
    {"--divide", kOnceRun | kTrainerRun, kExamples},
    {"--reshuffle-epochs", kOnceRun | kTrainerRun, "--divide"},
    {"--trainers", kTrainerRun, "--divide"},
    {"--fetch", kRuns | kClusterRun, {}, kRefuse},
    {"--steps", kOnceRun | kTrainerRun | kClusterRun},
    {"--max-steps", kOnceRun | kTrainerRun},
    {"--print-period", kOnceRun | kTrainerRun},
    {"--dump-fields", kOnceRun | kTrainerRun, {}, kRefuse},
    {"--dump-params", kOnceRun | kTrainerRun, {}, kRefuse},
    {"--dump-dir", kOnceRun | kTrainerRun, {}, kRefuse},
    {"--dump-interval", kOnceRun | kTrainerRun, "--dump-dir"},
    {"--save-persistables", kOnceRun | kTrainerRun | kClusterRun, {}, kRefuse},
    {"--save-params", kOnceRun | kTrainerRun | kClusterRun, {}, kRefuse},
    {"--save-programs", kTrainerRun | kClusterRun, "--save-params"},
    {"--save-model", kOnceRun | kTrainerRun | kClusterRun, {}, kRefuse},
    {"--model-feeds", kOnceRun | kTrainerRun | kClusterRun, "--save-model"},
    {"--model-fetches", kOnceRun | kTrainerRun | kClusterRun, "--save-model"},
    {"--model-program", kOnceRun | kTrainerRun | kClusterRun, "--save-model"},
    {"--save-every", kOnceRun, {}, kRefuse},
    {"--checkpoint-dir", kOnceRun, "--save-every|--resume"},
    {"--keep-last", kOnceRun, "--save-every"},
    {"--resume", kOnceRun | kTimedRun, {}, kRefuse},
    {"--fail-on-save-error", kOnceRun, "--save-every"},
    {"--curve", kOnceRun, {}, kRefuse},
    {"--progress", kOnceRun | kTrainerRun | kClusterRun},
    {"--devices", kRuns | kBatchRun | kClusterRun},
    {"--precision", kOnceRun | kTimedRun | kBatchRun, {}, kRefuse},
    {"--optimize", kRuns | kBatchRun | kClusterRun},
    {"--cpu-isa", kAllRuns, {}, kRefuse},
    {"--inter-op", kOnceRun | kTimedRun | kBatchRun},
    {"--allow-dir", kAllRuns & ~unsigned{kHeterRun}},
    {"--benchmark", kTimedRun, {}, kRefuse},
    {"--warmup", kTimedRun},
    {"--duration", kTimedRun},
    {"--profile", kOnceRun | kPeers, {}, kRefuse},
    {"--op-profile", kOnceRun},
    {"--check-against", kOnceRun, {}, kRefuse},
    {"--rtol", kOnceRun, "--check-against"},
    {"--atol", kOnceRun, "--check-against"},
    {"--check-nan", kOnceRun, {}, kRefuse},
    {"--print-plan", kOnceRun},
    {"--loss", kRuns},
    {"--reduce-strategy", kRuns},
    {"--gradient-scale", kRuns},
    {"--customized-loss-grad", kRuns},
    {"--split", kRuns},
    {"--rows-per-device", kOnceRun | kTimedRun, {}, kRefuse},
    {"--feed-mode", kRuns},
    {"--merge-fetches", kRuns},
    {"--persistables-of", kOnceRun, "--save-persistables"},
    {"--sync-batch-norm", kRuns},
    {"--micro-batches", kRuns},
    {"--bucket-bytes", kRuns},
    {"--build-strategy", kRuns},
    {"--exec-strategy", kRuns},
    {"--share-vars-program", kOnceRun, {}, kRefuse},
    {"--share-vars-feed", kOnceRun, "--share-vars-program"},
    {"--share-vars-fetch", kOnceRun, "--share-vars-program"},
    {"--share-vars-output", kOnceRun, "--share-vars-program"},
    {"--trainer-id", kTrainerRun | kServerRun},
    {"--heter-id", kHeterRun},
    {"--role", kPeers, {}, kRefuse},
    {"--transpiled", kPeers | kClusterRun, {}, kRefuse},
    {"--slices", kTrainerRun | kServerRun, {}, kRefuse},
    {"--job", kPeers},
    {"--deadline-ms", kTrainerRun | kClusterRun},
    {"--kill-point", kPeers | kClusterRun},
    {"--tls-dir", kPeers, {}, kRefuse},
    {"--tls-ca", kPeers, {}, kRefuse},
    {"--tls-cert", kPeers, {}, kRefuse},
    {"--tls-key", kPeers, {}, kRefuse},
    {"--job-key", kPeers | kOnceRun | kBatchRun | kTimedRun, {}, kRefuse},
    {"--transport", kPeers},
    {"--insecure-listen", kListens},
    {"--etcd", kPeers, {}, kRefuse},
    {"--etcd-lease-s", kPeers, "--etcd"},
    {"--reconnect-timeout-ms", kPeers | kClusterRun},
    {"--max-message-bytes", kPeers},
    {"--grace", kListens},
    {"--endpoint", kListens, {}, kRefuse},
    {"--advertise", kListens, "--etcd"},
    {"--silence-timeout-ms", kPeers},
    {"--start-timeout-ms", kServes | kHeterRun},
    {"--elastic", kServes | kHeterRun},
    {"--snapshot-dir", kServes, {}, kRefuse},
    {"--snapshot-every", kServes, "--snapshot-dir"},
    {"--snapshot-interval-ms", kServes, "--snapshot-dir"},
    {"--snapshot-durable", kServes, "--snapshot-dir"},
    {"--dc-lambda", kServes},
    {"--rank", kOnceRun | kBatchRun | kTimedRun},
    {"--endpoints", kOnceRun | kBatchRun | kTimedRun | kTrainerRun},
    {"--engine", kOnceRun | kBatchRun | kTimedRun | kTrainerRun},
    {"--rendezvous", kOnceRun | kBatchRun | kTimedRun | kTrainerRun},
    {"--wait-ms", kOnceRun | kBatchRun | kTimedRun | kTrainerRun},
    {"--join-ms", kOnceRun | kBatchRun | kTimedRun | kTrainerRun},
    {"--data-parallel", kOnceRun | kTimedRun},
};

// Options of several devices; they need a kind of run that reads them.
constexpr std::string_view kOfDevices[] = {"--reduce-strategy", "--customized-loss-grad",
                                           "--split",           "--rows-per-device",
                                           "--sync-batch-norm", "--bucket-bytes"};

struct Run {
  unsigned kind;
  std::string_view words;
};

Run kind_of(const RunOptions& options) {
  if (!options.ps.cluster.empty()) return {kClusterRun, "--cluster"};
  // the same command line is used for trainers and servers
  if (options.ps.role == "auto") return {kPeers, "--role auto"};
  if (options.ps.role == "pserver") return {kServerRun, "--role pserver"};
  if (options.ps.role == "heter") return {kHeterRun, "--role heter"};
  if (!options.ps.role.empty()) return {kTrainerRun, "--role trainer"};
  if (!options.batch.empty()) return {kBatchRun, "--batch"};
  if (options.benchmark > 0) return {kTimedRun, "--benchmark"};
  return {kOnceRun, "a plain run"};
}

bool any_given(const Tool& tool, std::string_view names) {
  while (!names.empty()) {
    const size_t end = std::min(names.find('|'), names.size());
    if (tool.given(std::string(names.substr(0, end)))) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

std::string with_words(std::string_view names) {
  std::string text;
  for (const char c : names) text += c == '|' ? std::string(" or ") : std::string(1, c);
  return text;
}

// Options of several processes.
Status warn_alone(const Tool& tool, const RunOptions& options, unsigned kind) {
  if ((kind & (kOnceRun | kBatchRun | kTimedRun)) == 0 || !options.ranks.endpoints.empty())
    return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const fleet::JobEnvironment job,
                            fleet::read_job_environment(fleet::process_environment()));
  for (const char* const flag :
       {"--rank", "--engine", "--rendezvous", "--wait-ms", "--join-ms", "--job-key"}) {
    if (job.is_alone() && tool.differs(flag))
      tool.log(LogLevel::kWarning,
               fmt::format("{} has no effect: there is one process (--endpoints)", flag));
  }
  return Ok();
}

}  // namespace

Status check_unused(const Tool& tool, const RunOptions& options) {
  if (!options.ps.cluster.empty() && !options.ps.role.empty())
    return {StatusCode::kUsage, "expected only one of --cluster and --role"};
  const Run run = kind_of(options);
  for (const Use& use : kUses) {
    const std::string flag(use.flag);
    if (!tool.differs(flag)) continue;
    std::string why;
    if ((use.kinds & run.kind) == 0) {
      why = fmt::format("{} does not read it", run.words);
    } else if (!use.needs.empty() && !any_given(tool, use.needs)) {
      why = fmt::format("it needs {}", with_words(use.needs));
    } else {
      continue;
    }
    if (use.otherwise == Unread::kRefuse)
      return {StatusCode::kUsage, fmt::format("{}: {}", flag, why)};
    tool.log(LogLevel::kWarning, fmt::format("{} has no effect: {}", flag, why));
  }
  if (options.steps != 1 && any_given(tool, kExamples) &&
      (run.kind & (kOnceRun | kTrainerRun)) != 0)
    tool.log(LogLevel::kWarning,
             fmt::format("--steps has no effect: {} ends with its examples, or at --max-steps",
                         with_words(kExamples)));
  MILLRACE_RETURN_IF_ERROR(warn_alone(tool, options, run.kind));
  if ((run.kind & kRuns) == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const int devices, device_count(options));
  if (options.inter_op && wants_parallel(options, devices))
    tool.log(LogLevel::kWarning, "--inter-op has no effect: several devices run side by side");
  if (wants_parallel(options, devices) || options.ranks.data_parallel || tool.given("--rank"))
    return Ok();
  for (const std::string_view flag : kOfDevices) {
    if (tool.differs(std::string(flag)))
      tool.log(LogLevel::kWarning,
               fmt::format("{} has no effect: there is one device (--devices)", flag));
  }
  return Ok();
}

}  // namespace millrace::tools
