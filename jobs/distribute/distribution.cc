#include "jobs/distribute/distribution.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "jobs/config/typed_tables.h"
#include "jobs/distribute/made_program.h"
#include "jobs/distribute/parallel_for.h"
#include "transpiler/distribute/cost_model.h"
#include "transpiler/distribute/explain.h"
#include "transpiler/distribute/io_programs.h"
#include "transpiler/distribute/report_html.h"
#include "transpiler/distribute/slices_json.h"
#include "transpiler/distribute/transpilation.h"

namespace millrace::jobs {
namespace {

namespace tp = millrace::transpiler;

using JobFiles = std::vector<JobFile>;

// Embeddings that become typed tables are removed from the programs before anything else is split.
StatusOr<std::vector<ps::TypedTable>> take_tables(const DistributionOptions& options, Program& main,
                                                  Program& startup) {
  if (options.sparse_tables.empty()) return std::vector<ps::TypedTable>();
  if (options.transpiler != "distribute" || options.config.mode != "pserver")
    return Unimplemented("'sparse_tables' with transpiler '{}' and mode '{}'", options.transpiler,
                         options.config.mode);
  llvm::SmallVector<llvm::StringRef, 8> servers;
  llvm::StringRef(options.arguments.pservers).split(servers, ',', -1, false);
  std::vector<std::string> endpoints;
  for (const llvm::StringRef server : servers) endpoints.push_back(server.str());
  return make_typed_tables(options.sparse_tables, endpoints, main, startup);
}

int64_t trainers_of(const DistributionOptions& options) {
  return std::max<int64_t>(
      1, tp::Transpilation::count_trainers(options.transpiler, options.config, options.arguments));
}

// Ops of heter workers are replaced by calls before anything else is split.
StatusOr<std::vector<tp::RolePrograms>> take_heter_workers(const DistributionOptions& options,
                                                           Program& main,
                                                           const ops::OpRegistry& registry) {
  if (options.heter.endpoints.empty()) return std::vector<tp::RolePrograms>();
  const bool fits = options.transpiler == "geo" ||
                    (options.transpiler == "distribute" && options.config.mode == "pserver");
  if (!fits)
    return Unimplemented("'heter_workers' with transpiler '{}' and mode '{}'", options.transpiler,
                         options.config.mode);
  const bool watched = options.first_passes != nullptr;
  return tp::make_heter_workers(main, options.heter, trainers_of(options), registry,
                                watched ? *options.first_passes : tp::fast_options());
}

// What report.html and the explanation show; without a report for modes without servers.
struct Costs {
  tp::CostInput input;
  std::optional<tp::CostReport> report;
  [[nodiscard]] const tp::CostReport* get() const { return report ? &*report : nullptr; }
};

StatusOr<Costs> costs_of(const tp::Transpilation& job) {
  Costs costs;
  if (job.server_count() == 0) return costs;
  costs.input = job.cost();
  if (costs.input.endpoints.empty()) return costs;
  MILLRACE_ASSIGN_OR_RETURN(costs.report, tp::estimate_cost(costs.input));
  return costs;
}

std::vector<int64_t> made_trainers(const DistributionOptions& options) {
  if (!options.trainers.empty()) return options.trainers;
  std::vector<int64_t> all;
  for (int64_t id = 0; id < trainers_of(options); ++id) all.push_back(id);
  return all;
}

}  // namespace

// Plans each trainer, and makes the files of one role at a time.
class Distribution::Roles {
 public:
  Roles(std::unique_ptr<Program> main, std::unique_ptr<Program> startup,
        const ops::OpRegistry& registry, const DistributionOptions& options)
      : options_(options),
        registry_(registry),
        main_(std::move(main)),
        startup_(std::move(startup)),
        trainers_(made_trainers(options)),
        plans_(trainers_.size()) {}

  // Moves ops to heter workers. To be called first.
  Status take_heter() {
    MILLRACE_ASSIGN_OR_RETURN(heter_, take_heter_workers(options_, *main_, registry_));
    return Ok();
  }

  // Plans one trainer per thread; the others are planned when they are built, so that not all
  // copies of a large program are in memory at once.
  Status plan() {
    const size_t at_once = std::min(trainers_.size(), static_cast<size_t>(options_.threads));
    MILLRACE_RETURN_IF_ERROR(
        parallel_for(at_once, options_.threads, [&](size_t i) { return plan_trainer(i); }));
    if (at_once == trainers_.size()) drop_inputs();
    return Ok();
  }

