#include "transpiler/distribute/cost_model.h"

#include <algorithm>
#include <map>

#include "framework/base/errors.h"
#include "framework/row_owner.h"
#include "ops/cost.h"
#include "transpiler/distribute/optimizer_state.h"
#include "transpiler/distribute/slices_json.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace cost_model {
namespace {

constexpr double kIdBytes = 8;  // an int64 row number

// Work and state of one whole parameter.
struct ParamCost {
  double flops = 0;
  int64_t sliced_state = 0;  ///< divided like the parameter
  int64_t whole_state = 0;   ///< kept whole by every server that holds a slice
};

ParamCost param_cost(const Block& block, const std::vector<const Op*>& ops,
                     const ops::OpRegistry& registry, llvm::ArrayRef<int64_t> dims) {
  ParamCost cost;
  for (const Op* const op : ops) {
    cost.flops += ops::estimate_flops(registry, *op);
    if (!role::is_optimizer(*op)) continue;
    for (const Slot& slot : op->inputs()) {
      if (is_plain_optimizer_slot(op->name_of(slot.name))) continue;
      for (const Arg& arg : slot.args) {
        const Var* const state = block.find_var(arg.name);
        if (state == nullptr) continue;
        (state->dims() == dims ? cost.sliced_state : cost.whole_state) +=
            ops::tensor_bytes(state->spec());
      }
    }
  }
  return cost;
}

void add_slices(const ParamGrad& pair, const ParamCost& cost, CostInput& input) {
  double elems = 0;
  double rows = 0;
  for (const PlacedSlice& placed : pair.slices) {
    elems += static_cast<double>(placed.slice.elems);
    rows += placed.slice.dims.empty() ? 1.0 : static_cast<double>(placed.slice.dims.front());
  }
  for (const PlacedSlice& placed : pair.slices) {
    const Slice& slice = placed.slice;
    const double share = elems > 0 ? static_cast<double>(slice.elems) / elems : 0;
    CostSlice out;
    out.name = placed.param;
    out.server = placed.endpoint;
    out.traffic = pair.prefetched                            ? Traffic::kPrefetch
                  : pair.grad_kind == VarKind::kSelectedRows ? Traffic::kSparse
                                                             : Traffic::kDense;
    out.rows = slice.dims.empty() ? 1 : slice.dims.front();
    out.bytes = slice.elems * dtype_size(pair.dtype);
    out.state_bytes =
        static_cast<int64_t>(static_cast<double>(cost.sliced_state) * share) + cost.whole_state;
    out.update_flops = cost.flops * share;
    out.share_of_table = rows > 0 ? static_cast<double>(out.rows) / rows : 1;
    input.slices.push_back(std::move(out));
  }
}

// Why slice_vars() sliced the parameter like this, or did not.
std::string reason(const ParamGrad& pair, llvm::ArrayRef<int64_t> dims,
                   const DistributionJob& job) {
  const size_t servers = job.endpoints.size();
  const size_t slices = pair.slices.size();
  const int64_t smallest = job.config.min_block_size;
  const int64_t elems = element_count(dims).value_or(0);
  if (slices == 1) {
    if (servers == 1) return "whole: one server";
    if (!job.config.slice_var_up) return "whole: slice_var_up is off";
    if (elems / smallest < 2) return fmt::format("whole: under 2 x {} elements", smallest);
    return "whole: one row";
  }
  if (slices == servers) return "sliced: one slice per server";
  if (static_cast<int64_t>(slices) == elems / smallest)
    return fmt::format("sliced: at least {} elements per slice", smallest);
  return "sliced: as evenly as whole rows allow";
}

ParamNote note_of(const ParamGrad& pair, llvm::ArrayRef<int64_t> dims,
                  const std::vector<const Op*>& ops, const DistributionJob& job) {
  ParamNote note{.param = pair.param, .update_ops = {}, .rate = "", .why = reason(pair, dims, job)};
  for (const Op* const op : ops) {
    note.update_ops.push_back(op->type().str());
    if (note.rate.empty()) note.rate = op->first_input("LearningRate").str();
  }
  return note;
}

// The rows of a distributed table are distributed over all servers by id.
void add_table(const Block& block, const DistributionJob& job, CostInput& input) {
  const Var* const table = block.find_var(job.table.param);
  if (table == nullptr || table->dims().empty()) return;
  const auto servers = static_cast<int64_t>(job.endpoints.size());
  const int64_t rows = rows_of_server(table->dims().front(), 0, servers);
  const int64_t row_bytes =
      ops::tensor_bytes(table->spec()) / std::max<int64_t>(1, table->dims().front());
  input.notes.push_back({.param = job.table.param,
                         .update_ops = {"sgd"},
                         .rate = "",
                         .why = "distributed table: rows distributed by id"});
  for (int32_t server = 0; server < servers; ++server) {
    CostSlice out;
    out.name = job.table.param;
    out.server = server;
    out.traffic = Traffic::kPrefetch;
    out.rows = rows;
    out.bytes = rows * row_bytes;
    // always sgd, whatever the program's optimizer is: two operations per element, a product and a
    // difference
    out.update_flops =
        2.0 * static_cast<double>(out.bytes) / static_cast<double>(dtype_size(table->dtype()));
    out.share_of_table = 1.0 / static_cast<double>(servers);
    input.slices.push_back(std::move(out));
  }
}

Status check(const CostInput& input, const CostOptions& options) {
  if (input.endpoints.empty()) return InvalidArgument("the cost model needs at least one server");
  if (input.trainers < 1) {
    return InvalidArgument("the number of trainers is {}, expected 1 or more", input.trainers);
  }
  if (options.sparse_rows_per_step < 1 || options.network_bytes_per_s <= 0 ||
      options.flops_per_s <= 0 || options.hot_factor <= 0 || input.exchanges_per_step <= 0) {
    return InvalidArgument("an option of the cost model is not positive");
  }
  for (const CostSlice& slice : input.slices) {
    if (slice.server < 0 || static_cast<size_t>(slice.server) >= input.endpoints.size()) {
      return InvalidArgument("slice '{}' is on server {}, expected 0..{}", slice.name, slice.server,
                             input.endpoints.size() - 1);
    }
  }
  return Ok();
}

struct SliceLoad {
  double in = 0;
  double out = 0;
  double flops = 0;
};

SliceLoad load_of(const CostSlice& slice, const CostInput& input, const CostOptions& options) {
  const auto trainers = static_cast<double>(input.trainers);
  const double rows = static_cast<double>(slice.rows);
  const double touched =
      std::min(rows, static_cast<double>(options.sparse_rows_per_step) * slice.share_of_table);
  const double row_bytes = rows > 0 ? static_cast<double>(slice.bytes) / rows : 0;
  const double row_flops = rows > 0 ? slice.update_flops / rows : 0;
  SliceLoad load;
  if (slice.traffic == Traffic::kDense) {
    load.in = trainers * static_cast<double>(slice.bytes);
    load.flops = input.sync ? slice.update_flops : trainers * slice.update_flops;
    // one addition per element for each gradient, and the division by their number
    if (input.sync && input.trainers > 1)
      load.flops += (trainers + 1) * static_cast<double>(slice.bytes) / 4;
  } else {
    load.in = trainers * touched * (row_bytes + kIdBytes);
    const double updated = input.sync ? std::min(rows, trainers * touched) : trainers * touched;
    load.flops = updated * row_flops;
    if (input.sync && input.trainers > 1) load.flops += trainers * touched * row_bytes / 4;
  }
  if (slice.traffic == Traffic::kPrefetch) {
    load.in += trainers * touched * kIdBytes;
    load.out = trainers * touched * row_bytes;
  } else {
    load.out = trainers * static_cast<double>(slice.bytes);
  }
  return load;
}

LoadSummary summarize(const char* name, const std::vector<ServerCost>& servers,
                      double ServerCost::*member) {
  std::vector<double> values;
  LoadSummary out{.name = name};
  for (const ServerCost& server : servers) {
    values.push_back(server.*member);
    out.total += server.*member;
    out.max = std::max(out.max, server.*member);
  }
  out.mean = out.total / static_cast<double>(servers.size());
  out.imbalance = imbalance(values);
  return out;
}

void add_hot_spots(CostReport& report, const LoadSummary& load, double ServerCost::*member) {
  if (load.mean <= 0) return;
  for (size_t i = 0; i < report.servers.size(); ++i) {
    const double factor = report.servers[i].*member / load.mean;
    if (factor > report.options.hot_factor) {
      report.hot_spots.push_back({static_cast<int32_t>(i), load.name, factor});
    }
  }
}

}  // namespace
}  // namespace cost_model

