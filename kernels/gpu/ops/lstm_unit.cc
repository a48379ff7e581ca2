#include "kernels/gpu/functors/recurrent.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// One time step of an LSTM whose sums are an input.
namespace millrace::gpu {
namespace lstm_unit_ops {
namespace {

// X and C_prev, both f32, with the number of cells. Errors: rejects what does not fit.
struct UnitInputs {
  const Tensor* x;
  const Tensor* previous;
};
StatusOr<UnitInputs> unit_inputs(const KernelContext& ctx, ArgIndex x, ArgIndex previous) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const sums, needed_here(ctx, x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const before, needed_here(ctx, previous, "C_prev"));
  MILLRACE_RETURN_IF_ERROR(all_floats({sums, before}));
  if (before->rank() != 2 || before->numel() == 0 || sums->numel() != 4 * before->numel() ||
      sums->numel() >= int64_t{1} << 31)
    return refuse("X {} and C_prev {}", describe(*sums), describe(*before));
  return UnitInputs{sums, before};
}

StatusOr<Kernel> run_unit(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), previous = op.input("C_prev"),
                 cell = op.output("C"), hidden = op.output("H"),
                 bias = op.attr<float>("forget_bias")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const UnitInputs in, unit_inputs(ctx, x, previous));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const c, output_like(ctx, cell, *in.previous));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const h, output_like(ctx, hidden, *in.previous));
    if (c == nullptr || h == nullptr) return refuse("an output is missing");
    return each(device,
                LstmUnit{floats(in.x), floats(in.previous), floats(c), floats(h),
                         Divider(in.previous->dim(1)), bias},
                c->numel());
  });
}

StatusOr<Kernel> gpu_lstm_unit_grad(const KernelSetup& op) {
  struct Args {
    ArgIndex x, previous, cell, dcell, dhidden, dprevious, dx;
  };
  const Args args{op.input("X"),      op.input("C_prev"), op.input("C"),
                  op.input("C@GRAD"), op.input("H@GRAD"), op.output("C_prev@GRAD"),
                  op.output("X@GRAD")};
  return Kernel([&device = device_of(op), args,
                 bias = op.attr<float>("forget_bias")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const UnitInputs in, unit_inputs(ctx, args.x, args.previous));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const c, needed_here(ctx, args.cell, "C"));
    const Tensor* const dc = ctx.find_in(args.dcell);
    const Tensor* const dh = ctx.find_in(args.dhidden);
    MILLRACE_RETURN_IF_ERROR(all_floats({c, dc, dh}));
    for (const Tensor* const other : {c, dc, dh}) {
      if (other != nullptr && other->numel() != in.previous->numel())
        return refuse("{} for C_prev {}", describe(*other), describe(*in.previous));
    }
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, args.dprevious, *in.previous));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, output_like(ctx, args.dx, *in.x));
    // the functor of the forward op, which only reads here
    const LstmUnit unit{floats(in.x), floats(in.previous),          const_cast<float*>(floats(c)),
                        nullptr,      Divider(in.previous->dim(1)), bias};
    return each(device, LstmUnitGradient{unit, floats(dc), floats(dh), floats(to), floats(dx)},
                c->numel());
  });
}

}  // namespace
}  // namespace lstm_unit_ops

void add_lstm_unit(KernelRegistry& registry) {
  registry.add("lstm_unit", lstm_unit_ops::run_unit);
  registry.add("lstm_unit_grad", lstm_unit_ops::gpu_lstm_unit_grad);
}

}  // namespace millrace::gpu