  [[nodiscard]] const DistributionOptions& options() const { return options_; }
  [[nodiscard]] const tp::Transpilation& first() const { return *plans_[0]; }
  [[nodiscard]] size_t made() const { return trainers_.size(); }
  // The trainers first, because they are the largest, then the servers and the heter workers.
  [[nodiscard]] size_t count() const {
    return trainers_.size() + first().server_count() + heter_.size();
  }

  // Files of one role.
  Status build(size_t role, JobFiles& files) {
    if (role < trainers_.size()) return build_trainer(role, files);
    const size_t server = role - trainers_.size();
    if (server >= first().server_count()) {
      const size_t worker = server - first().server_count();
      return add_both(files, "heter_" + std::to_string(worker), heter_[worker]);
    }
    MILLRACE_ASSIGN_OR_RETURN(const tp::RolePrograms programs, first().pserver(server));
    return add_both(files, "pserver_" + std::to_string(server), programs);
  }

  // Frees all programs and first().
  void release() {
    plans_.clear();
    drop_inputs();
  }

 private:
  void drop_inputs() {
    main_.reset();
    startup_.reset();
  }

  Status plan_trainer(size_t i) {
    tp::TranspileArguments arguments = options_.arguments;
    arguments.trainer_id = trainers_[i];
    const bool watched = i == 0 && options_.first_passes != nullptr;
    MILLRACE_ASSIGN_OR_RETURN(
        plans_[i], tp::Transpilation::create(
                       options_.transpiler, *main_, *startup_, options_.config, arguments,
                       registry_, watched ? *options_.first_passes : tp::fast_options()));
    return Ok();
  }

  // Verifies and serializes a program; the appended file does not reference the program.
  Status add_program(JobFiles& files, const std::string& role, const std::string& name,
                     Program& program) const {
    if (options_.strip_debug) strip_debug(program);
    if (options_.verify)
      MILLRACE_RETURN_IF_ERROR(check_made_program(registry_, program, role + "/" + name));
    files.push_back({role, name, made_program_bytes(program, options_.as_text)});
    return Ok();
  }

  Status add_both(JobFiles& files, const std::string& role,
                  const tp::RolePrograms& programs) const {
    MILLRACE_RETURN_IF_ERROR(add_program(files, role, "__model__", *programs.main));
    return add_program(files, role, "__startup__", *programs.startup);
  }

  // Adds the save and load programs of spec section 13 next to the programs of the roles that run
  // them.
  Status add_io_programs(JobFiles& files, const std::string& role, const Program& trainer) const {
    MILLRACE_ASSIGN_OR_RETURN(tp::SavePrograms save,
                              tp::make_save_programs(trainer, first().overview(),
                                                     first().properties(), options_.io_programs));
    for (size_t i = 0; i < save.remote.size(); ++i) {
      MILLRACE_RETURN_IF_ERROR(
          add_program(files, role, "io_save" + std::to_string(i), *save.remote[i]));
    }
    for (size_t i = 0; i < first().server_count(); ++i) {
      tp::ProgramProperties at_server = first().properties();
      at_server.ps_endpoint = at_server.endpoints[i];
      MILLRACE_ASSIGN_OR_RETURN(
          const std::unique_ptr<Program> load,
          tp::make_load_program(first().overview(), at_server, options_.io_programs));
      MILLRACE_RETURN_IF_ERROR(
          add_program(files, "pserver_" + std::to_string(i), "io_load", *load));
    }
    return Ok();
  }

  Status build_trainer(size_t i, JobFiles& files) {
    if (plans_[i] == nullptr) MILLRACE_RETURN_IF_ERROR(plan_trainer(i));
    const std::string role = "trainer_" + std::to_string(trainers_[i]);
    // The servers still need the programs of the first trainer.
    MILLRACE_ASSIGN_OR_RETURN(const tp::RolePrograms programs,
                              i == 0 ? plans_[0]->trainer() : plans_[i]->take_trainer());
    tp::number_heter_calls(*programs.main, trainers_[i]);
    if (i == 0 && !options_.io_programs.empty())
      MILLRACE_RETURN_IF_ERROR(add_io_programs(files, role, *programs.main));
    MILLRACE_RETURN_IF_ERROR(add_both(files, role, programs));
    for (const auto& [name, program] : plans_[i]->trainer_extras())
      MILLRACE_RETURN_IF_ERROR(add_program(files, role, name, *program));
    if (i > 0) plans_[i].reset();
    return Ok();
  }

