#include <numeric>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Losses over many classes that evaluate only a few of them. Where their weight is on servers, the
// transpiler lets an op list the rows that a step needs (sample_classes, tree_nodes), fetches them,
// and gives them to the loss as Rows.
namespace millrace::ops {
namespace sampled_loss {
namespace {

using Strings = std::vector<std::string>;

int64_t rows_of(const VarMeta& meta) {
  return dims_known(meta) && meta.rank() > 0 ? meta.dims[0] : -1;
}

// The weight is here, or the rows that a step needs have been fetched together with their numbers.
Status check_weight(const InferContext& ctx, llvm::StringRef weight, llvm::StringRef numbers) {
  if (ctx.has_input(weight) == ctx.has_input("Rows"))
    return ctx.error("expected either input '{}' or 'Rows'", weight.str());
  if (ctx.has_input("Rows") != ctx.has_input(numbers))
    return ctx.error("inputs 'Rows' and '{}' need each other", numbers.str());
  return Ok();
}

int64_t samples_of_label(const VarMeta& label, int64_t drawn) {
  if (!dims_known(label)) return -1;
  const int64_t labels = label.rank() == 2 ? label.dims[1] : 1;
  return labels < 0 ? -1 : labels + drawn;
}

Status infer_nce(InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  const VarMeta& label = ctx.input("Label");
  MILLRACE_RETURN_IF_ERROR(check_weight(ctx, "Weight", "Classes"));
  const VarMeta& weight = ctx.has_input("Weight") ? ctx.input("Weight") : ctx.input("Rows");
  if (ctx.has_input("Weight") && dims_known(input) && dims_known(weight)) {
    if (weight.rank() != 2 || input.rank() != 2 || !dims_agree(input.dims[1], weight.dims[1])) {
      return ctx.error("'Weight' has shape {}, expected [classes, width] for 'Input' {}",
                       dims_text(weight.dims), dims_text(input.dims));
    }
    const auto classes = ctx.attr<int32_t>("num_total_classes");
    if (!dims_agree(weight.dims[0], classes)) {
      return ctx.error("'Weight' has shape {}, expected {} rows as attribute 'num_total_classes'",
                       dims_text(weight.dims), classes);
    }
  }
  const int64_t rows = rows_of(input);
  const int64_t samples = samples_of_label(label, ctx.attr<int32_t>("num_neg_samples"));
  ctx.set_output("Cost", input.dtype, {rows, 1});
  ctx.set_output("SampleLogits", input.dtype, {rows, samples});
  ctx.set_output("SampleLabels", DType::kInt64, {rows, samples});
  return Ok();
}

Status infer_sample_classes(InferContext& ctx) {
  const VarMeta& label = ctx.input("Label");
  ctx.set_output("SampleLabels", DType::kInt64,
                 {rows_of(label), samples_of_label(label, ctx.attr<int32_t>("num_neg_samples"))});
  return Ok();
}

// Gradient of a weight: by rows if the op is sparse.
void weight_grad(InferContext& ctx, llvm::StringRef slot, llvm::StringRef grad) {
  if (ctx.has_input("Rows")) {
    const VarMeta& rows = ctx.input("Rows");
    const auto sections = ctx.attr<std::vector<int64_t>>("height_sections");
    VarMeta meta =
        tensor_meta(rows.dtype, {std::accumulate(sections.begin(), sections.end(), int64_t{0}),
                                 rows.rank() == 3 ? rows.dims[2] : -1});
    meta.kind = VarKind::kSelectedRows;
    ctx.set_output(grad, std::move(meta));
    return;
  }
  if (!ctx.has_input(slot)) return;
  VarMeta meta = without_offsets(ctx.input(slot));
  meta.kind = ctx.attr<bool>("is_sparse") ? VarKind::kSelectedRows : VarKind::kLodTensor;
  ctx.set_output(grad, std::move(meta));
}

Status infer_nce_grad(InferContext& ctx) {
  weight_grad(ctx, "Weight", "Weight@GRAD");
  ctx.copy("Bias", "Bias@GRAD");
  ctx.copy("Input", "Input@GRAD");
  return Ok();
}

Status infer_tree_nodes(InferContext& ctx) {
  // The width is the length of the longest path.
  ctx.set_output("Nodes", DType::kInt64, {rows_of(ctx.input("Label")), -1});
  return Ok();
}

Status infer_hsigmoid(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  MILLRACE_RETURN_IF_ERROR(check_weight(ctx, "W", "Nodes"));
  const VarMeta& w = ctx.has_input("W") ? ctx.input("W") : ctx.input("Rows");
  if (ctx.has_input("W") && dims_known(x) && dims_known(w) &&
      (x.rank() != 2 || w.rank() != 2 || !dims_agree(x.dims[1], w.dims[1]))) {
    return ctx.error("'W' has shape {}, expected [classes - 1, width] for 'X' {}",
                     dims_text(w.dims), dims_text(x.dims));
  }
  ctx.set_output("Out", with_offsets_of(tensor_meta(x.dtype, {rows_of(x), 1}), x));
  // The width is the length of the longest path in the tree of classes.
  ctx.set_output("PreOut", x.dtype, {rows_of(x), -1});
  if (ctx.has_input("W")) ctx.copy("W", "W_Out");
  return Ok();
}

Status infer_hsigmoid_grad(InferContext& ctx) {
  weight_grad(ctx, "W", "W@GRAD");
  ctx.set_output("Bias@GRAD", without_offsets(ctx.input("Bias")));
  ctx.copy("X", "X@GRAD");
  return Ok();
}

OpDef& sampling_attrs(OpDef& def) {
  return def.attr("num_total_classes", 1, "number of classes")
      .range(1)
      .attr("num_neg_samples", 10, "wrong classes drawn for each row")
      .range(1)
      .attr("sampler", 0, "0 uniform, 1 log-uniform, 2 the custom distribution")
      .range(0, 2)
      .attr("seed", 0, "0: a new seed in every run")
      .attr("custom_neg_classes", std::vector<int32_t>{}, "wrong classes to use, for tests");
}

OpDef& nce_attrs(OpDef& def) {
  return sampling_attrs(def)
      .attr("is_sparse", false, "the gradient of Weight is SELECTED_ROWS")
      .attr("remote_prefetch", false, "rows are fetched from the servers")
      .attr("epmap", Strings{}, "server of each slice, host:port")
      .attr("height_sections", std::vector<int64_t>{}, "rows of each slice")
      .attr("table_names", Strings{}, "slice of the table on each server")
      .attr("trainer_id", 0, "id of this trainer");
}

void add_nce(OpRegistry& registry) {
  OpDef forward("nce");
  forward.doc("noise-contrastive estimation of the loss over many classes")
      .input("Input", "[rows, width]")
      .input("Label", "correct classes [rows, labels]")
      .input("Weight", "[classes, width]", Arity::kOptional)
      .input("Rows", "instead of Weight: its rows of Classes [rows, samples, width]",
             Arity::kOptional)
      .input("Classes", "with Rows: the evaluated classes [rows, samples]", Arity::kOptional)
      .input("Bias", "[classes, 1]", Arity::kOptional)
      .input("SampleWeight", "weight of each row [rows, 1]", Arity::kOptional)
      .input("CustomDistProbs", "probability of each class", Arity::kOptional)
      .input("CustomDistAlias", "alias table", Arity::kOptional)
      .input("CustomDistAliasProbs", "probabilities of the alias table", Arity::kOptional)
      .output("Cost", "loss of each row [rows, 1]")
      .intermediate("SampleLogits", "scores of the evaluated classes")
      .intermediate("SampleLabels", "the evaluated classes")
      .infer(infer_nce)
      .grad({"nce_grad",
             {"Bias", "Cost@GRAD", "CustomDistAlias", "CustomDistAliasProbs", "CustomDistProbs",
              "Input", "Label", "SampleLabels", "SampleLogits", "SampleWeight", "Weight"},
             {"Bias@GRAD", "Input@GRAD", "Weight@GRAD"},
             {}});
  registry.add(nce_attrs(forward));
  OpDef backward("nce_grad");
  backward.doc("gradient of nce");
  for (const char* const slot : {"Input", "Label", "Weight", "Rows", "Bias", "SampleWeight",
                                 "CustomDistProbs", "CustomDistAlias", "CustomDistAliasProbs",
                                 "SampleLogits", "SampleLabels", "Cost", "Cost@GRAD"}) {
    backward.input(slot, "as in the forward op", Arity::kOptional);
  }
  backward.output("Input@GRAD", "gradient of Input", Arity::kOptional)
      .output("Weight@GRAD", "gradient of Weight", Arity::kOptional)
      .output("Bias@GRAD", "gradient of Bias", Arity::kOptional)
      .infer(infer_nce_grad);
  registry.add(nce_attrs(backward));
  OpDef sample("sample_classes");
  sample.doc("the classes that nce evaluates: the correct ones of each row, then drawn ones")
      .input("Label", "correct classes [rows, labels]")
      .input("CustomDistProbs", "probability of each class", Arity::kOptional)
      .input("CustomDistAlias", "alias table", Arity::kOptional)
      .input("CustomDistAliasProbs", "probabilities of the alias table", Arity::kOptional)
      .output("SampleLabels", "the classes [rows, labels + num_neg_samples]")
      .infer(infer_sample_classes);
  registry.add(sampling_attrs(sample));
}

OpDef& hsigmoid_attrs(OpDef& def) {
  return def.attr("num_classes", 2, "number of classes")
      .range(2)
      .attr("is_sparse", false, "the gradient of W is SELECTED_ROWS")
      .attr("remote_prefetch", false, "rows are fetched from the servers")
      .attr("trainer_id", 0, "id of this trainer")
      .attr("height_sections", std::vector<int64_t>{}, "rows of each slice")
      .attr("epmap", Strings{}, "server of each slice, host:port")
      .attr("table_names", Strings{}, "slice of the table on each server");
}

void add_hsigmoid(OpRegistry& registry) {
  OpDef forward("hierarchical_sigmoid");
  forward.doc("loss over classes that are leaves of a binary tree")
      .input("X", "[rows, width]")
      .input("W", "one row for each inner node", Arity::kOptional)
      .input("Rows", "instead of W: its rows of Nodes [rows, path, width]", Arity::kOptional)
      .input("Nodes", "with Rows: the nodes on each path [rows, path]", Arity::kOptional)
      .input("Label", "class of each row [rows, 1]")
      .input("PathTable", "inner nodes on the path to each class; default: complete tree",
             Arity::kOptional)
      .input("PathCode", "branch taken at each of them", Arity::kOptional)
      .input("Bias", "one element for each inner node", Arity::kOptional)
      .output("Out", "loss of each row [rows, 1]")
      .intermediate("PreOut", "scores of the nodes on the path")
      .intermediate("W_Out", "W itself")
      .infer(infer_hsigmoid)
      .grad({"hierarchical_sigmoid_grad",
             {"Bias", "Label", "Out@GRAD", "PathCode", "PathTable", "PreOut", "W", "X"},
             {"Bias@GRAD", "W@GRAD", "X@GRAD"},
             {}});
  registry.add(hsigmoid_attrs(forward));
  OpDef backward("hierarchical_sigmoid_grad");
  backward.doc("gradient of hierarchical_sigmoid");
  for (const char* const slot : {"X", "W", "Rows", "Nodes", "Label", "PathTable", "PathCode",
                                 "Bias", "PreOut", "Out", "Out@GRAD"}) {
    backward.input(slot, "as in the forward op", Arity::kOptional);
  }
  backward.output("X@GRAD", "gradient of X", Arity::kOptional)
      .output("W@GRAD", "gradient of W", Arity::kOptional)
      .output("Bias@GRAD", "gradient of Bias", Arity::kOptional)
      .infer(infer_hsigmoid_grad);
  registry.add(hsigmoid_attrs(backward));
  OpDef nodes("tree_nodes");
  nodes.doc("the inner nodes that hierarchical_sigmoid evaluates for each row")
      .input("Label", "class of each row [rows, 1]")
      .input("PathTable", "inner nodes on the path to each class; default: complete tree",
             Arity::kOptional)
      .input("PathCode", "branch taken at each of them", Arity::kOptional)
      .output("Nodes", "[rows, longest path]; shorter paths repeat their first node")
      .attr("num_classes", 2, "number of classes")
      .range(2)
      .infer(infer_tree_nodes);
  registry.add(nodes);
}

}  // namespace
}  // namespace sampled_loss

void add_embedding_sampled_loss(OpRegistry& registry) {
  using namespace sampled_loss;
  add_nce(registry);
  add_hsigmoid(registry);
}

}  // namespace millrace::ops
