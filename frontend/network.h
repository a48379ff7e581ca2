#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "framework/types.h"
#include "frontend/initializer.h"
#include "ops/minimize/options.h"

namespace millrace {

class Program;

namespace frontend {
struct State;
}

/// A var of a network that is being built: what layers take and give. Cheap to copy; valid as long
/// as its network lives.
class VarRef {
 public:
  /// A var of no network; layers that get it give such a one.
  VarRef() = default;
  VarRef(frontend::State* state, std::string name) : state_(state), name_(std::move(name)) {}

  /// False for what a layer gave after a mistake; Network::status() says which.
  [[nodiscard]] bool ok() const { return state_ != nullptr; }
  [[nodiscard]] const std::string& name() const { return name_; }
  /// As inferred so far; -1 is a dim that is known only at run time. Empty if not ok().
  [[nodiscard]] std::vector<int64_t> dims() const;
  [[nodiscard]] DType dtype() const;
  /// Lets no gradient flow through the var.
  void stop_gradient() const;

  /// For layers.
  [[nodiscard]] frontend::State* state() const { return state_; }

 private:
  frontend::State* state_ = nullptr;
  std::string name_;
};

/// What may be said of a parameter when a layer makes it.
struct ParamAttr {
  std::string name = {};                        ///< empty: "<layer>.w_<n>" or "<layer>.b_<n>"
  std::optional<Initializer> initializer = {};  ///< absent: what suits the layer
  double learning_rate = 1.0;                   ///< factor of the rate
  std::optional<Regularizer> regularizer = {};  ///< in place of the optimizer's
  bool trainable = true;
  bool need_clip = true;
  std::optional<GradientClip> clip = {};  ///< in place of the optimizer's
};

/// A network under construction: a main and a startup program that layers (frontend/layers.h)
/// write.
///
///   Network net;
///   VarRef x = net.data("x", {-1, 13}), y = net.data("y", {-1, 1});
///   VarRef loss = layers::mean(layers::square(layers::elementwise_sub(layers::fc(x, 1), y)));
///   MILLRACE_ASSIGN_OR_RETURN(const auto training, net.minimize(loss, {.learning_rate = 0.01}));
///   MILLRACE_ASSIGN_OR_RETURN(Session session, Session::open(net.main(), &net.startup()));
///
/// Vars are named as the original names them ("fc_0.w_0", "fc_0.tmp_1"), so equal networks are
/// equal programs. The first mistake is kept, with the user's file and line; layers after it do
/// nothing, so that only status() or minimize() need to be asked.
/// Movable. Thread-safety: none.
class Network {
 public:
  /// \param random_seed  seed of initializers that have none; 0: another one in every run
  explicit Network(int32_t random_seed = 0);
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  /// Declares an input. \param dims  -1 where only the run knows
  VarRef data(const std::string& name, const std::vector<int64_t>& dims,
              DType dtype = DType::kFloat32, int32_t lod_level = 0,
              std::source_location where = std::source_location::current());

  /// Declares a parameter by itself; attr.name is required.
  VarRef parameter(const std::vector<int64_t>& dims, const ParamAttr& attr,
                   DType dtype = DType::kFloat32,
                   std::source_location where = std::source_location::current());

  /// Ok, or the first mistake: what, and in which line.
  [[nodiscard]] Status status() const;

  /// What minimize() has made.
  struct Training {
    std::string learning_rate;  ///< var that holds the rate
    std::vector<std::pair<std::string, std::string>> param_grads;
  };
  /// Appends gradients and updates; see ops/minimize/minimize.h. options.parameters and
  /// options.parameter_options are the network's unless they say otherwise. Errors: status();
  /// those of minimize.
  StatusOr<Training> minimize(const VarRef& loss, MinimizeOptions options = {},
                              std::source_location where = std::source_location::current());

  /// A var by its name, declared or not.
  VarRef handle(const std::string& name) { return {state_.get(), name}; }

  /// The programs; they change with every layer and live as long as the network.
  [[nodiscard]] const Program& main() const;
  [[nodiscard]] const Program& startup() const;

 private:
  std::unique_ptr<frontend::State> state_;
};

}  // namespace millrace
