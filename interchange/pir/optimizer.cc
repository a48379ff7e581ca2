// Updates of parameters, and ops on gradients of rows, which are written as dense gradients.

#include "framework/block.h"
#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr const char* kAdamInputs =
    "Param Grad LearningRate Moment1 Moment2 - Beta1Pow Beta2Pow - - @beta1:f32 @beta2:f32 "
    "@epsilon:f32";
constexpr const char* kAdamOutputs =
    "ParamOut=Param Moment1Out=Moment1 Moment2Out=Moment2 - Beta1PowOut=Beta1Pow "
    "Beta2PowOut=Beta2Pow -";

constexpr Row kOptimizerRows[] = {
    {"adadelta", "adadelta_", "Param Grad AvgSquaredGrad AvgSquaredUpdate LearningRate -",
     "rho:f32 epsilon:f32 multi_precision:bool=false",
     "ParamOut=Param AvgSquaredGradOut=AvgSquaredGrad AvgSquaredUpdateOut=AvgSquaredUpdate -"},
    {"adagrad", "adagrad_", "Param Grad Moment LearningRate -",
     "epsilon:f32 multi_precision:bool=false", "ParamOut=Param MomentOut=Moment -"},
    {"adam", "adam_", kAdamInputs,
     "lazy_mode:bool=false min_row_size_to_use_multithread:i64 multi_precision:bool=false "
     "use_global_beta_pow:bool=false amsgrad:bool=false",
     kAdamOutputs},
    {"adamax", "adamax_", "Param Grad LearningRate Moment InfNorm Beta1Pow -",
     "beta1:f32 beta2:f32 epsilon:f32 multi_precision:bool=false",
     "ParamOut=Param MomentOut=Moment InfNormOut=InfNorm -"},
    {"adamw", "adamw_", kAdamInputs,
     "lr_ratio:f32 coeff:f32 with_decay:bool lazy_mode:bool=false "
     "min_row_size_to_use_multithread:i64 multi_precision:bool=false "
     "use_global_beta_pow:bool=false amsgrad:bool=false",
     kAdamOutputs},
    {"decayed_adagrad", "decayed_adagrad", "Param Grad Moment LearningRate",
     "decay:f32 epsilon:f32", "ParamOut MomentOut"},
    {"ftrl", "ftrl", "Param SquaredAccumulator LinearAccumulator Grad LearningRate",
     "l1:f32 l2:f32 lr_power:f32", "ParamOut SquaredAccumOut LinearAccumOut"},
    {"lamb", "lamb_", "Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow - -",
     "weight_decay:f32 beta1:f32 beta2:f32 epsilon:f32 always_adapt:bool "
     "multi_precision:bool=false",
     "ParamOut=Param Moment1Out=Moment1 Moment2Out=Moment2 Beta1PowOut=Beta1Pow "
     "Beta2PowOut=Beta2Pow -"},
    {"momentum", "momentum_", "Param Grad Velocity LearningRate -",
     "mu:f32 use_nesterov:bool regularization_method:str regularization_coeff:f32 "
     "multi_precision:bool=false rescale_grad:f32",
     "ParamOut=Param VelocityOut=Velocity -"},
    {"sgd", "sgd_", "Param LearningRate Grad -", "multi_precision:bool=false", "ParamOut=Param -"},
};

constexpr Row kRmspropRow = {
    "rmsprop", "rmsprop_", "Param MeanSquare Grad Moment LearningRate MeanGrad -",
    "epsilon:f32 decay:f32 momentum:f32 centered:bool multi_precision:bool=false",
    "ParamOut=Param MomentOut=Moment MeanSquareOut=MeanSquare MeanGradOut=MeanGrad -"};

