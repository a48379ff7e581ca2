#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "executor/block_runner.h"
#include "executor/collective/gather_rows.h"
#include "executor/compiled_ops/control.h"
#include "executor/control/exchange_place.h"
#include "framework/base/errors.h"
#include "framework/names.h"

// Ops in which all ranks of a ring take part, with values in host or GPU memory (exchange_place.h).
// Each op is complete when it returns, so ops that only synchronize streams just pass their vars
// on. Source: spec/transpiler.md section 10.
namespace millrace::executor {
namespace {

using kernels::ArgIndex;
using kernels::ArgRange;
using kernels::KernelSetup;

// The older op types have no ring.
int32_t ring_number(const KernelSetup& setup) {
  return setup.def().find_attr("ring_id") == nullptr ? 0 : setup.attr<int32_t>("ring_id");
}

// Values of these inputs may be in host or GPU memory.
void accept_anywhere(const KernelSetup& setup, ArgRange args) {
  for (int32_t k = 0; k < args.count; ++k) setup.accept_layout(ArgIndex{args.begin + k});
}

// Copies X to Out at the location where it is exchanged, then calls body(group, value) with Out.
template <typename Body>
Control in_place(const KernelSetup& setup, Body body) {
  const ArgIndex x = setup.input("X");
  const ArgIndex out = setup.output("Out");
  const int32_t number = ring_number(setup);
  accept_anywhere(setup, setup.inputs("X"));
  return [x, out, number, body, type = setup.op().type().str()](ControlContext& ctx) -> Status {
    const Value& from = ctx.args.in_value(x);
    Value& value = ctx.args.out_value(out);
    MILLRACE_ASSIGN_OR_RETURN(const ExchangePlace place, ExchangePlace::find(ctx, number, from));
    MILLRACE_RETURN_IF_ERROR(place.pass_on(from, value, type));
    return body(place.group(), value);
  };
}

StatusOr<Tensor*> dense(Value& value) {
  if (auto* const tensor = value.get_if<Tensor>()) return tensor;
  return Status(StatusCode::kExecution,
                fmt::format("expected a dense tensor, found {}", describe(value)));
}

Status all_reduce(CollectiveGroup& group, Value& value, Reduction reduction) {
  auto* const rows = value.get_if<SelectedRows>();
  if (rows != nullptr && reduction == Reduction::kSum) return gather_rows(group, *rows);
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const tensor, dense(value));
  return group.all_reduce(tensor->dtype(), tensor->raw(), tensor->numel(), reduction);
}

template <Reduction reduction>
StatusOr<Control> c_allreduce(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const ArgIndex condition = setup.input("Cond");
  Control control = in_place(setup, [](CollectiveGroup& group, Value& value) {
    return all_reduce(group, value, reduction);
  });
  if (!condition) return control;
  const ArgIndex x = setup.input("X");
  const ArgIndex out = setup.output("Out");
  return Control([control = std::move(control), condition, x, out](ControlContext& ctx) -> Status {
    const Value& value = ctx.args.in_value(condition);
    const auto* const wanted = value.get_if<Tensor>();
    if (wanted == nullptr || !wanted->initialized() || wanted->dtype() != DType::kBool ||
        wanted->numel() != 1)
      return kernels::KernelContext::error("Cond must be one bool, found {}", describe(value));
    return *wanted->data<bool>() ? control(ctx)
                                 : pass_on_plain(ctx.args.in_value(x), ctx.args.out_value(out));
  });
}

template <Reduction reduction>
StatusOr<Control> c_reduce(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const auto root = setup.attr<int32_t>("root_id");
  return in_place(setup, [root](CollectiveGroup& group, Value& value) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const tensor, dense(value));
    return group.reduce(tensor->dtype(), tensor->raw(), tensor->numel(), reduction, root);
  });
}

StatusOr<Control> allreduce(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const auto reduction = static_cast<Reduction>(setup.attr<int32_t>("reduce_type"));
  return in_place(setup, [reduction](CollectiveGroup& group, Value& value) {
    return all_reduce(group, value, reduction);
  });
}

StatusOr<Control> c_broadcast(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const auto root = setup.attr<int32_t>("root");
  return in_place(setup, [root](CollectiveGroup& group, Value& value) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const tensor, dense(value));
    return group.broadcast(tensor->raw(), tensor->bytes(), root);
  });
}

StatusOr<Control> barrier(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const ArgIndex x = setup.input("X");
  const ArgIndex out = setup.output("Out");
  const int32_t number = ring_number(setup);
  accept_anywhere(setup, setup.inputs("X"));
  return Control([x, out, number](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Rings* const rings, find_rings(ctx.runner, kExchanges));
    MILLRACE_ASSIGN_OR_RETURN(CollectiveGroup* const group, rings->ring(number));
    MILLRACE_RETURN_IF_ERROR(pass_on_plain(ctx.args.in_value(x), ctx.args.out_value(out)));
    return group->barrier();
  });
}

StatusOr<Control> allreduce_list(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const ArgRange x = setup.inputs("X");
  const ArgRange out = setup.outputs("Out");
  const int32_t number = ring_number(setup);
  accept_anywhere(setup, x);
  return Control([x, out, number, type = setup.op().type().str()](ControlContext& ctx) -> Status {
    for (int32_t k = 0; k < x.count; ++k) {
      const Value& from = ctx.args.in_value(x, k);
      Value& value = ctx.args.out_value(out, k);
      MILLRACE_ASSIGN_OR_RETURN(const ExchangePlace place, ExchangePlace::find(ctx, number, from));
      MILLRACE_RETURN_IF_ERROR(place.pass_on(from, value, type));
      MILLRACE_RETURN_IF_ERROR(all_reduce(place.group(), value, Reduction::kSum));
    }
    return Ok();
  });
}

