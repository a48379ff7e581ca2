#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/status.h"
#include "framework/types.h"
#include "ops/minimize/options.h"

/// How the startup program fills a parameter. Plain values. Seed 0 means the seed of the network.
namespace millrace::init {

/// All elements have the same value.
struct Constant {
  double value = 0;  ///< of every element
};

/// Uniform in [low, high).
struct Uniform {
  double low = -1;   ///< smallest number
  double high = 1;   ///< never reached
  int32_t seed = 0;  ///< of the op's random numbers
};

/// Normal distribution.
struct Normal {
  double mean = 0;
  double std = 1;  ///< standard deviation
  int32_t seed = 0;
};

/// Normal distribution; values more than two standard deviations from the mean are drawn again.
struct TruncatedNormal {
  double mean = 0;
  double std = 1;
  int32_t seed = 0;
};

/// Variance 2 / (fan_in + fan_out). The fans are computed from the dims unless given.
/// Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
/// networks", 2010.
struct Xavier {
  bool uniform = true;                 ///< false: normal
  std::optional<double> fan_in = {};   ///< inputs of each output element
  std::optional<double> fan_out = {};  ///< outputs that each input element affects
  int32_t seed = 0;
};

/// Variance 2 / fan_in; for layers with relu.
/// Source: He et al., "Delving deep into rectifiers", 2015.
struct Msra {
  bool uniform = true;  ///< false: normal
  std::optional<double> fan_in = {};
  int32_t seed = 0;
};

/// The given elements in row-major order; their number must be that of the parameter.
struct Values {
  std::vector<float> values = {};  ///< converted to the type of the parameter
};

}  // namespace millrace::init

namespace millrace {

/// Any initializer.
using Initializer = std::variant<init::Constant, init::Uniform, init::Normal, init::TruncatedNormal,
                                 init::Xavier, init::Msra, init::Values>;

class Program;

namespace frontend {
struct State;
}

/// A var of a network that is being built: the input and result type of layers. Cheap to copy;
/// valid as long as its network lives.
class VarRef {
 public:
  /// A var without network. Layers called with it fail and return such a var.
  VarRef() = default;
  VarRef(frontend::State* state, std::string name) : state_(state), name_(std::move(name)) {}

  /// False for the result of a layer call that failed; Network::status() has the error.
  [[nodiscard]] bool ok() const { return state_ != nullptr; }
  /// Name in both programs; empty if not ok().
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Dims as inferred so far; -1 is a dim that is unknown until run time. Empty if not ok().
  [[nodiscard]] std::vector<int64_t> dims() const;
  /// Element type as inferred so far; kFloat32 if not ok().
  [[nodiscard]] DType dtype() const;
  /// Stops gradients from flowing through the var.
  void stop_gradient() const;

  /// For the implementation of layers.
  [[nodiscard]] frontend::State* state() const { return state_; }

 private:
  frontend::State* state_ = nullptr;
  std::string name_;
};

/// Properties of a parameter that a layer creates.
struct ParamAttr {
  std::string name = {};                        ///< empty: "<layer>.w_<n>" or "<layer>.b_<n>"
  std::optional<Initializer> initializer = {};  ///< absent: the default of the layer
  double learning_rate = 1.0;                   ///< factor for the learning rate
  std::optional<Regularizer> regularizer = {};  ///< replaces that of the optimizer
  bool trainable = true;                        ///< false: minimize() leaves the parameter as it is
  bool need_clip = true;                        ///< false: gradient clipping skips its gradient
  std::optional<GradientClip> clip = {};        ///< replaces that of the optimizer
};

/// A network under construction: a main and a startup program to which layers (frontend/layers.h)
/// append.
///
///   Network net;
///   VarRef x = net.data("x", {-1, 13}), y = net.data("y", {-1, 1});
///   VarRef loss = layers::mean(layers::square(layers::elementwise_sub(layers::fc(x, 1), y)));
///   MILLRACE_ASSIGN_OR_RETURN(const auto training, net.minimize(loss, {.learning_rate = 0.01}));
///   MILLRACE_ASSIGN_OR_RETURN(Session session, Session::open(net.main(), &net.startup()));
///
/// Vars are named as in the original ("fc_0.w_0", "fc_0.tmp_1"), so equal networks produce equal
/// programs. The first error is kept, with the user's file and line; later layers do nothing, so
/// that it is enough to check status() or minimize().
/// Movable. Not thread-safe.
class Network {
 public:
  /// \param random_seed  seed for initializers without one; 0: a different seed in every run
  explicit Network(int32_t random_seed = 0);
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  /// Declares an input. \param dims  -1 for a dim that is unknown until run time
  VarRef data(const std::string& name, const std::vector<int64_t>& dims,
              DType dtype = DType::kFloat32, int32_t lod_level = 0,
              std::source_location where = std::source_location::current());

  /// Declares a parameter outside of any layer; attr.name is required.
  VarRef parameter(const std::vector<int64_t>& dims, const ParamAttr& attr,
                   DType dtype = DType::kFloat32,
                   std::source_location where = std::source_location::current());

  /// Ok, or the first error with the source line of the call.
  [[nodiscard]] Status status() const;

  /// The result of minimize().
  struct Training {
    std::string learning_rate;  ///< name of the var that holds the learning rate
    /// Each trained parameter with the var of its gradient.
    std::vector<std::pair<std::string, std::string>> param_grads;
  };
  /// Appends gradient and optimizer ops; see ops/minimize/minimize.h. options.parameters and
  /// options.parameter_options default to those of the network. Errors: status(); those of
  /// minimize().
  StatusOr<Training> minimize(const VarRef& loss, MinimizeOptions options = {},
                              std::source_location where = std::source_location::current());

  /// A handle to a var by name; the var need not be declared yet.
  VarRef handle(const std::string& name) { return {state_.pointer().get(), name}; }

  /// The programs. They change with every layer call and live as long as the network.
  [[nodiscard]] const Program& main() const;
  [[nodiscard]] const Program& startup() const;

 private:
  PartsPtr<frontend::State> state_;
};

}  // namespace millrace
