#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "frontend/network.h"
#include "frontend/state.h"

namespace millrace::frontend {

/// One call of a layer: its name, its vars and ops, and the line it came from. After a mistake, of
/// this call or an earlier one, nothing is appended any more.
class Layer {
 public:
  /// A layer "<kind>_<n>", or of the given name.
  Layer(State* state, const char* kind, std::source_location where, const std::string& name = {});
  /// The network is that of the inputs. A handle without one is a mistake of an earlier call.
  Layer(const std::vector<VarRef>& inputs, const char* kind, std::source_location where,
        const std::string& name = {});
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  ~Layer();

  [[nodiscard]] bool ok() const { return state_ != nullptr && state_->status.ok(); }
  [[nodiscard]] State& state() const { return *state_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Keeps the mistake with the user's line, and gives what such a layer gives.
  VarRef fail(Status status);
  /// The declaration of an input. Precondition: ok().
  [[nodiscard]] const Var& var(const VarRef& ref) const;

  /// Declares a parameter in both programs and has the startup program fill it.
  /// \param suffix    "w" or "b"
  /// \param fallback  where the attr has no initializer
  VarRef param(const ParamAttr& attr, const std::string& suffix, const std::vector<int64_t>& dims,
               DType dtype, const Initializer& fallback);
  /// Declares a result, "<layer>.tmp_<n>"; its shape comes from the op that writes it.
  VarRef out(DType dtype = DType::kFloat32);
  /// Appends an op whose outputs are declared.
  void append(const ops::NewOp& op);
  /// The op with a new var for Out (or another slot), appended; gives that var.
  VarRef result(ops::NewOp op, DType dtype = DType::kFloat32, const char* slot = "Out");
  /// x + bias along a dim, as an op of the layer.
  VarRef add_bias(const VarRef& x, const ParamAttr& attr, int64_t size, int32_t dim);
  /// An activation by the type of its op; empty: x. library says that the original would use its
  /// fastest kernels.
  VarRef activate(const VarRef& x, const std::string& act, bool library = false);
  /// Declares another element type than inference says, where the original does.
  void set_dtype(const VarRef& ref, DType dtype);

 private:
  void begin(const std::string& name);

  State* state_;
  const char* kind_;
  std::source_location where_;
  std::string name_;
};

/// Appends to the startup program what fills a parameter. \param seed  of initializers without one
Status fill_parameter(ops::Builder& builder, const std::string& name,
                      const std::vector<int64_t>& dims, DType dtype, const Initializer& how,
                      int32_t seed);

/// Names of vars, for slots.
std::vector<std::string> names_of(const std::vector<VarRef>& refs);

}  // namespace millrace::frontend
