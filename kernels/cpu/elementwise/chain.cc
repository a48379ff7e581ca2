#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <llvm/ADT/StringSwitch.h>

#include "framework/program.h"
#include "framework/text_form/parse.h"
#include "kernels/cpu/elementwise/stage.h"
#include "kernels/cpu/layouts.h"
#include "kernels/cpu/nest.h"
#include "kernels/registry.h"
#include "ops/registry.h"

// elementwise_chain: each chunk, small enough for the L1 cache, passes through all operations.
namespace millrace::kernels {
namespace {

constexpr int64_t kPiece = 1024;
constexpr int32_t kRunning = -1;  // operand that is the result of the previous operation

using OperatorLoop = void (*)(const float* x, const float* y, float* out, int64_t count);

template <typename F>
void operator_loop(const float* x, const float* y, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = F()(x[i], y[i]);
}

OperatorLoop operator_of(llvm::StringRef type) {
  return llvm::StringSwitch<OperatorLoop>(type)
      .Case("elementwise_add", operator_loop<std::plus<float>>)
      .Case("elementwise_sub", operator_loop<std::minus<float>>)
      .Case("elementwise_mul", operator_loop<std::multiplies<float>>)
      .Case("elementwise_div", operator_loop<std::divides<float>>)
      .Default(nullptr);
}

struct Scaling {
  float scale;
  float bias;
};
Stage scale_stage(const KernelSetup& op) {
  const auto scale = op.attr<float>("scale");
  const auto bias = op.attr<float>("bias");
  const bool after = op.attr<bool>("bias_after_scale");
  Stage stage;
  stage.formula = std::make_shared<Scaling>(Scaling{scale, after ? bias : bias * scale});
  stage.loop = [](const void* formula, const float* v, const float* /*dout*/, float* out,
                  int64_t count) {
    const Scaling f = *static_cast<const Scaling*>(formula);
    for (int64_t i = 0; i < count; ++i) out[i] = f.scale * v[i] + f.bias;
  };
  return stage;
}

// One operation of the chain: a function of one operand (or its gradient, with two), or an
// arithmetic operator.
struct ChainStep {
  Stage stage;
  OperatorLoop both = nullptr;
  int32_t first = kRunning;
  int32_t second = kRunning;

  void run(const float* a, const float* b, float* out, int64_t count) const {
    if (both != nullptr) return both(a, b, out, count);
    if (stage.is_gradient) return stage.loop(stage.formula.get(), a, b, out, count);
    stage.loop(stage.formula.get(), a, nullptr, out, count);
  }
};

// The operand that an operation names t or x<number>.
StatusOr<int32_t> operand(const KernelSetup& op, const Op& step, llvm::StringRef slot,
                          int32_t inputs, bool is_first) {
  llvm::StringRef name = step.first_input(slot);
  int32_t number = 0;
  if (name == "t" && !is_first) return kRunning;
  if (!name.consume_front("x") || name.getAsInteger(10, number) || number < 0 || number >= inputs) {
    return op.error("attribute 'steps': '{}' has {} '{}', expected t or x0 to x{}",
                    step.type().str(), slot.str(), step.first_input(slot).str(), inputs - 1);
  }
  return number;
}

// The supported operations; built once per device.
struct Known {
  StageTable stages;

  Known() {
    add_rectifiers(stages);
    add_smooth_activations(stages);
    add_functions(stages);
    stages.add("scale", scale_stage);
  }
};

StatusOr<ChainStep> make_step(const KernelSetup& op, const Op& step, const Known& known,
                              int32_t inputs, bool is_first) {
  ChainStep made;
  made.both = operator_of(step.type());
  if (made.both != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(made.first, operand(op, step, "X", inputs, is_first));
    MILLRACE_ASSIGN_OR_RETURN(made.second, operand(op, step, "Y", inputs, is_first));
    return made;
  }
  const ops::OpDef* const def = op.schemas().find(step.type());
  const StageMaker maker = known.stages.find(step.type());
  if (def == nullptr || maker == nullptr) {
    return Status(StatusCode::kUnimplemented,
                  fmt::format("attribute 'steps': no loop for '{}'", step.type().str()));
  }
  made.stage = maker(KernelSetup(*def, step, op.device(), op.schemas()));
  if (!made.stage.is_gradient) {
    MILLRACE_ASSIGN_OR_RETURN(made.first, operand(op, step, "X", inputs, is_first));
    return made;
  }
  MILLRACE_ASSIGN_OR_RETURN(made.second, operand(op, step, "Out@GRAD", inputs, is_first));
  made.first = made.second;
  if (made.stage.from != GradSource::kNothing) {
    const char* const slot = made.stage.from == GradSource::kX ? "X" : "Out";
    MILLRACE_ASSIGN_OR_RETURN(made.first, operand(op, step, slot, inputs, is_first));
  }
  return made;
}

StatusOr<std::vector<ChainStep>> make_steps(const KernelSetup& op, int32_t inputs) {
  std::string text = "# millrace program 1\nblock 0 {\n";
  for (const std::string& step : op.attr<std::vector<std::string>>("steps")) text += step + "\n";
  MILLRACE_ASSIGN_OR_RETURN(const auto program, parse_program(text + "}\n", "steps"));
  const Known& known = op.device().library<Known>();
  std::vector<ChainStep> steps;
  for (const Op& step : program->root().ops()) {
    MILLRACE_ASSIGN_OR_RETURN(ChainStep made, make_step(op, step, known, inputs, steps.empty()));
    steps.push_back(std::move(made));
  }
  if (steps.empty()) return op.error("attribute 'steps' is empty");
  return steps;
}

class Chain {
 public:
  Chain(ArgRange inputs, ArgIndex out, std::vector<ChainStep> steps)
      : inputs_(inputs), out_(out), steps_(std::move(steps)) {}

