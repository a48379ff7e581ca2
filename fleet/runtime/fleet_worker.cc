#include "fleet/runtime/fleet_worker.h"

#include <algorithm>
#include <limits>
#include <set>

#include "executor/feed_values.h"
#include "executor/parallel/replica.h"
#include "executor/standard_runtime.h"
#include "fleet/runtime/described_tables.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ps/client/connect.h"
#include "ps/ops/trainer_ops.h"
#include "ps/table/client_caller.h"
#include "ps/table/table_sender.h"
#include "ps/table/typed_table.h"
#include "transpiler/distribute/table_plan.h"
#include "transpiler/fleet/fleet_programs.h"
#include "transpiler/fleet/row_gradients.h"
#include "transpiler/roles.h"

namespace millrace::fleet {
namespace {

// Name of the rate in all programs. Only a scheduled rate remains when the updates are removed.
constexpr const char* kRateVar = "learning_rate_0";

std::string find_scheduled_rate(const Program& main) {
  const Var* const rate = main.root().find_var(kRateVar);
  const bool kept = rate != nullptr && rate->persistable() && !main.root().has_writers(kRateVar);
  return kept ? kRateVar : "";
}

// Sets the padding ids of tables, which are only in the program.
void set_paddings(const Program& main, std::vector<ps::TypedTable>& tables) {
  for (const Op& op : main.root().ops()) {
    if (op.type() != "distributed_lookup_table") continue;
    const int64_t padding = get_attr_or<int64_t>(op, "padding_idx", -1);
    for (ps::TypedTable& table : tables) {
      if (padding >= 0 && table.param == op.first_input("W").str()) table.options.padding = padding;
    }
  }
}

// Geo workers hold embeddings as a whole, also those that are declared as rows.
std::unique_ptr<Program> with_whole_embeddings(const Program& program) {
  auto whole = program.clone();
  for (Var& var : whole->root().vars()) {
    if (!var.persistable() || var.kind() != VarKind::kSelectedRows) continue;
    VarSpec spec = var.spec();
    spec.kind = VarKind::kLodTensor;
    spec.form = TensorForm::kLodTensor;
    var.set_spec(std::move(spec));
  }
  return whole;
}

// Moves the ops that compute the learning rate to a program of their own, which runs before each
// step: pushes of the step need the rate. Null if there are none.
//
// The updates of a program that keeps them read the rates from the scope, where the other program
// writes them: such vars become persistable. \param shared  receives their names
std::unique_ptr<Program> take_rate_program(Program& main, std::set<std::string>& shared) {
  if (main.root().find_var(transpiler::kComputedRate) == nullptr) return nullptr;
  auto rate = main.clone();
  const auto keep = [](Block& block, bool schedule) {
    for (Op* const op : block.op_vector())
      if (transpiler::role::is_lr_op(*op) != schedule) block.erase(*op);
  };
  keep(rate->root(), true);
  keep(main.root(), false);
  for (Var& var : rate->root().vars()) {
    if (var.persistable() || !rate->root().has_writers(var.name()) ||
        !main.root().has_readers(var.name()))
      continue;
    shared.insert(var.name().str());
    var.set_persistable(true);
    main.root().find_var(var.name())->set_persistable(true);
  }
  return rate;
}

// Contexts of dense tables. Rows are pushed by ops of the program.
ps::CommContexts dense_sends(const ps::CommContexts& all) {
  ps::CommContexts dense;
  for (const auto& [name, context] : all) {
    if (!context.is_sparse) dense[name] = context;
  }
  return dense;
}

Status declare_dims(const Program& main, const WorkerSetup& setup,
                    const std::vector<std::string>& embeddings, ps::TableSender& sender) {
  const auto declare = [&](const std::string& name) -> Status {
    const Var* const var = main.root().find_var(name);
    if (var == nullptr) return InvalidProgram("the program does not declare '{}'", name);
    sender.declare(name, Dims(var->dims().begin(), var->dims().end()));
    return Ok();
  };
  for (const auto& [id, names] : setup.dense_tables) {
    for (const std::string& name : names) MILLRACE_RETURN_IF_ERROR(declare(name));
  }
  for (const std::string& name : embeddings) MILLRACE_RETURN_IF_ERROR(declare(name));
  return Ok();
}

// Parameters are received as values and sent as differences.
ps::CommContexts geo_sends(const ps::CommContexts& receive) {
  ps::CommContexts send;
  for (const auto& [name, context] : receive) send[name] = ps::delta_context(context);
  return send;
}

std::optional<double> number_of(const Tensor& tensor) {
  if (!tensor.initialized() || tensor.numel() != 1) return std::nullopt;
  if (tensor.dtype() == DType::kInt64) return static_cast<double>(*tensor.data<int64_t>());
  if (tensor.dtype() == DType::kFloat32) return static_cast<double>(*tensor.data<float>());
  return std::nullopt;
}

// \param tensor  one for which number_of() returns a number
void set_number(Tensor& tensor, double number) {
  if (tensor.dtype() == DType::kInt64) {
    *tensor.data<int64_t>() = static_cast<int64_t>(number);
  } else {
    *tensor.data<float>() = static_cast<float>(number);
  }
}

// The context of an embedding that workers hold as a whole.
ps::CommContext embedding_context(const std::string& param, int table_id) {
  ps::CommContext context;
  context.var_name = param;
  context.table_id = table_id;
  context.is_sparse = true;
  return context;
}

}  // namespace

StatusOr<std::vector<FleetWorker::StepCounter>> FleetWorker::step_counters_of(
    const Program& schedule, const Scope& scope) {
  std::vector<StepCounter> counters;
  for (const Op& op : schedule.root().ops()) {
    if (op.type() != "increment") continue;
    const std::string name = op.first_output("Out").str();
    const Var* const var = schedule.root().find_var(name);
    if (var == nullptr || !var->persistable()) continue;
    const Value* const value = scope.find(name);
    const auto* const tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
    const std::optional<double> first = tensor == nullptr ? std::nullopt : number_of(*tensor);
    if (!first)
      return Unimplemented(
          "a schedule that counts steps in '{}', which is {}, in asynchronous jobs", name,
          value == nullptr ? "absent" : describe(*value));
    counters.push_back({name, *first, static_cast<double>(get_attr_or(op, "step", 1.0F))});
  }
  return counters;
}

FleetWorker::~FleetWorker() = default;

StatusOr<std::unique_ptr<FleetWorker>> FleetWorker::create(
    const WorkerSetup& setup, std::shared_ptr<ps::Transport> transport) {
  std::unique_ptr<FleetWorker> worker(new FleetWorker());
  worker->mode_ = setup.mode;
  worker->servers_ = setup.servers;
  worker->log_ = setup.log;
  worker->workers_ = setup.workers;
  worker->rings_ = setup.rings;
  // workers that average dense gradients make the same steps
  worker->shares_steps_ =
      setup.mode == ps::CommMode::kAsync && setup.workers > 1 && setup.rings == nullptr;
  ps::ClientOptions options = setup.client;
  options.trainer = setup.worker;
  worker->client_ = std::make_shared<ps::Client>(std::move(transport), options);
  worker->link_ = std::make_shared<ps::TrainerLink>(worker->client_);
  if (setup.mode == ps::CommMode::kSync) worker->link_->end_steps_by_barriers();
  MILLRACE_RETURN_IF_ERROR(worker->set_plan(setup));
  worker->main_ =
      setup.mode == ps::CommMode::kGeo ? with_whole_embeddings(*setup.main) : setup.main->clone();
  if (setup.mode != ps::CommMode::kGeo) {
    MILLRACE_RETURN_IF_ERROR(transpiler::check_lookups(*worker->main_, /*distributed=*/true));
    MILLRACE_RETURN_IF_ERROR(transpiler::restore_row_gradients(*worker->main_));
  }
  worker->rate_main_ = take_rate_program(*worker->main_, worker->rate_vars_);
  worker->scheduled_rate_ =
      setup.rings == nullptr ? find_scheduled_rate(*worker->main_) : setup.scheduled_rate;
  MILLRACE_ASSIGN_OR_RETURN(worker->rate_table_, described_rate_table(setup.description));
  MILLRACE_RETURN_IF_ERROR(worker->make_tables(setup));
  if (setup.mode == ps::CommMode::kGeo) worker->take_sends(setup);
  MILLRACE_RETURN_IF_ERROR(worker->make_communicator(setup));
  MILLRACE_RETURN_IF_ERROR(worker->prepare(setup));
  return worker;
}

// Servers of another job refuse this worker.
Status FleetWorker::set_plan(const WorkerSetup& setup) {
  std::map<std::string, ps::PlanFacts> plan;
  for (size_t i = 0; i < setup.servers.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(
        plan[setup.servers[i]],
        described_facts(setup.description, static_cast<int>(i),
                        static_cast<int>(setup.servers.size()), setup.workers));
  }
  client_->set_plan(std::move(plan));
  client_->set_heter_workers(ps::heter_workers_named_in(*setup.main));
  return Ok();
}

Status FleetWorker::make_tables(const WorkerSetup& setup) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<ps::TypedTable> tables,
                            described_sparse_tables(setup.description, setup.servers));
  if (tables.empty()) return Ok();
  set_paddings(*main_, tables);
  MILLRACE_ASSIGN_OR_RETURN(tables_, ps::TrainerTables::create(client_, std::move(tables)));
  link_->set_tables(tables_);
  ps::name_pushed_gradients(*main_);
  return check_pushes();
}

