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
// class costs -log(o / (o + b)) and a drawn one -log(b / (o + b)).
namespace millrace::kernels {
namespace {

struct NceArgs {
  explicit NceArgs(const KernelSetup& op)
      : sampler(op),
        x(op.input("Input")),
        label(op.input("Label")),
        w(op.input("Weight")),
        bias(op.input("Bias")),
        row_weight(op.input("SampleWeight")),
        drawn(op.attr<int64_t>("num_neg_samples")),
        seed(op.attr<int64_t>("seed")),
        fixed(op.attr<std::vector<int64_t>>("custom_neg_classes")) {
    if (!fixed.empty()) drawn = static_cast<int64_t>(fixed.size());
  }
  SamplerArgs sampler;
  ArgIndex x, label, w, bias, row_weight;
  int64_t drawn;
  int64_t seed;
  std::vector<int64_t> fixed;
};

// The tensors of one run, checked against each other.
struct NceOperands {
  const Tensor* x = nullptr;
  const Tensor* label = nullptr;
  const Tensor* w = nullptr;
  const Tensor* bias = nullptr;
  const Tensor* row_weight = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t right = 0;  // correct classes per row
};

StatusOr<NceOperands> operands_of_nce(const KernelContext& ctx, const NceArgs& args) {
  NceOperands o;
  MILLRACE_ASSIGN_OR_RETURN(o.x, needed(ctx, args.x, "Input"));
  MILLRACE_ASSIGN_OR_RETURN(o.label, needed(ctx, args.label, "Label"));
  MILLRACE_ASSIGN_OR_RETURN(o.w, needed(ctx, args.w, "Weight"));
  o.bias = ctx.find_in(args.bias);
  o.row_weight = ctx.find_in(args.row_weight);
  if (o.x->rank() != 2 || o.w->rank() != 2 || o.x->dims()[1] != o.w->dims()[1] ||
      o.x->dtype() != o.w->dtype() || o.w->dims()[0] < args.sampler.classes)
    return ctx.error("Weight must be {} with {} rows as long as those of Input {}, found {}",
                     dtype_name(o.x->dtype()), args.sampler.classes, describe(*o.x),
                     describe(*o.w));
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
  if (!fits(o.bias, o.w->dims()[0]) || !fits(o.row_weight, o.rows))
    return ctx.error(
        "Bias must have an element for each row of Weight {}, SampleWeight one for "
        "each row of Input {}",
        describe(*o.w), describe(*o.x));
  return o;
}

void choose_classes(const NceArgs& args, const NceOperands& o, const ClassSampler& sampler,
                    uint64_t key, int64_t* classes) {
  uint64_t draws = 0;
  for (int64_t i = 0; i < o.rows; ++i) {
    const int64_t* const labels = o.label->data<int64_t>() + i * o.right;
    classes = std::copy(labels, labels + o.right, classes);
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
      const T* const weight = o.w->data<T>() + c * o.width;
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

StatusOr<Kernel> forward_nce(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "Weight"));
  const NceArgs args(op);
  const ArgIndex cost_arg = op.output("Cost");
  const ArgIndex logits_arg = op.output("SampleLogits");
  const ArgIndex classes_arg = op.output("SampleLabels");
  for (const int64_t c : args.fixed) {
    if (c < 0 || c >= args.sampler.classes)
      return op.error("attribute 'custom_neg_classes' has {}, expected one of [0, {})", c,
                      args.sampler.classes);
  }
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const NceOperands o, operands_of_nce(ctx, args));
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
    choose_classes(args, o, sampler, stream_key(ctx.device(), args.seed), classes.data<int64_t>());
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
T slope_nce(T unit, T b, bool right) {
  return right ? -(T(1) - unit) * b / (unit + b) : unit * (T(1) - unit) / (unit + b);
}

template <typename T>
Status backward_as_nce(const KernelContext& ctx, const NceGradArgs& args, const NceOperands& o,
                       const ClassSampler& sampler, llvm::ArrayRef<int64_t> classes,
                       const T* logits, const T* grad) {
  Tensor* const dx = ctx.find_out(args.x_grad);
  Tensor* const db = ctx.find_out(args.bias_grad);
  for (Tensor* const tensor : {dx, db}) {
    if (tensor != nullptr) fill_zero(ctx.device(), *tensor);
  }
  Value unused;
  Value& w_out = args.w_grad ? ctx.out_value(args.w_grad) : unused;
  MILLRACE_ASSIGN_OR_RETURN(
      RowGradient<T> dw,
      RowGradient<T>::open(ctx, w_out, args.sparse, o.w->dims(),
                           std::vector<int64_t>(classes.begin(), classes.end())));
  const int64_t samples = o.right + args.forward.drawn;
  for (int64_t i = 0; i < o.rows; ++i) {
    const T scale = grad[i] * (o.row_weight == nullptr ? T(1) : o.row_weight->data<T>()[i]);
    for (int64_t j = 0; j < samples; ++j) {
      const int64_t c = classes[static_cast<size_t>(i * samples + j)];
      const T b = static_cast<T>(sampler.probability(c) * static_cast<double>(args.forward.drawn));
      const T g = scale * slope_nce(logits[i * samples + j], b, j < o.right);
      add_scaled(dw.row(c), o.x->data<T>() + i * o.width, g, o.width);
      if (dx != nullptr)
        add_scaled(dx->data<T>() + i * o.width, o.w->data<T>() + c * o.width, g, o.width);
      if (db != nullptr) db->data<T>()[c] += g;
    }
  }
  return Ok();
}

StatusOr<Kernel> backward_nce(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "Weight"));
  const NceGradArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const NceOperands o, operands_of_nce(ctx, args.forward));
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
      return backward_as_nce<T>(ctx, args, o, sampler,
                                {classes->data<int64_t>(), static_cast<size_t>(count)},
                                logits->data<T>(), grad->data<T>());
    });
  });
}

}  // namespace

void add_embedding_nce(KernelRegistry& registry) {
  registry.add("nce", forward_nce);
  registry.add("nce_grad", backward_nce);
}

}  // namespace millrace::kernels
