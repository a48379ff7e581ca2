#include "executor/parallel/exchange_kernels.h"

#include <array>
#include <string>
#include <vector>

#include <llvm/ADT/StringSwitch.h>

#include "framework/tensor/join_rows.h"
#include "framework/tensor/layout.h"
#include "kernels/cpu/collective/sum_parts.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/resident.h"

namespace millrace::executor {
namespace exchange_kernels {
namespace {

using kernels::ArgIndex;
using kernels::ArgRange;
using kernels::Kernel;
using kernels::KernelContext;
using kernels::KernelSetup;

struct Exchange {
  explicit Exchange(const KernelSetup& op) : x(op.inputs("X")), number(op.attr<int32_t>("bucket")) {
    spec.kind = llvm::StringSwitch<ExchangeKind>(op.attr<std::string>("kind"))
                    .Case("reduce", ExchangeKind::kReduce)
                    .Case("broadcast", ExchangeKind::kBroadcast)
                    .Case("gather_rows", ExchangeKind::kGatherRows)
                    .Default(ExchangeKind::kAllReduce);
    spec.root = op.attr<int32_t>("root");
    spec.ring = op.attr<int32_t>("ring_id");
    for (const llvm::StringRef name : op.op().input_names()) names.push_back(name.str());
  }
  ArgRange x;
  std::vector<std::string> names;  ///< of the vars of x
  int number;
  ExchangeSpec spec;

  // Sums do not depend on the element order, so any layout is accepted. It must not change between
  // begin and end.
  void accept_layouts(const KernelSetup& op) const {
    for (int32_t k = 0; k < x.count; ++k) op.accept_layout(ArgIndex{x.begin + k});
  }