CostInput cost_input(const Program& main, const DistributionJob& job,
                     const ops::OpRegistry& registry) {
  using namespace cost_model;
  CostInput input;
  input.endpoints = job.endpoints;
  input.trainers = job.trainers;
  input.sync = job.merges_per_trainer();
  const Block& block = main.root();
  for (size_t i = 0; i < job.pairs.size(); ++i) {
    const ParamGrad& pair = job.pairs[i];
    const Var* const param = block.find_var(pair.param);
    if (param == nullptr || pair.slices.empty()) continue;
    const std::vector<const Op*> none;
    const auto& ops = i < job.ops_of_pair.size() ? job.ops_of_pair[i] : none;
    add_slices(pair, param_cost(block, ops, registry, param->dims()), input);
    input.notes.push_back(note_of(pair, param->dims(), ops, job));
  }
  if (job.table.exists()) add_table(block, job, input);
  return input;
}

CostInput cost_input(const ProgramProperties& properties, const VarsDistributed& overview,
                     int64_t trainers) {
  CostInput input;
  input.endpoints = properties.endpoints;
  input.trainers = trainers;
  std::map<std::string, int32_t> server_of;
  for (const std::string& endpoint : input.endpoints) {
    server_of.emplace(endpoint, static_cast<int32_t>(server_of.size()));
  }
  for (const DistributedVar& var : overview.vars()) {
    const auto server = server_of.find(var.endpoint);
    if (server == server_of.end()) continue;
    CostSlice slice;
    slice.name = var.slice.name;
    slice.server = server->second;
    slice.rows = var.slice.shape.empty() ? 1 : var.slice.shape.front();
    slice.bytes = slice_bytes(var.slice);
    slice.update_flops = static_cast<double>(element_count(var.slice.shape).value_or(0));
    const auto whole_rows = var.origin.shape.empty() ? 1 : var.origin.shape.front();
    if (whole_rows > 0) {
      slice.share_of_table = static_cast<double>(slice.rows) / static_cast<double>(whole_rows);
    }
    input.slices.push_back(std::move(slice));
  }
  return input;
}