// The rows of a step are one value for each table and server.
Status FleetWorker::check_pushes() const {
  std::set<int64_t> pushed;
  for (const Op& op : main_->root().ops()) {
    if (mode_ != ps::CommMode::kSync || op.type() != "distributed_push_sparse") continue;
    const auto id = get_attr_or<int32_t>(op, "table_id", 0);
    if (!pushed.insert(id).second)
      return Unimplemented("two ops of a synchronous step push to table {}", id);
  }
  return Ok();
}

// In geo programs, send ops only say which rows were looked up.
void FleetWorker::take_sends(const WorkerSetup& setup) {
  Block& block = main_->root();
  for (Op* const op : block.op_vector()) {
    if (op->type() == "send") block.erase(*op);
  }
  if (tables_ == nullptr) return;
  for (const auto& [name, context] : setup.send) {
    const auto found = tables_->all().find(context.table_id);
    if (context.is_sparse && found != tables_->all().end())
      row_sources_.push_back({found->second.table.param, context.vars().front()});
  }
}

Status FleetWorker::make_communicator(const WorkerSetup& setup) {
  std::map<int, ps::SparseLayout> layouts;
  if (tables_ != nullptr) {
    for (const auto& [id, entry] : tables_->all()) layouts[id] = entry.layout;
  }
  table_client_ =
      std::make_shared<ps::TableClient>(std::make_shared<ps::ClientCaller>(client_, setup.servers));
  dense_tables_ = setup.dense_tables;
  sender_ = std::make_shared<ps::TableSender>(table_client_, std::move(layouts));
  if (mode_ == ps::CommMode::kSync) sender_->send_in_steps(link_, servers_);
  std::vector<std::string> embeddings;  // embeddings that the worker holds
  for (const RowSource& source : row_sources_) embeddings.push_back(source.param);
  MILLRACE_RETURN_IF_ERROR(declare_dims(*main_, setup, embeddings, *sender_));
  ps::Remarks remarks;
  ps::CommunicatorOptions& options = communicator_options_;
  MILLRACE_ASSIGN_OR_RETURN(
      options, ps::communicator_options(setup.mode, setup.communicator, setup.threads, 1, remarks));
  for (const std::string& remark : remarks) {
    if (log_) log_(remark);
  }
  options.trainers = setup.workers;
  options.meets_always = tables_ != nullptr;
  if (!setup.communicator.contains("FLAGS_communicator_rpc_deadline") &&
      !setup.communicator.contains("communicator_rpc_deadline"))
    options.rpc_deadline_ms = static_cast<int>(
        std::min<int64_t>(setup.client.deadline.count(), std::numeric_limits<int>::max()));
  options.trainer_id = setup.worker;
  options.pserver_endpoints = setup.servers;
  for (const auto& [id, names] : setup.dense_tables) {
    ps::CommContext context = ps::dense_table_context(id, names);
    receives_[context.var_name] = std::move(context);
  }
  if (setup.mode == ps::CommMode::kGeo && tables_ != nullptr) {
    for (const auto& [id, entry] : tables_->all())
      receives_[entry.table.param] = embedding_context(entry.table.param, id);
  }
  sends_ = setup.mode == ps::CommMode::kGeo ? geo_sends(receives_) : dense_sends(setup.send);
  return open_communicator();
}