  [[nodiscard]] bool is_rows() const { return spec.kind == ExchangeKind::kGatherRows; }
};

StatusOr<DeviceInGroup*> group_of(const KernelContext& ctx) {
  auto& self = ctx.device().library<DeviceInGroup>();
  if (self.group == nullptr)
    return ctx.error(
        "the op exchanges values with other devices, but this device belongs to no group");
  return &self;
}

// True if the GPUs exchange values of this type themselves. The same on all devices, wherever a
// value is.
bool is_on_devices(const DeviceInGroup& self, DType dtype) {
  return (self.links != nullptr || self.ranks != nullptr) && gpu::is_exchanged(dtype);
}

// Brings a value of a device with a GPU to where it is exchanged.
Status bring(const KernelContext& ctx, bool on_devices, const std::string& holder, Tensor& tensor) {
  const std::shared_ptr<gpu::Context>& context = gpu::context_of(ctx.device());
  if (context == nullptr) return Ok();
  if (!on_devices) return gpu::resident(tensor) == nullptr ? Ok() : make_plain(tensor);
  MILLRACE_RETURN_IF_ERROR(gpu::move_in(tensor, context->memory(), holder));
  gpu::forget_host(tensor);  // the exchange changes it
  return Ok();
}

// The call of a device for one of the tensors of an exchange.
gpu::CollectiveCall call_of(const ExchangeSpec& spec, const Tensor& tensor) {
  switch (spec.kind) {
    case ExchangeKind::kReduce:
      return {.kind = gpu::CollectiveKind::kReduce,
              .dtype = tensor.dtype(),
              .root = spec.root,
              .count = tensor.numel()};
    case ExchangeKind::kBroadcast:
      return {.kind = gpu::CollectiveKind::kBroadcast, .root = spec.root, .count = tensor.bytes()};
    default:
      return {.kind = gpu::CollectiveKind::kAllReduce,
              .dtype = tensor.dtype(),
              .count = tensor.numel()};
  }
}

// The only device of this process; other processes have theirs.
Status end_on_ranks(const KernelContext& ctx, const DeviceInGroup& self, const Exchange& exchange,
                    ArgRange out) {
  const auto sum = [&]() -> Status {
    if (exchange.spec.kind == ExchangeKind::kBroadcast) return Ok();
    for (int32_t k = 0; k < out.count; ++k) {
      Tensor& tensor = ctx.out(out, k);
      MILLRACE_RETURN_IF_ERROR(
          self.ranks->all_reduce(tensor.dtype(), tensor.raw(), tensor.numel(), exchange.spec.ring));
    }
    return Ok();
  };
  return self.group->end_on_device(
      self.device, exchange.number, [] { return Ok(); }, sum);
}

Status end_on_device(const KernelContext& ctx, const DeviceInGroup& self, const Exchange& exchange,
                     ArgRange out) {
  if (self.ranks != nullptr) return end_on_ranks(ctx, self, exchange, out);
  gpu::Communicator& rank = self.links->of(self.device);
  const auto start = [&]() -> Status {
    for (int32_t k = 0; k < out.count; ++k) {
      Tensor& tensor = ctx.out(out, k);
      const gpu::CollectiveCall call = call_of(exchange.spec, tensor);
      MILLRACE_RETURN_IF_ERROR(rank.start(call, tensor.raw(), tensor.raw()));
    }
    return Ok();
  };
  return self.group->end_on_device(self.device, exchange.number, start,
                                   [&] { return rank.wait(); });
}

Status begin(const KernelContext& ctx, const Exchange& exchange) {
  MILLRACE_ASSIGN_OR_RETURN(DeviceInGroup* const self, group_of(ctx));
  if (exchange.is_rows()) {
    const auto* const rows = ctx.in_value(exchange.x, 0).get_if<SelectedRows>();
    if (rows == nullptr)
      return ctx.error("expected selected rows, found {}", describe(ctx.in_value(exchange.x, 0)));
    MILLRACE_RETURN_IF_ERROR(
        bring(ctx, /*on_devices=*/false, exchange.names[0], const_cast<Tensor&>(rows->value)));
    return self->group->begin_rows(self->device, exchange.number, exchange.spec, *rows);
  }
  llvm::SmallVector<ExchangePart, 16> parts;
  ExchangeSpec spec = exchange.spec;
  DType dtype = DType::kFloat32;
  for (int32_t k = 0; k < exchange.x.count; ++k) {
    if (!ctx.in_value(exchange.x, k).holds<Tensor>()) {
      return ctx.error("expected dense tensors, found {} (X[{}])",
                       describe(ctx.in_value(exchange.x, k)), k);
    }
    // exchange_end names the same vars as its outputs
    Tensor& tensor = ctx.stored_in(ArgIndex{exchange.x.begin + k});
    if (k == 0) dtype = tensor.dtype();
    if (tensor.dtype() != dtype) {
      return ctx.error("expected one element type, found {} and {} (X[{}])", dtype_name(dtype),
                       dtype_name(tensor.dtype()), k);
    }
    spec.on_devices = is_on_devices(*self, dtype);
    MILLRACE_RETURN_IF_ERROR(
        bring(ctx, spec.on_devices, exchange.names[static_cast<size_t>(k)], tensor));
    parts.push_back({nullptr, tensor.numel(), spec.on_devices ? nullptr : &tensor});
  }
  return self->group->begin(self->device, exchange.number, spec, dtype,
                            {parts.data(), parts.size()});
}

StatusOr<Kernel> exchange_begin(const KernelSetup& op) {
  const Exchange exchange(op);
  exchange.accept_layouts(op);
  return Kernel([exchange](const KernelContext& ctx) { return begin(ctx, exchange); });
}

StatusOr<Kernel> exchange_end(const KernelSetup& op) {
  const ArgRange out = op.outputs("Out");
  const Exchange exchange(op);
  exchange.accept_layouts(op);
  return Kernel([exchange, out](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(DeviceInGroup* const self, group_of(ctx));
    if (!exchange.is_rows() && is_on_devices(*self, ctx.out(out, 0).dtype()))
      return end_on_device(ctx, *self, exchange, out);
    if (!exchange.is_rows()) return self->group->end(self->device, exchange.number);
    return self->group->end_rows(self->device, exchange.number,
                                 ctx.out_value(out, 0).as<SelectedRows>());
  });
}

StatusOr<Kernel> shared_updates_end(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  for (int32_t k = 0; k < x.count; ++k) op.accept_layout(ArgIndex{x.begin + k});
  return Kernel([](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(DeviceInGroup* const self, group_of(ctx));
    return self->updates->finish(self->device);
  });
}

// merged += x, and in the last micro-batch x = merged; dense.
Status merge_tensor(const DeviceInGroup& self, Tensor& x, Tensor& merged) {
  if (self.micro_batch == 0) return merged.copy_from(x);
  if (merged.dims() != x.dims() || merged.dtype() != x.dtype()) {
    return KernelContext::error("gradients of micro-batches differ: {} and {}", describe(merged),
                                describe(x));
  }
  const std::array<const std::byte*, 2> parts{merged.raw(), x.raw()};
  const bool last = self.micro_batch + 1 == self.micro_batches;
  std::array<std::byte*, 1> result{last ? x.raw() : merged.raw()};
  return kernels::sum_parts(x.dtype(), parts, result, x.numel());
}

Status merge_rows(const DeviceInGroup& self, SelectedRows& x, SelectedRows& merged) {
  SelectedRows sum;
  if (self.micro_batch == 0) {
    const SelectedRows* const only = &x;
    MILLRACE_RETURN_IF_ERROR(join_rows(only, sum));
  } else {
    const std::array<const SelectedRows*, 2> parts{&merged, &x};
    MILLRACE_RETURN_IF_ERROR(join_rows(parts, sum));
  }
  (self.micro_batch + 1 == self.micro_batches ? x : merged) = std::move(sum);
  return Ok();
}

StatusOr<Kernel> merge_gradient(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const ArgIndex merged = op.output("MergedOut");
  return Kernel([out, merged](const KernelContext& ctx) -> Status {
    const auto& self = ctx.device().library<DeviceInGroup>();
    if (self.micro_batches <= 1) return Ok();
    Value& value = ctx.out_value(out);
    if (auto* const rows = value.get_if<SelectedRows>())
      return merge_rows(self, *rows, ctx.out_value(merged).as<SelectedRows>());
    return merge_tensor(self, value.as<Tensor>(), ctx.out(merged));
  });
}

}  // namespace
}  // namespace exchange_kernels

Status KernelGroup::all_reduce(std::span<double> values) {
  const ExchangePart part{reinterpret_cast<std::byte*>(values.data()),
                          static_cast<int64_t>(values.size())};
  MILLRACE_RETURN_IF_ERROR(group_.begin(device_, exchange_, {}, DType::kFloat64, {&part, 1}));
  return group_.end(device_, exchange_);
}

void add_exchange_kernels(kernels::KernelRegistry& registry) {
  using namespace exchange_kernels;
  registry.add("exchange_begin", exchange_begin);
  registry.add("exchange_end", exchange_end);
  registry.add("shared_updates_end", shared_updates_end);
  registry.add("merge_gradient", merge_gradient);
}

}  // namespace millrace::executor