Status check_ranks(const CollectiveGroup& group, int32_t ranks) {
  if (group.size() == ranks) return Ok();
  return {StatusCode::kInvalidArgument,
          fmt::format("the op is for {} ranks, but the ring has {}", ranks, group.size())};
}

// Ops in which Out has other dims than X: X, at the location where it is exchanged, gives a new
// Out.
struct PartsOp {
  /// Dims of Out by X and the number of ranks.
  StatusOr<Dims> (*dims)(const Tensor& x, int32_t ranks);
  Status (*exchange)(CollectiveGroup& group, const Tensor& from, Tensor& to);
};

StatusOr<Control> with_parts(const KernelSetup& setup, const PartsOp& op) {
  const ArgIndex x = setup.input("X");
  const ArgIndex out = setup.output("Out");
  const int32_t number = ring_number(setup);
  const auto ranks = setup.attr<int32_t>("nranks");
  accept_anywhere(setup, setup.inputs("X"));
  const std::string type = setup.op().type().str();
  return Control([x, out, number, ranks, type, op](ControlContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const ExchangePlace place,
                              ExchangePlace::find(ctx, number, ctx.args.in_value(x)));
    MILLRACE_RETURN_IF_ERROR(check_ranks(place.group(), ranks));
    const Tensor& own = ctx.args.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const Dims dims, op.dims(own, ranks));
    Tensor copy;
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, place.read(own, copy, type));
    MILLRACE_ASSIGN_OR_RETURN(Tensor to, place.make(own.dtype(), dims, type));
    MILLRACE_RETURN_IF_ERROR(op.exchange(place.group(), *from, to));
    ctx.args.out(out) = std::move(to);
    return Ok();
  });
}

StatusOr<Dims> joined_dims(const Tensor& x, int32_t ranks) {
  if (x.rank() == 0)
    return Status(StatusCode::kExecution,
                  fmt::format("expected dims to concatenate along, found {}", describe(x)));
  Dims dims(x.dims().begin(), x.dims().end());
  dims[0] *= ranks;
  return dims;
}

StatusOr<Dims> divided_dims(const Tensor& x, int32_t ranks) {
  if (x.rank() == 0 || x.dim(0) % ranks != 0) {
    return Status(
        StatusCode::kExecution,
        fmt::format("dim 0 of 'X' must be a multiple of {} ranks, found {}", ranks, describe(x)));
  }
  Dims dims(x.dims().begin(), x.dims().end());
  dims[0] /= ranks;
  return dims;
}

StatusOr<Control> c_allgather(const KernelSetup& setup, BlockRunner& /*runner*/) {
  return with_parts(setup,
                    {joined_dims, [](CollectiveGroup& group, const Tensor& from, Tensor& to) {
                       return group.all_gather(from.raw(), from.bytes(), to.raw());
                     }});
}

StatusOr<Control> c_reducescatter(const KernelSetup& setup, BlockRunner& /*runner*/) {
  return with_parts(setup,
                    {divided_dims, [](CollectiveGroup& group, const Tensor& from, Tensor& to) {
                       return group.reduce_scatter(from.dtype(), from.raw(), to.numel(), to.raw());
                     }});
}

// A process without peers has nothing to synchronize; otherwise the ring must exist.
StatusOr<Control> order(const KernelSetup& setup, BlockRunner& /*runner*/) {
  const ArgRange x = setup.inputs("X");
  const ArgRange out = setup.outputs("Out");
  const int32_t number = ring_number(setup);
  accept_anywhere(setup, x);
  return Control([x, out, number](ControlContext& ctx) -> Status {
    const Rings* const rings = ctx.runner.runtime().rings.get();
    if (rings != nullptr) MILLRACE_RETURN_IF_ERROR(rings->check_made(number));
    for (int32_t k = 0; k < std::min(x.count, out.count); ++k) {
      if (ctx.args.has_in(x, k) && ctx.args.has_out(out, k))
        MILLRACE_RETURN_IF_ERROR(
            pass_on_plain(ctx.args.in_value(x, k), ctx.args.out_value(out, k)));
    }
    return Ok();
  });
}

}  // namespace

void add_collective(ControlRegistry& registry) {
  registry.add("allreduce", allreduce);
  registry.add("barrier", barrier);
  registry.add("broadcast", c_broadcast);
  registry.add("c_allgather", c_allgather);
  registry.add("c_allreduce_max", c_allreduce<Reduction::kMax>);
  registry.add("c_allreduce_min", c_allreduce<Reduction::kMin>);
  registry.add("c_allreduce_prod", c_allreduce<Reduction::kProd>);
  registry.add("c_allreduce_sum", c_allreduce<Reduction::kSum>);
  registry.add("c_allreduce_xsum", allreduce_list);
  registry.add("c_broadcast", c_broadcast);
  registry.add("c_reduce_max", c_reduce<Reduction::kMax>);
  registry.add("c_reduce_min", c_reduce<Reduction::kMin>);
  registry.add("c_reduce_prod", c_reduce<Reduction::kProd>);
  registry.add("c_reduce_sum", c_reduce<Reduction::kSum>);
  registry.add("c_reducescatter", c_reducescatter);
  for (const char* const type :
       {"c_sync_calc_stream", "c_sync_comm_stream", "c_wait_comm", "c_wait_compute"})
    registry.add(type, order);
}

}  // namespace millrace::executor