// A communicator sends nothing any more after an error, so going back needs another one.
Status FleetWorker::open_communicator() {
  link_->set_communicator(nullptr);
  MILLRACE_ASSIGN_OR_RETURN(communicator_,
                            ps::Communicator::create(mode_, communicator_options_, sender_));
  MILLRACE_RETURN_IF_ERROR(communicator_->init_with_ctx(sends_, receives_));
  link_->set_communicator(communicator_.get());
  return Ok();
}

Status FleetWorker::prepare(const WorkerSetup& setup) {
  runtime_ = executor::make_runtime("", rings_);
  ps::add_trainer_controls(runtime_->controls, link_, "");
  if (rings_ != nullptr)
    runtime_->controls.run_before("c_allreduce_sum", [this] { return meet_in_step(); });
  executor_ = setup.executor;
  executor::ExecutorOptions on_cpu = executor_;
  on_cpu.gpu = nullptr;
  const executor::Executor executor(runtime_, on_cpu);
  const auto whole =
      setup.mode == ps::CommMode::kGeo ? with_whole_embeddings(*setup.startup) : nullptr;
  MILLRACE_ASSIGN_OR_RETURN(const auto startup,
                            executor.prepare(whole == nullptr ? *setup.startup : *whole, scope_));
  std::vector<Value> none;
  MILLRACE_RETURN_IF_ERROR(startup->run({}, {}, none));
  MILLRACE_ASSIGN_OR_RETURN(prepared_,
                            executor::Executor(runtime_, executor_).prepare(*main_, scope_));
  if (executor_.gpu != nullptr) places_ = std::make_unique<executor::KeptPlaces>(executor_.gpu);
  if (rate_main_ != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(rate_program_, executor.prepare(*rate_main_, scope_));
  }
  return Ok();
}

