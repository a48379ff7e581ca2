#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Features of ranking and recommendation nets.
namespace millrace::ops {
namespace {

Status infer_cvm(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  VarMeta out = x;
  if (!ctx.attr<bool>("use_cvm") && x.dims[1] >= 0) {
    if (x.dims[1] < 2) {
      return ctx.error("'X' has shape {}, expected at least 2 columns, show and click",
                       dims_text(x.dims));
    }
    out.dims[1] = x.dims[1] - 2;
  }
  ctx.set_output("Y", std::move(out));
  return Ok();
}

Status infer_hash(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  VarMeta out = x;
  out.dims = {x.dims[0], ctx.attr<int32_t>("num_hash"), 1};
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_sampling(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  if (ctx.attr<float>("min") >= ctx.attr<float>("max")) {
    return ctx.error("attribute 'min' is {}, expected less than 'max' {}", ctx.attr<float>("min"),
                     ctx.attr<float>("max"));
  }
  ctx.set_output("Out", with_offsets_of(tensor_meta(DType::kInt64, {x.dims[0]}), x));
  return Ok();
}

Status infer_filter(InferContext& ctx) {
  VarMeta out = ctx.input("Ins");
  ctx.set_output("LossWeight", DType::kFloat32, {-1, 1});
  ctx.set_output("IndexMap", DType::kInt64, {-1, 3});
  if (!dims_known(out) || out.dims.empty()) return Ok();
  out.dims[0] = -1;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_pyramid(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  ctx.set_output("Out",
                 tensor_with_lod_of(x, ctx.input("W").dtype, {-1, ctx.attr<int32_t>("num_emb")}));
  return Ok();
}

// The op has had two names.
OpDef pyramid_hash(llvm::StringRef type, llvm::StringRef grad_type) {
  OpDef def(type);
  def.doc("hashed embeddings of all n-grams up to a length; the gradient op updates W")
      .input("X", "token sequences [rows, 1]")
      .input("W", "space of the hashed rows")
      .input("WhiteList", "n-grams that count", Arity::kOptional)
      .input("BlackList", "n-grams that do not", Arity::kOptional)
      .output("Out", "[n-grams, num_emb]")
      .intermediate("DropPos", "which n-grams count")
      .intermediate("X_Temp_Out", "tokens as floats")
      .attr("num_emb", 0, "width of Out")
      .range(0)
      .attr("space_len", 0, "elements of W")
      .range(0)
      .attr("pyramid_layer", 2, "longest n-gram")
      .range(2)
      .attr("rand_len", 0, "number of elements read at each hash")
      .range(0)
      .attr("drop_out_percent", 0.0F,
            "share of n-grams left out in training; factor of Out otherwise")
      .range(0, 1)
      .attr("is_training", 0, "0 no, 1 yes")
      .attr("use_filter", true, "use the lists")
      .attr("white_list_len", 0, "entries of WhiteList")
      .attr("black_list_len", 0, "entries of BlackList")
      .attr("seed", 0, "0: a new seed in every run")
      .attr("lr", 0.0F, "learning rate of the update inside the gradient")
      .attr("distribute_update_vars", "", "vars whose gradients go to the servers")
      .infer(infer_pyramid)
      .grad({grad_type, {"DropPos", "Out@GRAD", "W", "X", "X_Temp_Out"}, {"X@GRAD"}, {}});
  return def;
}

}  // namespace

void add_feature_ranking(OpRegistry& registry) {
  registry.add(OpDef("cvm")
                   .doc("log of the show and click columns, or X without them")
                   .input("X", "[rows, width], show and click first")
                   .input("CVM", "[rows, 2]; gradient of the two columns")
                   .output("Y", "[rows, width], or two columns less")
                   .attr("use_cvm", true, "keep the two columns")
                   .infer(infer_cvm)
                   .grad({"cvm_grad", {"CVM", "X", "Y@GRAD"}, {"X@GRAD"}, {}}));
  registry.add(OpDef("hash")
                   .doc("xxHash of every row of ids, with several seeds, modulo mod_by")
                   .input("X", "ids [rows, length]")
                   .output("Out", "[rows, num_hash, 1], type of X")
                   .attr("num_hash", 1, "number of seeds")
                   .range(1)
                   .attr("mod_by", int64_t{100000}, "results are below it")
                   .range(1)
                   .infer(infer_hash));
  registry.add(OpDef("sampling_id")
                   .doc("draws one column for each row of probabilities")
                   .input("X", "probabilities [rows, classes]")
                   .output("Out", "[rows]")
                   .attr("min", 0.0F, "lower end of the random numbers")
                   .attr("max", 1.0F, "upper end of the random numbers")
                   .attr("seed", 0, "0: a new seed in every run")
                   .infer(infer_sampling));
  registry.add(OpDef("filter_by_instag")
                   .doc("keeps instances whose tags meet the filter")
                   .input("Ins", "instances, rows or sequences")
                   .input("Ins_tag", "tags of each instance, with LoD")
                   .input("Filter_tag", "tags to keep")
                   .output("Out", "instances kept; one default row if there are none")
                   .output("LossWeight", "1, or 0 if none was kept")
                   .output("IndexMap", "out start, in start, length of each instance kept")
                   .attr("is_lod", true, "instances are sequences")
                   .attr("out_val_if_empty", int64_t{0}, "value of the default row")
                   .infer(infer_filter)
                   .grad({"filter_by_instag_grad",
                          {"IndexMap", "Ins", "LossWeight", "Out@GRAD"},
                          {"Ins@GRAD"},
                          {}}));
  registry.add(pyramid_hash("search_pyramid_hash", "search_pyramid_hash_grad"));
  registry.add(pyramid_hash("pyramid_hash", "pyramid_hash_grad"));
}

}  // namespace millrace::ops