StatusOr<CostReport> estimate_cost(const CostInput& input, const CostOptions& options) {
  using namespace cost_model;
  MILLRACE_RETURN_IF_ERROR(check(input, options));
  CostReport report;
  report.trainers = input.trainers;
  report.sync = input.sync;
  report.options = options;
  for (const std::string& endpoint : input.endpoints) {
    report.servers.emplace_back().endpoint = endpoint;
  }
  std::vector<double> largest(report.servers.size(), 0);
  for (const CostSlice& slice : input.slices) {
    SliceLoad load = load_of(slice, input, options);
    for (double* const part : {&load.in, &load.out, &load.flops}) *part *= input.exchanges_per_step;
    const auto index = static_cast<size_t>(slice.server);
    ServerCost& server = report.servers[index];
    ++server.slices;
    server.held_bytes += static_cast<double>(slice.bytes) + static_cast<double>(slice.state_bytes);
    server.in_bytes += load.in;
    server.out_bytes += load.out;
    server.flops += load.flops;
    if (load.in + load.out > largest[index]) {
      largest[index] = load.in + load.out;
      server.largest = slice.name;
    }
  }
  for (ServerCost& server : report.servers) {
    server.floor_s = std::max({server.in_bytes / options.network_bytes_per_s,
                               server.out_bytes / options.network_bytes_per_s,
                               server.flops / options.flops_per_s});
    report.floor_s = std::max(report.floor_s, server.floor_s);
  }
  const std::pair<const char*, double ServerCost::*> kLoads[] = {{"held", &ServerCost::held_bytes},
                                                                 {"in", &ServerCost::in_bytes},
                                                                 {"out", &ServerCost::out_bytes},
                                                                 {"flops", &ServerCost::flops}};
  for (const auto& [name, member] : kLoads) {
    report.loads.push_back(summarize(name, report.servers, member));
    add_hot_spots(report, report.loads.back(), member);
  }
  std::stable_sort(report.hot_spots.begin(), report.hot_spots.end(),
                   [](const HotSpot& a, const HotSpot& b) { return a.factor > b.factor; });
  return report;
}

}  // namespace millrace::transpiler