StatusOr<std::unique_ptr<executor::PreparedProgram>> FleetWorker::prepare_thread(
    int thread, int threads, Scope& scope) const {
  executor::ExecutorOptions own = executor_;
  own.threads = std::max(1, own.threads / threads);
  own.seed += static_cast<uint64_t>(thread) * executor::kSeedStep;
  return executor::Executor(runtime_, own).prepare(*main_, scope);
}

Status FleetWorker::set_rate(float rate) {
  if (rate_program_ != nullptr)
    return InvalidArgument(
        "the learning rate of this job is computed by its program and cannot be "
        "set to {}",
        rate);
  if (scheduled_rate_.empty())
    return InvalidArgument("the learning rate of this job is a constant and cannot be set to {}",
                           rate);
  MILLRACE_RETURN_IF_ERROR(bring_rates());
  auto& tensor = scope_.local(scheduled_rate_).as<Tensor>();
  const Dims dims(main_->root().find_var(scheduled_rate_)->dims());
  MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kFloat32, dims));
  *tensor.data<float>() = rate;
  return Ok();
}

// Sends the rate before the gradients to which it applies.
Status FleetWorker::send_rate() {
  if (scheduled_rate_.empty() || mode_ == ps::CommMode::kGeo) return Ok();
  return send_rate(scope_.find(scheduled_rate_), scheduled_rate_);
}

StatusOr<int64_t> FleetWorker::schedule_step(int64_t own) {
  if (!shares_steps_) return own;
  MILLRACE_ASSIGN_OR_RETURN(const int64_t steps,
                            table_client_->take_step(step_table_after(rate_table_)));
  return steps - 1;
}

Status FleetWorker::set_step_counters() {
  if (step_counters_.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const int64_t before, schedule_step(0));
  for (const StepCounter& counter : step_counters_)
    set_number(*scope_.find(counter.name)->get_if<Tensor>(),
               counter.first + counter.step * static_cast<double>(before));
  return Ok();
}

// Advances the schedule of the program by one step.
Status FleetWorker::send_computed_rate() {
  if (rate_program_ == nullptr) return Ok();
  MILLRACE_RETURN_IF_ERROR(set_step_counters());
  std::vector<Value> rate;
  MILLRACE_RETURN_IF_ERROR(rate_program_->run({}, {transpiler::kComputedRate}, rate));
  return send_rate(rate.data(), transpiler::kComputedRate);
}

Status FleetWorker::send_rate(const Value* value, const std::string& name) {
  const auto* const tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized() || tensor->dtype() != DType::kFloat32 ||
      tensor->numel() != 1)
    return Status(StatusCode::kExecution,
                  fmt::format("the learning rate '{}' is {}, expected one element of f32", name,
                              value == nullptr ? "absent" : describe(*value)));
  const float rate = *tensor->data<float>();
  if (mode_ == ps::CommMode::kSync) return send_with_step(*value);
  if (sent_rate_ == rate) return Ok();
  MILLRACE_RETURN_IF_ERROR(table_client_->set_rate(rate_table_, rate));
  sent_rate_ = rate;
  return Ok();
}

