#include <cmath>

#include "kernels/cpu/embedding/class_sampler.h"
#include "kernels/cpu/embedding/remote_rows.h"
#include "kernels/cpu/embedding/row_gradient.h"
#include "kernels/cpu/index.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// Noise-contrastive estimation: each row is scored for its correct classes and for some drawn
// classes. With o the sigmoid of a score and b the expected number of draws of its class, a correct
// class costs -log(o / (o + b)) and a drawn one -log(b / (o + b)). Where the weight is on servers,
// sample_classes draws the classes, so that their rows can be fetched before they are scored.
namespace millrace::kernels {
namespace nce {
namespace {

// How the classes of a step are chosen.
struct DrawArgs {
  explicit DrawArgs(const KernelSetup& op)
      : sampler(op),
        label(op.input("Label")),
        drawn(op.attr<int64_t>("num_neg_samples")),
        seed(op.attr<int64_t>("seed")),
        fixed(op.attr<std::vector<int64_t>>("custom_neg_classes")) {
    if (!fixed.empty()) drawn = static_cast<int64_t>(fixed.size());
  }
  SamplerArgs sampler;
  ArgIndex label;
  int64_t drawn;
  int64_t seed;
  std::vector<int64_t> fixed;
};

struct NceArgs : DrawArgs {
  explicit NceArgs(const KernelSetup& op)
      : DrawArgs(op),
        x(op.input("Input")),
        w(op, "Weight"),
        bias(op.input("Bias")),
        row_weight(op.input("SampleWeight")) {}
  ArgIndex x;
  UsedRowsArgs w;
  ArgIndex bias, row_weight;
};

// The tensors of one run, checked against each other.
struct NceOperands {
  const Tensor* x = nullptr;
  const Tensor* label = nullptr;
  UsedRows w;
  const Tensor* bias = nullptr;
  const Tensor* row_weight = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t right = 0;  // correct classes per row
};

StatusOr<NceOperands> operands_of(const KernelContext& ctx, const NceArgs& args) {
  NceOperands o;
  MILLRACE_ASSIGN_OR_RETURN(o.x, needed(ctx, args.x, "Input"));
  MILLRACE_ASSIGN_OR_RETURN(o.label, needed(ctx, args.label, "Label"));
  MILLRACE_ASSIGN_OR_RETURN(o.w, args.w.read(ctx, *o.x));
  o.bias = ctx.find_in(args.bias);
  o.row_weight = ctx.find_in(args.row_weight);
  if (o.w.dims()[0] < args.sampler.classes)
    return ctx.error("Weight must be {} with {} rows as long as those of Input {}, found {}",
                     dtype_name(o.x->dtype()), args.sampler.classes, describe(*o.x),
                     describe(o.w.tensor()));
  o.rows = o.x->dims()[0];
  o.width = o.x->dims()[1];
  if (o.label->dtype() != DType::kInt64 || o.rows == 0 || o.label->numel() % o.rows != 0)
    return ctx.error("Label must be i64 with as many rows as Input {}, found {}", describe(*o.x),
                     describe(*o.label));
  o.right = o.label->numel() / o.rows;
  MILLRACE_RETURN_IF_ERROR(
      check_range(o.label->data<int64_t>(), o.label->numel(), args.sampler.classes, "Label"));
  const auto fits = [&](const Tensor* tensor, int64_t count) {
    return tensor == nullptr || (tensor->numel() == count && tensor->dtype() == o.x->dtype());
  };
  if (!fits(o.bias, o.w.dims()[0]) || !fits(o.row_weight, o.rows))
    return ctx.error(
        "Bias must have an element for each row of Weight {}, SampleWeight one for "
        "each row of Input {}",
        describe(o.w.tensor()), describe(*o.x));
  if (o.w.is_fetched() && o.w.tensor().dim(1) != o.right + args.drawn)
    return ctx.error("Rows has {} rows for each row of Input, expected {}", o.w.tensor().dim(1),
                     o.right + args.drawn);
  return o;
}

Status check_fixed_classes(const KernelSetup& op, const DrawArgs& args) {
  for (const int64_t c : args.fixed) {
    if (c < 0 || c >= args.sampler.classes)
      return op.error("attribute 'custom_neg_classes' has {}, expected one of [0, {})", c,
                      args.sampler.classes);
  }
  return Ok();
}

void choose_classes(const DrawArgs& args, const Tensor& label, int64_t rows,
                    const ClassSampler& sampler, uint64_t key, int64_t* classes) {
  uint64_t draws = 0;
  const int64_t right = label.numel() / rows;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t* const labels = label.data<int64_t>() + i * right;
    classes = std::copy(labels, labels + right, classes);
    for (int64_t j = 0; j < args.drawn; ++j)
      *classes++ = args.fixed.empty() ? sampler.draw(random_bits(key, draws++))
                                      : args.fixed[static_cast<size_t>(j)];
  }
}

template <typename T>
void score(const NceArgs& args, const NceOperands& o, const ClassSampler& sampler,
           const int64_t* classes, T* logits, T* cost) {
  const int64_t samples = o.right + args.drawn;
  for (int64_t i = 0; i < o.rows; ++i) {
    const T* const from = o.x->data<T>() + i * o.width;
    T sum{};
    for (int64_t j = 0; j < samples; ++j) {
      const int64_t c = classes[i * samples + j];
      const T* const weight = o.w.row<T>(i, j, c);
      const T z = lane_sum<T>(o.width, [&](int64_t k) { return weight[k] * from[k]; }) +
                  (o.bias == nullptr ? T{} : o.bias->data<T>()[c]);
      const T unit = T(1) / (T(1) + std::exp(-z));
      const T b = static_cast<T>(sampler.probability(c) * static_cast<double>(args.drawn));
      logits[i * samples + j] = unit;
      sum -= std::log((j < o.right ? unit : b) / (unit + b));
    }
    cost[i] = sum * (o.row_weight == nullptr ? T(1) : o.row_weight->data<T>()[i]);
  }
}

StatusOr<Kernel> sample_classes(const KernelSetup& op) {
  const DrawArgs args(op);
  MILLRACE_RETURN_IF_ERROR(check_fixed_classes(op, args));
  const ArgIndex classes_arg = op.output("SampleLabels");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const label, needed(ctx, args.label, "Label"));
    if (label->dtype() != DType::kInt64 || label->rank() == 0 || label->numel() == 0)
      return ctx.error("Label must be i64 with at least one class, found {}", describe(*label));
    MILLRACE_RETURN_IF_ERROR(
        check_range(label->data<int64_t>(), label->numel(), args.sampler.classes, "Label"));
    MILLRACE_ASSIGN_OR_RETURN(const ClassSampler sampler, args.sampler.read(ctx));
    const int64_t rows = label->dim(0);
    Tensor& classes = ctx.out(classes_arg);
    MILLRACE_RETURN_IF_ERROR(
        size_output(classes, DType::kInt64, {rows, label->numel() / rows + args.drawn}));
    choose_classes(args, *label, rows, sampler, stream_key(ctx.device(), args.seed),
                   classes.data<int64_t>());
    return Ok();
  });
}

