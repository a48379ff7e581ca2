#include "bench/fc_net.h"

#include <fmt/format.h>

#include "framework/names.h"

namespace millrace::bench {
namespace {

constexpr int32_t kBackward = 1;
constexpr int32_t kOptimize = 2;

// Adds ops and declarations to one main and one startup block.
class Builder {
 public:
  Builder(Block& main, Block& startup, int64_t width)
      : main_(main), startup_(startup), width_(width) {}

  Op& op(const char* type, int32_t role) {
    return main_.append_op(type)
        .set_int("op_role", role)
        .set_strings("op_role_var", {})
        .set_string("op_namescope", "/");
  }

  void activation(const std::string& name) {
    main_.declare(name, VarSpec::tensor(DType::kFloat32, {-1, width_}));
    main_.declare(names::grad(name), VarSpec::tensor(DType::kFloat32, {-1, width_}));
  }

  void parameter(const std::string& name, llvm::ArrayRef<int64_t> dims) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, dims);
    main_.declare(names::grad(name), spec);
    spec.persistable = spec.is_parameter = true;
    main_.declare(name, spec);
    startup_.declare(name, spec);
    initialize(name, dims, 0.1F);
  }

  void initialize(const std::string& name, llvm::ArrayRef<int64_t> dims, float value) {
    Op& fill = startup_.append_op("fill_constant");
    fill.set_output("Out", llvm::StringRef(name))
        .set_attr("shape", AttrValue::of_longs(dims.vec()))
        .set_int("dtype", static_cast<int32_t>(DType::kFloat32))
        .set_float("value", value);
  }

  void learning_rate(const std::string& name) {
    VarSpec spec = VarSpec::tensor(DType::kFloat32, {1});
    spec.persistable = true;
    main_.declare(name, spec);
    startup_.declare(name, spec);
    initialize(name, {1}, 0.01F);
  }

 private:
  Block& main_;
  Block& startup_;
  int64_t width_;
};

struct Layer {
  std::string x, weight, bias, product, sum, out;
};

void forward(Builder& b, const Layer& l) {
  b.op("mul", 0).set_input("X", l.x).set_input("Y", l.weight).set_output("Out", l.product);
  b.op("elementwise_add", 0)
      .set_input("X", l.product)
      .set_input("Y", l.bias)
      .set_output("Out", l.sum)
      .set_int("axis", 1);
  b.op("relu", 0).set_input("X", l.sum).set_output("Out", l.out);
}

void backward(Builder& b, const Layer& l, bool first) {
  using names::grad;
  b.op("relu_grad", kBackward)
      .set_input("Out", l.out)
      .set_input("Out@GRAD", grad(l.out))
      .set_output("X@GRAD", grad(l.sum));
  b.op("elementwise_add_grad", kBackward)
      .set_input("X", l.product)
      .set_input("Y", l.bias)
      .set_input("Out@GRAD", grad(l.sum))
      .set_output("X@GRAD", grad(l.product))
      .set_output("Y@GRAD", grad(l.bias))
      .set_int("axis", 1)
      .set_strings("op_role_var", {l.bias, grad(l.bias)});
  Op& mul = b.op("mul_grad", kBackward)
                .set_input("X", l.x)
                .set_input("Y", l.weight)
                .set_input("Out@GRAD", grad(l.product))
                .set_output("Y@GRAD", grad(l.weight))
                .set_strings("op_role_var", {l.weight, grad(l.weight)});
  if (!first) mul.set_output("X@GRAD", grad(l.x));
}

void update(Builder& b, const std::string& param) {
  b.op("sgd", kOptimize)
      .set_input("Param", param)
      .set_input("Grad", names::grad(param))
      .set_input("LearningRate", "learning_rate_0")
      .set_output("ParamOut", param)
      .set_strings("op_role_var", {param, names::grad(param)});
}

}  // namespace

FcNet fc_net(int64_t layers, int64_t width) {
  FcNet net{Program::create(), Program::create()};
  Builder b(net.main->root(), net.startup->root(), width);
  b.learning_rate("learning_rate_0");
  b.activation("x");
  std::vector<Layer> all;
  std::string input = "x";
  for (int64_t i = 0; i < layers; ++i) {
    Layer l{input,
            fmt::format("fc_{}.w_0", i),
            fmt::format("fc_{}.b_0", i),
            fmt::format("fc_{}.tmp_0", i),
            fmt::format("fc_{}.tmp_1", i),
            fmt::format("fc_{}.tmp_2", i)};
    b.parameter(l.weight, {width, width});
    b.parameter(l.bias, {width});
    for (const std::string& name : {l.product, l.sum, l.out}) b.activation(name);
    forward(b, l);
    input = l.out;
    all.push_back(std::move(l));
  }
  // The gradient of the last output is fed; a loss would add nothing to the measurement.
  for (size_t i = all.size(); i-- > 0;) backward(b, all[i], i == 0);
  for (const Layer& l : all) {
    update(b, l.weight);
    update(b, l.bias);
  }
  return net;
}

}  // namespace millrace::bench