  DistributionOptions options_;
  const ops::OpRegistry& registry_;
  std::unique_ptr<Program> main_;
  std::unique_ptr<Program> startup_;
  std::vector<int64_t> trainers_;
  std::vector<std::unique_ptr<tp::Transpilation>> plans_;
  std::vector<tp::RolePrograms> heter_;  // by worker
};

Distribution::Distribution() = default;
Distribution::Distribution(Distribution&&) noexcept = default;
Distribution::~Distribution() = default;

StatusOr<Distribution> Distribution::make(std::unique_ptr<Program> main,
                                          std::unique_ptr<Program> startup,
                                          const ops::OpRegistry& registry,
                                          const DistributionOptions& options) {
  Distribution made;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ps::TypedTable> tables,
                            take_tables(options, *main, *startup));
  made.has_tables_ = !tables.empty();
  made.roles_ = std::make_unique<Roles>(std::move(main), std::move(startup), registry, options);
  Roles& roles = *made.roles_;
  MILLRACE_RETURN_IF_ERROR(roles.take_heter());
  MILLRACE_RETURN_IF_ERROR(roles.plan());
  const tp::Transpilation& first = roles.first();
  const size_t count = roles.count();
  made.files_.resize(count + (options.report ? 2 : 1));
  const auto build = [&](size_t i) -> Status {
    JobFiles& files = made.files_[i];
    if (i < count) return roles.build(i, files);
    if (i == count) {
      files.push_back({"", "slices.json", tp::slices_json(first.properties(), first.overview())});
      if (!tables.empty()) files.push_back({"", "tables.json", typed_tables_json(tables)});
      return Ok();
    }
    MILLRACE_ASSIGN_OR_RETURN(const Costs costs, costs_of(first));
    files.push_back(
        {"", "report.html", tp::report_html(first.properties(), first.overview(), costs.get())});
    return Ok();
  };
  MILLRACE_RETURN_IF_ERROR(parallel_for(made.files_.size(), options.threads, build));
  return made;
}

const std::vector<std::vector<JobFile>>& Distribution::files() const {
  return files_;
}

int64_t Distribution::trainers() const {
  return trainers_of(roles_->options());
}

int64_t Distribution::servers() const {
  return static_cast<int64_t>(roles_->first().server_count());
}

int64_t Distribution::heter_workers() const {
  return static_cast<int64_t>(roles_->options().heter.endpoints.size());
}

bool Distribution::has_tables() const {
  return has_tables_;
}

std::vector<std::string> Distribution::endpoints() const {
  return servers() == 0 ? std::vector<std::string>() : roles_->first().properties().endpoints;
}

std::vector<std::string> Distribution::remarks() const {
  return roles_->first().remarks();
}

std::string Distribution::summary() const {
  const tp::Transpilation& job = roles_->first();
  size_t origins = 0;
  size_t slices = 0;
  for (const tp::OriginSlices& origin : tp::slices_by_origin(job.overview())) {
    if (origin.vtype == "Optimizer") continue;
    ++origins;
    slices += origin.slices.size();
  }
  std::vector<double> shares;
  for (const tp::ServerBytes& server : tp::bytes_by_server(job.properties(), job.overview()))
    shares.push_back(static_cast<double>(server.bytes()));
  const std::string workers =
      heter_workers() == 0 ? "" : fmt::format(" x {} heter workers", heter_workers());
  return fmt::format("{} trainers x {} pservers{}, {} vars -> {} slices, imbalance {:.2f}",
                     roles_->made(), job.server_count(), workers, origins, slices,
                     tp::imbalance(shares));
}

StatusOr<std::string> Distribution::explanation(bool as_json) const {
  const tp::Transpilation& job = roles_->first();
  MILLRACE_ASSIGN_OR_RETURN(const Costs costs, costs_of(job));
  return as_json ? tp::explain_json(job.overview(), costs.input, costs.get())
                 : tp::explain_text(job.overview(), costs.input, costs.get());
}

void Distribution::release() {
  roles_->release();
}

}  // namespace millrace::jobs
