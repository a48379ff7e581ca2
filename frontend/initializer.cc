#include <cmath>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "frontend/layer.h"
#include "frontend/network.h"

namespace millrace::frontend {
namespace {

AttrValue real(double value) {
  return make_attr(static_cast<float>(value));
}

// Number of inputs that one output of a weight depends on, and number of outputs that one input
// affects.
struct Fans {
  double in = 1;
  double out = 1;
};

Fans fans_of(const std::vector<int64_t>& dims) {
  if (dims.empty()) return {};
  if (dims.size() == 1) return {static_cast<double>(dims[0]), static_cast<double>(dims[0])};
  if (dims.size() == 2) return {static_cast<double>(dims[0]), static_cast<double>(dims[1])};
  double window = 1;
  for (size_t i = 2; i < dims.size(); ++i) window *= static_cast<double>(dims[i]);
  return {static_cast<double>(dims[1]) * window, static_cast<double>(dims[0]) * window};
}

// Creates the op that fills the parameter; the caller adds shape, dtype and output.
struct FillOp {
  const std::vector<int64_t>& dims;
  int32_t network_seed;

  ops::NewOp operator()(const init::Constant& how) const {
    ops::NewOp op("fill_constant");
    op.attr("value", real(how.value)).attr("str_value", make_attr(ops::number_text(how.value)));
    return op;
  }
  ops::NewOp operator()(const init::Uniform& how) const {
    ops::NewOp op("uniform_random");
    op.attr("min", real(how.low)).attr("max", real(how.high)).attr("seed", seed(how.seed));
    return op;
  }
  ops::NewOp operator()(const init::Normal& how) const { return normal("gaussian_random", how); }
  ops::NewOp operator()(const init::TruncatedNormal& how) const {
    return normal("truncated_gaussian_random", how);
  }
  ops::NewOp operator()(const init::Xavier& how) const {
    const Fans fans = fans_of(dims);
    return by_variance(2.0 / (how.fan_in.value_or(fans.in) + how.fan_out.value_or(fans.out)),
                       how.uniform, how.seed);
  }
  ops::NewOp operator()(const init::Msra& how) const {
    return by_variance(2.0 / how.fan_in.value_or(fans_of(dims).in), how.uniform, how.seed);
  }
  ops::NewOp operator()(const init::Values& how) const {
    ops::NewOp op("assign_value");
    op.attr("fp32_values", make_attr(how.values));
    return op;
  }

 private:
  template <typename T>
  ops::NewOp normal(llvm::StringRef type, const T& how) const {
    ops::NewOp op(type);
    op.attr("mean", real(how.mean)).attr("std", real(how.std)).attr("seed", seed(how.seed));
    return op;
  }
  // A uniform distribution on [-l, l] has variance l^2 / 3.
  [[nodiscard]] ops::NewOp by_variance(double variance, bool uniform, int32_t own_seed) const {
    const double limit = std::sqrt(3.0 * variance);
    if (uniform) return (*this)(init::Uniform{-limit, limit, own_seed});
    return (*this)(init::Normal{0, std::sqrt(variance), own_seed});
  }
  [[nodiscard]] AttrValue seed(int32_t own) const {
    return make_attr(own != 0 ? own : network_seed);
  }
};

}  // namespace

Status fill_parameter(ops::Builder& builder, const std::string& name,
                      const std::vector<int64_t>& dims, DType dtype, const Initializer& how,
                      int32_t seed) {
  ops::NewOp op = std::visit(FillOp{dims, seed}, how);
  if (const auto* const values = std::get_if<init::Values>(&how)) {
    const int64_t wanted = element_count(dims).value_or(-1);
    if (static_cast<int64_t>(values->values.size()) != wanted || dtype != DType::kFloat32) {
      return InvalidArgument("parameter '{}': expected {} values of f32, found {} of {}", name,
                             wanted, values->values.size(), dtype_name(dtype));
    }
    op.attr("shape", make_attr(std::vector<int32_t>(dims.begin(), dims.end())));
  } else {
    op.attr("shape", make_attr(dims));
  }
  op.output("Out", {name}).attr("dtype", make_attr(static_cast<int32_t>(dtype)));
  return builder.append_startup(op).status();
}

}  // namespace millrace::frontend