// The kernel of release 3 has the mean of the gradients also where it does not use it.
Status rmsprop(OpContext& c) {
  if (c.names_var("MeanGrad")) return convert_by_row(c, kRmspropRow);
  if (c.attr<bool>("centered")) return c.refuse("centered without MeanGrad");
  const auto operand = [&](const char* in, const char* out) {
    return c.to_update(c.in(in), in, out);
  };
  const Value param = operand("Param", "ParamOut");
  const Value square = operand("MeanSquare", "MeanSquareOut");
  const Value moment = operand("Moment", "MomentOut");
  const Value zeros =
      c.node("full_like", {param, c.full(0, DType::kFloat32)},
             {of_dtype("dtype", param.type().dtype), of_place(false)}, param.type());
  const Value same = result_of(param.type());
  const std::vector<Value> results = c.nodes(
      "rmsprop_", {param, square, c.in("Grad"), moment, c.in("LearningRate"), zeros, Value{}},
      {of_f32("epsilon", c.attr<float>("epsilon")), of_f32("decay", c.attr<float>("decay")),
       of_f32("momentum", c.attr<float>("momentum")), of_bool("centered", false),
       of_bool("multi_precision", false)},
      {same, same, same, same, Value{}});
  c.set_updated("ParamOut", results[0]);
  c.set_updated("MomentOut", results[1]);
  c.set_updated("MeanSquareOut", results[2]);
  c.note_output_slot("MeanGradOut");
  return Ok();
}

// A dense gradient has each row once.
Status same_rows(OpContext& c) {
  c.set("Out", c.node("assign", {c.in("X")}, {}, c.in("X").type()));
  return Ok();
}

// The rows of a gradient as a tensor. Other rows are zero here, so only the norm is the same.
Status rows_as_tensor(OpContext& c) {
  const llvm::StringRef out = c.op().first_output("Out");
  for (const Op& op : c.op().block().ops())
    if (op.reads(out) && op.type() != "squared_l2_norm")
      return c.refuse("the rows of a gradient for other ops than squared_l2_norm");
  return same_rows(c);
}

// v = mu * v + rate * (grad + decay * param); the rate is scaled by the ratio of the norms.
Status lars(OpContext& c) {
  const auto decays = c.attr<std::vector<float>>("lars_weight_decay");
  const auto factor = static_cast<double>(c.attr<float>("lars_coeff"));
  if (decays.size() != 1 || c.op().input("Param").size() != 1 ||
      c.attr<float>("rescale_grad") != 1.0F)
    return c.refuse("lars_momentum with rescaled gradients or of several parameters");
  const double decay = decays[0];
  const Value param = c.in("Param");
  const Value grad = c.in("Grad");
  const Value velocity = c.in("Velocity");
  const auto scaled = [&](const Value& x, double by, double bias) {
    return c.node("scale", {x, c.full(by, DType::kFloat32)},
                  {of_f32("bias", bias), of_bool("bias_after_scale", true)}, x.type());
  };
  const TensorType one{.dtype = param.type().dtype, .dims = {1}};
  const auto norm = [&](const Value& x) {
    return c.node("sqrt", {c.node("squared_l2_norm", {x}, {}, one)}, {}, one);
  };
  const Value zero = c.full(0, one.dtype, {1}, /*on_host=*/false);
  const Value p = norm(param);
  const Value g = norm(grad);
  const Value sum = c.node("add", {g, scaled(p, decay, c.attr<float>("epsilon"))}, {}, one);
  const Value ratio = c.node("divide", {scaled(p, factor, 0), sum}, {}, one);
  const TensorType flag{.dtype = DType::kBool, .dims = {1}};
  // Without decay, the original keeps the rate.
  const Value is_adapted = decay > 0 ? c.node("logical_and",
                                              {c.node("greater_than", {p, zero}, {}, flag),
                                               c.node("greater_than", {g, zero}, {}, flag)},
                                              {}, flag)
                                     : c.full(0, DType::kBool, {1}, /*on_host=*/false);
  const Value adapted =
      c.node("where", {is_adapted, ratio, c.full(1, one.dtype, {1}, /*on_host=*/false)}, {}, one);
  const Value rate = c.node("multiply", {c.in("LearningRate"), adapted}, {}, one);
  const Value decayed = c.node("add", {grad, scaled(param, decay, 0)}, {}, param.type());
  const Value next = c.node("add",
                            {scaled(velocity, c.attr<float>("mu"), 0),
                             c.node("multiply", {decayed, rate}, {}, param.type())},
                            {}, param.type());
  c.set("VelocityOut", next);
  c.set("ParamOut", c.node("subtract", {param, next}, {}, param.type()));
  return Ok();
}

}  // namespace

void add_optimizer_ops(Converters& table) {
  for (const Row& row : kOptimizerRows) table.rows[row.type] = &row;
  table.functions["merge_selected_rows"] = same_rows;
  table.functions["get_tensor_from_selected_rows"] = rows_as_tensor;
  table.functions["lars_momentum"] = lars;
  table.functions["rmsprop"] = rmsprop;
}

}  // namespace millrace::interchange::pir