  Status run(const KernelContext& ctx) const {
    MILLRACE_RETURN_IF_ERROR(check(ctx));
    MILLRACE_RETURN_IF_ERROR(follow_layout(ctx));
    Tensor& out = ctx.out(out_);
    llvm::SmallVector<const float*, 4> from;
    llvm::SmallVector<bool, 4> once;
    for (int32_t k = 0; k < inputs_.count; ++k) {
      from.push_back(stored<float>(ctx.in(inputs_, k)));
      once.push_back(is_single(ctx, k));
    }
    auto* const to = stored<float>(out);
    ctx.device().parallel_for(stored_count(out), kGrain, [&](int64_t begin, int64_t end) {
      run_range(from, once, to, begin, end);
    });
    return Ok();
  }

 private:
  [[nodiscard]] bool is_single(const KernelContext& ctx, int32_t k) const {
    return ctx.in(inputs_, k).numel() == 1 && ctx.in(inputs_, 0).numel() != 1;
  }

  Status check(const KernelContext& ctx) const {
    const Tensor& first = ctx.in(inputs_, 0);
    for (int32_t k = 0; k < inputs_.count; ++k) {
      const Tensor& x = ctx.in(inputs_, k);
      if (x.dtype() != DType::kFloat32 || (x.dims() != first.dims() && !is_single(ctx, k))) {
        return ctx.error(
            "X must be f32 of the shape of the first, {}, or one element; input {} is "
            "{}",
            describe(first), k, describe(x));
      }
    }
    return Ok();
  }

  // Converts all images to the layout of the first one that has a layout, unless it has padding,
  // which the operations would overwrite.
  Status follow_layout(const KernelContext& ctx) const {
    LayoutPtr layout;
    bool any = false;
    for (int32_t k = 0; k < inputs_.count; ++k) {
      const Tensor& x = ctx.in(inputs_, k);
      if (x.layout() == nullptr) continue;
      if (!any && !is_padded(x) && !is_single(ctx, k)) layout = x.layout();
      any = true;
    }
    if (!any) return Ok();
    for (int32_t k = 0; k < inputs_.count; ++k) {
      MILLRACE_RETURN_IF_ERROR(
          bring_to(ctx, ArgIndex{inputs_.begin + k}, is_single(ctx, k) ? nullptr : layout));
    }
    const Tensor& first = ctx.in(inputs_, 0);
    const Dims dims(first.dims().begin(), first.dims().end());
    return ctx.out(out_).resize(DType::kFloat32, dims, layout);
  }

  void run_range(llvm::ArrayRef<const float*> from, llvm::ArrayRef<bool> once, float* to,
                 int64_t begin, int64_t end) const {
    std::array<float, kPiece> piece;
    // at most two operands of an operation are single elements
    std::array<std::array<float, kPiece>, 2> filled;
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t count = std::min(kPiece, end - at);
      const auto find = [&](int32_t operand, size_t place) -> const float* {
        if (operand == kRunning) return piece.data();
        const auto k = static_cast<size_t>(operand);
        if (!once[k]) return from[k] + at;
        std::fill_n(filled[place].begin(), count, *from[k]);
        return filled[place].data();
      };
      for (size_t i = 0; i < steps_.size(); ++i) {
        const ChainStep& step = steps_[i];
        float* const result = i + 1 == steps_.size() ? to + at : piece.data();
        step.run(find(step.first, 0), find(step.second, 1), result, count);
      }
    }
  }

  ArgRange inputs_;
  ArgIndex out_;
  std::vector<ChainStep> steps_;
};

StatusOr<Kernel> elementwise_chain(const KernelSetup& op) {
  const ArgRange inputs = op.inputs("X");
  for (int32_t k = 0; k < inputs.count; ++k) op.accept_layout({inputs.begin + k});
  MILLRACE_ASSIGN_OR_RETURN(std::vector<ChainStep> steps, make_steps(op, inputs.count));
  return Kernel([chain = Chain(inputs, op.output("Out"), std::move(steps))](
                    const KernelContext& ctx) { return chain.run(ctx); });
}

}  // namespace

/// Elementwise ops fused into one loop.
void add_elementwise_chain(KernelRegistry& registry) {
  registry.add("elementwise_chain", elementwise_chain);
}

}  // namespace millrace::kernels
