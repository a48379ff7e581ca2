#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "executor/block_runner.h"
#include "framework/op_attrs.h"
#include "ps/communicator/communicator.h"
#include "ps/ops/trainer_ops.h"
#include "ps/slices/slicer.h"

// send, recv, send_barrier, fetch_barrier and send_and_recv. Source: spec/ps_runtime.md section 6,
// spec/transpiler.md sections 4 and 14.
namespace millrace::ps {
namespace {

using executor::BlockRunner;
using executor::Control;
using executor::ControlContext;
using executor::ControlRegistry;
using kernels::ArgIndex;
using kernels::KernelSetup;
using Strings = std::vector<std::string>;
using Link = std::shared_ptr<TrainerLink>;

std::vector<std::string> to_strings(llvm::ArrayRef<llvm::StringRef> refs) {
  std::vector<std::string> names;
  for (const llvm::StringRef ref : refs) names.push_back(ref.str());
  return names;
}

// The barrier op after `op` that can carry its transfers; null if there is none, or if an op in
// between reads the received values.
const Op* barrier_after(const Op& op, llvm::StringRef type) {
  const auto outputs = op.output_names();
  for (const Op* next = op.block().next(op); next != nullptr; next = op.block().next(*next)) {
    if (next->type() == type) return next;
    for (const llvm::StringRef name : outputs) {
      if (type == "fetch_barrier" && next->reads(name)) return nullptr;
    }
  }
  return nullptr;
}

struct Send {
  std::vector<std::string> vars;  // X
  std::vector<ArgIndex> args;
  Strings endpoints;
  Strings remote_names;
  std::vector<int64_t> sections;  // rows of each slice of the only var; empty: not split
  std::optional<Slicer> slicer;   // if the only var is split
  bool counts = false;            // the var is a step counter
  bool deferred = false;
};

Status no_value(const std::string& var) {
  Location place;
  place.var = var;
  return Status(StatusCode::kExecution, "the var to send holds no value").at(std::move(place));
}

Status send_count(TrainerLink& link, const Send& send, const Value& value) {
  const auto* const number = value.get_if<Tensor>();
  if (number == nullptr || number->dtype() != DType::kInt64 || number->numel() != 1) {
    return {StatusCode::kExecution,
            fmt::format("a number of steps must be a single i64, found {}", describe(value))};
  }
  std::vector<Client::Call> calls;
  for (const std::string& endpoint : send.endpoints)
    calls.emplace_back(endpoint,
                       protocol::Count{send.remote_names.front(), *number->data<int64_t>()});
  return link.client().call_all(calls);
}

Status run_send(TrainerLink& link, Send& send, ControlContext& ctx) {
  std::vector<TrainerLink::Parcel> parcels;
  for (size_t i = 0; i < send.args.size(); ++i) {
    const Value& value = ctx.args.in_value(send.args[i]);
    if (!value.initialized()) return no_value(send.vars[i]);
    if (link.communicator() != nullptr && link.communicator()->sends(send.vars[i])) {
      MILLRACE_RETURN_IF_ERROR(link.communicator()->send(send.vars[i], value));
      continue;
    }
    if (send.counts) return send_count(link, send, value);
    if (send.sections.empty() && send.args.size() > 1) {
      parcels.push_back({send.endpoints[i], send.remote_names[i], &value});
      continue;
    }
    // a single var: in slices, or whole to one or more servers
    if (send.slicer) MILLRACE_RETURN_IF_ERROR(send.slicer->split(value));
    for (size_t k = 0; k < send.endpoints.size(); ++k) {
      parcels.push_back({send.endpoints[k],
                         send.remote_names[send.remote_names.size() == 1 ? 0 : k],
                         send.slicer ? &send.slicer->slices()[k] : &value});
    }
  }
  if (parcels.empty()) return Ok();
  if (!send.deferred) return link.send(parcels);
  link.keep(parcels);
  return Ok();
}

Status check_counts(const KernelSetup& setup, const Send& send) {
  const size_t vars = send.vars.size();
  const size_t slices = send.sections.size() > 1 ? send.sections.size() : vars;
  const bool to_many = vars == 1 && send.sections.size() <= 1;
  if ((send.endpoints.size() == slices || to_many) &&
      (send.remote_names.size() == slices || (to_many && send.remote_names.size() == 1)))
    return Ok();
  return setup.error(
      "attributes 'epmap' and 'send_varnames' have {} and {} entries for {} vars in {} slices",
      send.endpoints.size(), send.remote_names.size(), vars, slices);
}

// Geo: passes the looked-up ids to the communicator, which knows their servers. The send op of a
// startup program only reports that the parameters are initialized.
StatusOr<Control> make_geo_send(const Link& link, const KernelSetup& setup,
                                const std::vector<std::string>& vars) {
  const auto tables = setup.attr<Strings>("send_varnames");
  if (vars.size() != tables.size()) {
    return setup.error(
        "attribute 'send_varnames' has {} tables for {} vars of ids, expected one per var",
        tables.size(), vars.size());
  }
  const kernels::ArgRange ids = setup.inputs("X");
  return Control([link, tables, ids](ControlContext& ctx) -> Status {
    if (link->communicator() == nullptr) return Ok();
    for (size_t i = 0; i < tables.size(); ++i) {
      if (!link->communicator()->sends(tables[i])) continue;
      MILLRACE_RETURN_IF_ERROR(
          link->communicator()->send(tables[i], ctx.args.in_value(ids, static_cast<int32_t>(i))));
    }
    return Ok();
  });
}

// True if the communicator has a context for every var of a send op without endpoints: these are
// gradients of typed tables.
bool goes_to_tables(const Link& link, const std::vector<std::string>& vars) {
  return link->communicator() != nullptr && !vars.empty() &&
         llvm::all_of(vars, [&](const auto& var) { return link->communicator()->sends(var); });
}

// Checks that the op's attributes agree with the contexts of the communicator.
Status check_context_of(const Link& link, const KernelSetup& setup) {
  const CommContexts& contexts = link->communicator()->send_contexts();
  for (const std::string& name : setup.attr<Strings>("send_varnames")) {
    const auto found = contexts.find(name);
    if (found == contexts.end())
      return setup.error("attribute 'send_varnames' has '{}', which no context sends", name);
    const CommContext& context = found->second;
    const int table = get_attr_or(setup.op(), "table_id", context.table_id);
    if (table != context.table_id)
      return setup.error("attribute 'table_id' is {}, but '{}' goes to table {}", table, name,
                         context.table_id);
    const bool is_sparse = get_attr_or<int32_t>(setup.op(), "is_sparse", context.is_sparse) != 0;
    if (is_sparse != context.is_sparse)
      return setup.error("attribute 'is_sparse' is wrong for '{}', which is {}", name,
                         context.is_sparse ? "sparse" : "dense");
  }
  return Ok();
}

StatusOr<Control> make_table_send(const Link& link, const KernelSetup& setup,
                                  const std::vector<std::string>& vars) {
  MILLRACE_RETURN_IF_ERROR(check_context_of(link, setup));
  const kernels::ArgRange values = setup.inputs("X");
  return Control([link, vars, values](ControlContext& ctx) -> Status {
    for (size_t i = 0; i < vars.size(); ++i) {
      const Value& value = ctx.args.in_value(values, static_cast<int32_t>(i));
      if (!value.initialized()) return no_value(vars[i]);
      MILLRACE_RETURN_IF_ERROR(link->communicator()->send(vars[i], value));
    }
    return Ok();
  });
}

StatusOr<Control> make_send(const Link& link, const KernelSetup& setup) {
  auto send = std::make_shared<Send>();
  send->vars = to_strings(setup.op().input("X"));
  send->endpoints = setup.attr<Strings>("epmap");
  if (send->endpoints.empty() && goes_to_tables(link, send->vars))
    return make_table_send(link, setup, send->vars);
  if (send->endpoints.empty()) return make_geo_send(link, setup, send->vars);
  for (size_t i = 0; i < send->vars.size(); ++i) send->args.push_back(setup.input("X", i));
  send->remote_names = setup.attr<Strings>("send_varnames");
  if (send->remote_names.empty()) send->remote_names = send->vars;
  send->sections = setup.attr<std::vector<int64_t>>("sections");
  send->counts = !setup.attr<bool>("use_send_handler");
  send->deferred = !send->counts && waits_for_send_barrier(setup.op());
  MILLRACE_RETURN_IF_ERROR(check_counts(setup, *send));
  if (send->sections.size() > 1) send->slicer.emplace(send->sections, Repeats::kKeep);
  return Control([link, send](ControlContext& ctx) { return run_send(*link, *send, ctx); });
}

struct Recv {
  std::vector<ArgIndex> args;
  Strings endpoints;
  Strings remote_names;
  std::vector<Value> slices;  // slices of the only var, if it is split
  bool deferred = false;
  bool any_phase = false;
};

Status run_recv(TrainerLink& link, Recv& recv, ControlContext& ctx) {
  std::vector<TrainerLink::Want> wants;
  const bool is_sliced = recv.args.size() == 1 && recv.endpoints.size() > 1;
  if (is_sliced) {
    recv.slices.resize(recv.endpoints.size());
    for (size_t k = 0; k < recv.endpoints.size(); ++k)
      wants.push_back({recv.endpoints[k], recv.remote_names[k], &recv.slices[k]});
    MILLRACE_RETURN_IF_ERROR(link.fetch(wants, recv.any_phase));
    return join_slices(recv.slices, ctx.args.out_value(recv.args.front()));
  }
  for (size_t i = 0; i < recv.args.size(); ++i)
    wants.push_back({recv.endpoints[i], recv.remote_names[i], &ctx.args.out_value(recv.args[i])});
  if (!recv.deferred) return link.fetch(wants, recv.any_phase);
  link.keep(wants);
  return Ok();
}

StatusOr<Control> make_recv(const Link& link, const KernelSetup& setup) {
  auto recv = std::make_shared<Recv>();
  const std::vector<std::string> vars = to_strings(setup.op().output("Out"));
  recv->endpoints = setup.attr<Strings>("epmap");
  if (setup.attr<int32_t>("do_not_run") != 0 || recv->endpoints.empty())
    return Control([](ControlContext& /*ctx*/) { return Ok(); });
  for (size_t i = 0; i < vars.size(); ++i) recv->args.push_back(setup.output("Out", i));
  recv->remote_names = setup.attr<Strings>("recv_varnames");
  if (recv->remote_names.empty()) recv->remote_names = setup.attr<Strings>("varnames");
  if (recv->remote_names.empty()) recv->remote_names = vars;
  const bool fits = recv->endpoints.size() == recv->remote_names.size() &&
                    (vars.size() == 1 || vars.size() == recv->endpoints.size());
  if (!fits) {
    return setup.error("attributes 'epmap' and 'recv_varnames' have {} and {} entries for {} vars",
                       recv->endpoints.size(), recv->remote_names.size(), vars.size());
  }
  recv->any_phase = !setup.attr<bool>("with_barrier");
  const bool is_sliced = vars.size() == 1 && recv->endpoints.size() > 1;
  recv->deferred =
      !recv->any_phase && !is_sliced && barrier_after(setup.op(), "fetch_barrier") != nullptr;
  return Control([link, recv](ControlContext& ctx) { return run_recv(*link, *recv, ctx); });
}

StatusOr<Control> make_send_barrier(const Link& link, const KernelSetup& setup) {
  const auto endpoints = setup.attr<Strings>("endpoints");
  // A half-async barrier joins the threads of one trainer; a trainer with one thread has none to
  // wait for.
  if (setup.attr<bool>("half_async")) return Control([](ControlContext& /*ctx*/) { return Ok(); });
  return Control(
      [link, endpoints](ControlContext& /*ctx*/) { return link->send_barrier(endpoints); });
}

StatusOr<Control> make_fetch_barrier(const Link& link, const KernelSetup& setup) {
  const auto endpoints = setup.attr<Strings>("endpoints");
  return Control(
      [link, endpoints](ControlContext& /*ctx*/) { return link->fetch_barrier(endpoints); });
}

// send_and_recv: runs a block on a heter worker.
StatusOr<Control> make_send_and_recv(const Link& link, const KernelSetup& setup) {
  const auto sent = to_strings(setup.op().input("X"));
  const auto wanted = to_strings(setup.op().output("Out"));
  Strings send_names = setup.attr<Strings>("send_var_name");
  Strings recv_names = setup.attr<Strings>("recv_var_name");
  if (send_names.empty()) send_names = sent;
  if (recv_names.empty()) recv_names = wanted;
  // gradients are sent back along the chain of workers
  const bool back = setup.attr<std::string>("mode") == "backward";
  Strings endpoints = setup.attr<Strings>(back ? "previous_endpoints" : "next_endpoints");
  if (endpoints.empty()) endpoints = setup.attr<Strings>("endpoints");
  if (endpoints.empty()) endpoints = {setup.attr<std::string>("endpoint")};
  if (send_names.size() != sent.size() || recv_names.size() != wanted.size())
    return setup.error(
        "'send_var_name' and 'recv_var_name' must have as many names as the op has vars");
  const auto message = setup.attr<std::string>("message_name");
  const kernels::ArgRange in = setup.inputs("X");
  const kernels::ArgRange out = setup.outputs("Out");
  const auto trainer = static_cast<size_t>(setup.attr<int32_t>("trainer_id"));
  return Control([=](ControlContext& ctx) -> Status {
    protocol::Run run{message, {}, recv_names};
    for (int32_t i = 0; i < in.count; ++i)
      run.inputs.push_back(
          {send_names[static_cast<size_t>(i)], &ctx.args.in_value(in, i), nullptr});
    Client::Call call(endpoints[trainer % endpoints.size()], std::move(run));
    MILLRACE_RETURN_IF_ERROR(link->client().call(call));
    if (call.reply.values.size() != static_cast<size_t>(out.count)) {
      return {StatusCode::kDistributed, fmt::format("the worker returned {} vars, expected {}",
                                                    call.reply.values.size(), out.count)};
    }
    for (int32_t i = 0; i < out.count; ++i)
      ctx.args.out_value(out, i) = std::move(call.reply.values[static_cast<size_t>(i)]);
    return Ok();
  });
}

}  // namespace

bool waits_for_send_barrier(const Op& op) {
  const Op* const barrier = barrier_after(op, "send_barrier");
  if (barrier == nullptr) return false;
  const AttrValue* const half = barrier->find_attr("half_async");
  return half == nullptr || half->kind() != AttrKind::kBool || !half->boolean();
}

void add_transfer_controls(ControlRegistry& registry, const Link& link) {
  const auto add = [&](llvm::StringRef type, auto make) {
    registry.add(type, [link, make](const KernelSetup& setup, BlockRunner&) -> StatusOr<Control> {
      MILLRACE_RETURN_IF_ERROR(check_trainer(*link, setup));
      return make(link, setup);
    });
  };
  add("send", make_send);
  add("recv", make_recv);
  add("send_barrier", make_send_barrier);
  add("fetch_barrier", make_fetch_barrier);
  add("send_and_recv", make_send_and_recv);
}

}  // namespace millrace::ps
