// For any programs and configuration, every transpiler ends with a status, or with programs of all
// roles; if main and startup verify, the outputs verify as well.
//
// Input: 16 bytes that choose the configuration (byte modulo the number of choices), then the main
// program, a line "---", and the startup program, each in either form.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "framework/export.h"
#include "framework/read_program.h"
#include "ops/verify.h"
#include "tests/fuzz/require.h"
#include "transpiler/distribute/explain.h"
#include "transpiler/distribute/io_programs.h"
#include "transpiler/distribute/report_html.h"
#include "transpiler/distribute/slices_json.h"
#include "transpiler/distribute/transpilation.h"

namespace {

namespace tp = millrace::transpiler;
using millrace::Program;

constexpr size_t kHeader = 16;
constexpr size_t kMostBytes = size_t{1} << 16U;  // larger inputs find nothing more than small ones
constexpr std::string_view kSeparator = "\n---\n";

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::cerr << "violated: " << what << std::endl;
  std::abort();
}

// Reads choices from the header, one per byte.
class Chooser {
 public:
  explicit Chooser(const uint8_t* header) : next_(header) {}
  size_t below(size_t count) { return *next_++ % count; }
  bool bit(unsigned i) { return ((*next_ >> i) & 1U) != 0; }
  void skip() { ++next_; }
  int64_t number() {
    constexpr std::array<int64_t, 12> kNumbers = {
        1, 2, 3, 0, -1, 8192, 16384, 100, 65536, int64_t{1} << 31U, INT64_MAX, INT64_MIN};
    return kNumbers.at(below(kNumbers.size()));
  }

 private:
  const uint8_t* next_;
};

std::string endpoints(size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += (i == 0 ? "h:" : ",h:") + std::to_string(i + 1);
  return out;
}

struct Case {
  std::string transpiler = "distribute";
  tp::DistributeTranspilerConfig config;
  tp::TranspileArguments arguments;
};

void choose_mode(Chooser& choose, Case& out) {
  constexpr std::array<std::array<const char*, 3>, 8> kModes = {
      {{"distribute", "pserver", ""},
       {"geo", "pserver", ""},
       {"federated", "pserver", ""},
       {"distribute", "nccl2", ""},
       {"distribute", "collective", "grad_allreduce"},
       {"distribute", "collective", "local_sgd"},
       {"distribute", "collective", "single_process_multi_thread"},
       {"distribute", "collective", "none"}}};
  const auto& [transpiler, mode, collective] = kModes.at(choose.below(kModes.size()));
  out.transpiler = transpiler;
  out.config.mode = mode;
  out.config.collective_mode = collective;
}

Case choose_case(const uint8_t* header) {
  Chooser choose(header);
  Case out;
  tp::DistributeTranspilerConfig& c = out.config;
  choose_mode(choose, out);
  out.arguments.sync_mode = !choose.bit(0);
  c.slice_var_up = !choose.bit(1);
  c.enable_dc_asgd = choose.bit(2);
  c.runtime_split_send_recv = choose.bit(3);
  c.sync_mode = !choose.bit(3) || choose.bit(4);
  c.half_async = choose.bit(5);
  c.completely_not_async = choose.bit(6);
  choose.skip();
  c.use_hierarchical_allreduce = choose.bit(0);
  c.scale_loss_gradient = choose.bit(1);
  c.clip_on_trainer = !choose.bit(2);
  c.print_log = choose.bit(3);
  choose.skip();
  constexpr std::array<const char*, 4> kSplits = {"RoundRobin", "HashName", "Balanced", "Dice"};
  c.split_method = kSplits.at(choose.below(kSplits.size()));
  out.arguments.pservers = endpoints(choose.below(6));
  const size_t trainers = choose.below(6);
  const bool by_endpoint = out.transpiler == "distribute" && c.mode != "pserver";
  out.arguments.trainers = by_endpoint ? endpoints(trainers) : std::to_string(trainers);
  out.arguments.current_endpoint = "h:1";
  out.arguments.trainer_id = static_cast<int64_t>(choose.below(7)) - 1;
  c.min_block_size = choose.number();
  c.nccl_comm_num = choose.number();
  c.hierarchical_allreduce_inter_nranks = choose.number();
  out.arguments.device_count = choose.number();
  c.rpc_get_thread_num = choose.number();
  c.geo_sgd_need_push_nums = choose.number();
  c.fuse_allreduce = choose.number();
  out.arguments.random_seed = static_cast<uint32_t>(choose.below(256));
  return out;
}

void check_roles(const millrace::StatusOr<tp::RolePrograms>& roles, bool inputs_verify,
                 const millrace::ops::OpRegistry& registry) {
  if (!roles.ok()) {
    require(!roles.status().message().empty(), "an error has a message");
    return;
  }
  for (const Program* const program : {roles->main.get(), roles->startup.get()}) {
    require(!export_program(*program).empty(), "a program of a role exports");
    const millrace::Status status = check_program(registry, *program);
    require(!inputs_verify || status.ok(),
            "programs from programs that verify verify: " + status.to_string());
  }
}

void check_reports(const tp::Transpilation& plan) {
  const std::string json = tp::slices_json(plan.properties(), plan.overview());
  const auto file = tp::parse_slices_json(json);
  require(file.ok(), "slices.json reads back: " + file.status().to_string());
  const tp::CostInput input = plan.cost();
  const auto cost = tp::estimate_cost(input);
  const tp::CostReport* const report = cost.ok() ? &*cost : nullptr;
  require(!tp::explain_text(plan.overview(), input, report).empty(), "a plan explains itself");
  require(!tp::explain_json(plan.overview(), input, report).empty(), "also as JSON");
  require(!tp::report_html(plan.properties(), plan.overview(), report).empty(), "and as a page");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto registry = millrace::ops::standard_registry();
  if (size < kHeader || size > kMostBytes) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + kHeader, size - kHeader);
  const size_t cut = text.find(kSeparator);
  if (cut == std::string::npos) return 0;
  const auto main = millrace::read_program_bytes(text.substr(0, cut), "main");
  const auto startup =
      millrace::read_program_bytes(text.substr(cut + kSeparator.size()), "startup");
  if (!main.ok() || !startup.ok()) return 0;
  const bool inputs_verify =
      check_program(*registry, **main).ok() && check_program(*registry, **startup).ok();
  const Case chosen = choose_case(data);
  const auto plan = tp::Transpilation::create(chosen.transpiler, **main, **startup, chosen.config,
                                              chosen.arguments, *registry);
  if (!plan.ok()) {
    require(!plan.status().message().empty(), "an error has a message");
    return 0;
  }
  const auto trainer = (*plan)->trainer();
  check_roles(trainer, inputs_verify, *registry);
  for (size_t i = 0; i < (*plan)->server_count(); ++i)
    check_roles((*plan)->pserver(i), inputs_verify, *registry);
  check_reports(**plan);
  if (trainer.ok()) {
    const auto save = tp::make_save_programs(*trainer->main, (*plan)->overview(),
                                             (*plan)->properties(), "folder");
    require(save.ok() || !save.status().message().empty(), "an error has a message");
  }
  return 0;
}