// The classes that were chosen before their rows were fetched. Null: the op chooses itself.
StatusOr<const Tensor*> chosen_classes(const KernelContext& ctx, ArgIndex arg, const NceArgs& args,
                                       const NceOperands& o) {
  const Tensor* const chosen = ctx.find_in(arg);
  if ((chosen != nullptr) != o.w.is_fetched())
    return ctx.error("inputs 'Rows' and 'Classes' need each other");
  if (chosen == nullptr) return chosen;
  const int64_t count = o.rows * (o.right + args.drawn);
  if (chosen->dtype() != DType::kInt64 || chosen->numel() != count)
    return ctx.error("Classes must be i64 with {} classes for each row of Input, found {}",
                     o.right + args.drawn, describe(*chosen));
  MILLRACE_RETURN_IF_ERROR(
      check_range(chosen->data<int64_t>(), count, args.sampler.classes, "Classes"));
  return chosen;
}

StatusOr<Kernel> make_forward(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "Weight"));
  const NceArgs args(op);
  MILLRACE_RETURN_IF_ERROR(check_fixed_classes(op, args));
  const ArgIndex chosen_arg = op.input("Classes");
  const ArgIndex cost_arg = op.output("Cost");
  const ArgIndex logits_arg = op.output("SampleLogits");
  const ArgIndex classes_arg = op.output("SampleLabels");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const NceOperands o, operands_of(ctx, args));
    MILLRACE_ASSIGN_OR_RETURN(const ClassSampler sampler, args.sampler.read(ctx));
    const Dims dims = {o.rows, o.right + args.drawn};
    Tensor classes_room;
    Tensor logits_room;
    Tensor* const given_classes = ctx.find_out(classes_arg);
    Tensor* const given_logits = ctx.find_out(logits_arg);
    Tensor& classes = given_classes == nullptr ? classes_room : *given_classes;
    Tensor& logits = given_logits == nullptr ? logits_room : *given_logits;
    MILLRACE_RETURN_IF_ERROR(size_output(classes, DType::kInt64, dims));
    MILLRACE_RETURN_IF_ERROR(size_output(logits, o.x->dtype(), dims));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const chosen, chosen_classes(ctx, chosen_arg, args, o));
    if (chosen != nullptr) {
      copy_bytes(ctx.device(), classes.raw(), chosen->raw(), chosen->bytes());
    } else {
      choose_classes(args, *o.label, o.rows, sampler, stream_key(ctx.device(), args.seed),
                     classes.data<int64_t>());
    }
    return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      score<T>(args, o, sampler, classes.data<int64_t>(), logits.data<T>(),
               ctx.out(cost_arg).data<T>());
      return Ok();
    });
  });
}