// Every step has its rate, so that a step that is sent again has it, too.
Status FleetWorker::send_with_step(const Value& rate) {
  MILLRACE_RETURN_IF_ERROR(executor::copy_value(rate, step_rate_));
  std::vector<ps::TrainerLink::Parcel> parcels;
  for (const std::string& server : servers_)
    parcels.push_back({server, ps::table_rate_item(rate_table_), &step_rate_});
  link_->keep(parcels);
  return Ok();
}

Status FleetWorker::check_feeds(const executor::NamedValues& feeds) const {
  for (const auto& [name, value] : feeds) {
    const Var* const var = rings_ == nullptr ? nullptr : main_->root().find_var(name);
    if (var != nullptr && var->persistable())
      return InvalidArgument(
          "feed: all trainers of this job must have the same '{}', which a feed would change on "
          "this one only",
          name);
  }
  if (rate_program_ != nullptr || !feeds.contains(kRateVar) ||
      main_->root().find_var(kRateVar) != nullptr)
    return Ok();
  return InvalidArgument(
             "feed: the learning rate '{}' of this job is a constant of its servers, which "
             "a feed cannot change",
             kRateVar)
      .with_hint("use a learning rate scheduler in the job, or remove the feed");
}

// A rate among the feeds is the next value of the schedule.
Status FleetWorker::run(const executor::NamedValues& feeds, const std::vector<std::string>& wanted,
                        std::vector<Value>& results) {
  MILLRACE_RETURN_IF_ERROR(check_feeds(feeds));
  MILLRACE_RETURN_IF_ERROR(bring_rates());
  MILLRACE_RETURN_IF_ERROR(send_computed_rate());
  const auto rate = scheduled_rate_.empty() ? feeds.end() : feeds.find(scheduled_rate_);
  if (rate == feeds.end()) {
    MILLRACE_RETURN_IF_ERROR(send_rate());
    MILLRACE_RETURN_IF_ERROR(settle_places());
    return prepared_->run(feeds, wanted, results);
  }
  executor::NamedValues others;
  for (const auto& [name, value] : feeds) {
    Value& to = name == scheduled_rate_ ? scope_.local(name) : others[name];
    MILLRACE_RETURN_IF_ERROR(executor::copy_value(value, to));
  }
  MILLRACE_RETURN_IF_ERROR(send_rate());
  MILLRACE_RETURN_IF_ERROR(settle_places());
  return prepared_->run(others, wanted, results);
}

Status FleetWorker::run_step(const executor::NamedValues& feeds,
                             const std::vector<std::string>& fetches, std::vector<Value>& results) {
  client_->set_step(step_);
  if (local_ && (dense_every_ == 0 || step_ % dense_every_ == 0))
    MILLRACE_RETURN_IF_ERROR(local_->keep(step_, scope_));
  using Clock = std::chrono::steady_clock;
  std::vector<std::string> wanted = fetches;
  for (const RowSource& source : row_sources_) wanted.push_back(source.grad);
  results.resize(wanted.size());
  if (Status status = run(feeds, wanted, results); !status.ok()) {
    link_->forget();
    return status;
  }
  const auto ran = Clock::now();
  MILLRACE_RETURN_IF_ERROR(record_rows(llvm::ArrayRef<Value>(results).drop_front(fetches.size())));
  results.resize(fetches.size());
  if (mode_ == ps::CommMode::kSync || mode_ == ps::CommMode::kHalfAsync)
    MILLRACE_RETURN_IF_ERROR(communicator_->barrier());
  note_received();
  MILLRACE_RETURN_IF_ERROR(communicator_->finish_step(scope_));
  MILLRACE_RETURN_IF_ERROR(settle_places());
  ++step_;
  waited_ += std::chrono::duration<double>(Clock::now() - ran).count();
  return Ok();
}

Status FleetWorker::record_rows(llvm::ArrayRef<Value> grads) {
  for (size_t i = 0; i < row_sources_.size(); ++i) {
    const auto* const grad = grads[i].get_if<SelectedRows>();
    if (grad == nullptr)
      return Status(StatusCode::kExecution,
                    fmt::format("the gradient '{}' is {}, expected selected rows",
                                row_sources_[i].grad, describe(grads[i])));
    Value ids;
    auto& tensor = ids.as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(
        tensor.resize(DType::kInt64, {static_cast<int64_t>(grad->rows.size())}));
    std::copy(grad->rows.begin(), grad->rows.end(), tensor.data<int64_t>());
    MILLRACE_RETURN_IF_ERROR(communicator_->send(row_sources_[i].param, std::move(ids)));
  }
  return Ok();
}

}  // namespace millrace::fleet
