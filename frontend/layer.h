#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "frontend/network.h"
#include "frontend/state.h"

namespace millrace::frontend {

/// One call of a layer function: its name, its vars and ops, and the source line of the call. After
/// an error, in this call or an earlier one, no ops are appended.
class Layer {
 public:
  /// A layer named "<kind>_<n>", or with the given name.
  Layer(State* state, const char* kind, std::source_location where, const std::string& name = {});
  /// Takes the network from the inputs. An input without network is the result of a call that
  /// failed.
  Layer(const std::vector<VarRef>& inputs, const char* kind, std::source_location where,
        const std::string& name = {});
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  ~Layer();

  /// False after an error; ops are then not appended.
  [[nodiscard]] bool ok() const { return state_ != nullptr && state_->status.ok(); }
  /// The network; ok() must be true.
  [[nodiscard]] State& state() const { return *state_; }
  /// Name of the layer, the prefix of its vars.
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Records the error with the user's source line. Returns the result of a failed layer.
  VarRef fail(Status status);
  /// The declaration of a var. Precondition: ok().
  [[nodiscard]] const Var& var(const VarRef& ref) const;

  /// Declares a parameter in both programs and adds its initializer to the startup program.
  /// \param suffix  "w" or "b"
  /// \param fallback  used if the attr has no initializer
  VarRef param(const ParamAttr& attr, const std::string& suffix, const std::vector<int64_t>& dims,
               DType dtype, const Initializer& fallback);
  /// Declares a result var, "<layer>.tmp_<n>". The op that writes it determines its shape.
  VarRef out(DType dtype = DType::kFloat32);
  /// Appends an op whose output vars are declared.
  void append(const ops::NewOp& op);
  /// Appends the op with a new var for Out (or another slot); returns that var.
  VarRef result(ops::NewOp op, DType dtype = DType::kFloat32, const char* slot = "Out");
  /// Appends x + bias along a dim; the bias is a parameter of the layer.
  VarRef add_bias(const VarRef& x, const ParamAttr& attr, int64_t size, int32_t dim);
  /// Applies an activation, given as an op type; empty: returns x. `library` marks that the
  /// original would use its fastest kernels.
  VarRef activate(const VarRef& x, const std::string& act, bool library = false);
  /// Changes the element type from the inferred one, where the original declares another one.
  void set_dtype(const VarRef& ref, DType dtype);

 private:
  /// Starts the call: takes the name or generates one, and sets op_callstack to the user's line.
  void begin(const std::string& name);

  State* state_;
  const char* kind_;
  std::source_location where_;
  std::string name_;
};

/// Appends an op to the startup program that fills a parameter. \param seed  for initializers
/// without one
Status fill_parameter(ops::Builder& builder, const std::string& name,
                      const std::vector<int64_t>& dims, DType dtype, const Initializer& how,
                      int32_t seed);

/// The names of the vars, to be passed as op inputs.
std::vector<std::string> names_of(const std::vector<VarRef>& refs);

}  // namespace millrace::frontend