struct NceGradArgs {
  explicit NceGradArgs(const KernelSetup& op)
      : forward(op),
        logits(op.input("SampleLogits")),
        classes(op.input("SampleLabels")),
        grad(op.input("Cost@GRAD")),
        x_grad(op.output("Input@GRAD")),
        w_grad(op.output("Weight@GRAD")),
        bias_grad(op.output("Bias@GRAD")),
        sparse(op.attr<bool>("is_sparse")) {}
  NceArgs forward;
  ArgIndex logits, classes, grad;
  ArgIndex x_grad, w_grad, bias_grad;
  bool sparse;
};

// Derivative of the cost with respect to the score of one class.
template <typename T>
T slope(T unit, T b, bool right) {
  return right ? -(T(1) - unit) * b / (unit + b) : unit * (T(1) - unit) / (unit + b);
}

template <typename T>
Status backward_as(const KernelContext& ctx, const NceGradArgs& args, const NceOperands& o,
                   const ClassSampler& sampler, llvm::ArrayRef<int64_t> classes, const T* logits,
                   const T* grad) {
  Tensor* const dx = ctx.find_out(args.x_grad);
  Tensor* const db = ctx.find_out(args.bias_grad);
  for (Tensor* const tensor : {dx, db}) {
    if (tensor != nullptr) fill_zero(ctx.device(), *tensor);
  }
  Value unused;
  Value& w_out = args.w_grad ? ctx.out_value(args.w_grad) : unused;
  MILLRACE_ASSIGN_OR_RETURN(
      RowGradient<T> dw,
      RowGradient<T>::open(ctx, w_out, args.sparse, o.w.dims(),
                           std::vector<int64_t>(classes.begin(), classes.end())));
  const int64_t samples = o.right + args.forward.drawn;
  for (int64_t i = 0; i < o.rows; ++i) {
    const T scale = grad[i] * (o.row_weight == nullptr ? T(1) : o.row_weight->data<T>()[i]);
    for (int64_t j = 0; j < samples; ++j) {
      const int64_t c = classes[static_cast<size_t>(i * samples + j)];
      const T b = static_cast<T>(sampler.probability(c) * static_cast<double>(args.forward.drawn));
      const T g = scale * slope(logits[i * samples + j], b, j < o.right);
      add_scaled(dw.row(c), o.x->data<T>() + i * o.width, g, o.width);
      if (dx != nullptr) add_scaled(dx->data<T>() + i * o.width, o.w.row<T>(i, j, c), g, o.width);
      if (db != nullptr) db->data<T>()[c] += g;
    }
  }
  return Ok();
}

StatusOr<Kernel> backward(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "Weight"));
  const NceGradArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const NceOperands o, operands_of(ctx, args.forward));
    MILLRACE_ASSIGN_OR_RETURN(const ClassSampler sampler, args.forward.sampler.read(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const logits, needed(ctx, args.logits, "SampleLogits"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const classes,
                              needed(ctx, args.classes, "SampleLabels"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, args.grad, "Cost@GRAD"));
    const int64_t count = o.rows * (o.right + args.forward.drawn);
    if (logits->numel() != count || logits->dtype() != o.x->dtype() || classes->numel() != count ||
        classes->dtype() != DType::kInt64 || grad->numel() != o.rows ||
        grad->dtype() != o.x->dtype())
      return ctx.error("SampleLogits {}, SampleLabels {} and Cost@GRAD {} do not fit Input {}",
                       describe(*logits), describe(*classes), describe(*grad), describe(*o.x));
    MILLRACE_RETURN_IF_ERROR(
        check_range(classes->data<int64_t>(), count, args.forward.sampler.classes, "SampleLabels"));
    return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return backward_as<T>(ctx, args, o, sampler,
                            {classes->data<int64_t>(), static_cast<size_t>(count)},
                            logits->data<T>(), grad->data<T>());
    });
  });
}

}  // namespace
}  // namespace nce

void add_embedding_nce(KernelRegistry& registry) {
  using namespace nce;
  registry.add("nce", make_forward);
  registry.add("nce_grad", backward);
  registry.add("sample_classes", sample_classes);
}

}  // namespace millrace::kernels
