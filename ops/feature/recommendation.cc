#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Layers of matching and recommendation models: trees of items, matrices of matches, attention by
// rank.
namespace millrace::ops {
namespace {

bool integers(const VarMeta& meta) {
  return meta.dtype == DType::kInt32 || meta.dtype == DType::kInt64;
}

// Attribute 'dtype' as an integer type.
StatusOr<DType> type_of_nodes(const InferContext& ctx) {
  DType dtype = DType::kInt32;
  MILLRACE_ASSIGN_OR_RETURN(dtype, checked_dtype(ctx, "dtype"));
  if (dtype != DType::kInt32 && dtype != DType::kInt64)
    return ctx.error("attribute 'dtype' is {}, expected i32 or i64", dtype_name(dtype));
  return dtype;
}

Status infer_tdm_child(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& tree = ctx.input("TreeInfo");
  const int64_t children = ctx.attr<int32_t>("child_nums");
  DType dtype = DType::kInt32;
  MILLRACE_ASSIGN_OR_RETURN(dtype, type_of_nodes(ctx));
  if (!integers(x) || !integers(tree))
    return ctx.error("'X' and 'TreeInfo' are {} and {}, expected i32 or i64", dtype_name(x.dtype),
                     dtype_name(tree.dtype));
  if (dims_known(tree)) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "TreeInfo", 2, 2));
    if (!dims_agree(tree.dims[1], 3 + children))
      return ctx.error(
          "'TreeInfo' has shape {}, expected {} columns: item, layer, parent and attribute "
          "'child_nums' children",
          dims_text(tree.dims), 3 + children);
  }
  if (!dims_known(x)) return Ok();
  Dims dims(x.dims.begin(), x.dims.end());
  dims.push_back(children);
  ctx.set_output("Child", tensor_with_lod_of(x, dtype, dims));
  ctx.set_output("LeafMask", tensor_with_lod_of(x, dtype, dims));
  return Ok();
}

Status infer_tdm_sampler(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& travel = ctx.input("Travel");
  const VarMeta& layer = ctx.input("Layer");
  const auto wrong = ctx.attr<std::vector<int32_t>>("neg_samples_num_list");
  const auto offsets = ctx.attr<std::vector<int32_t>>("layer_offset_lod");
  DType dtype = DType::kInt32;
  MILLRACE_ASSIGN_OR_RETURN(dtype, type_of_nodes(ctx));
  if (!integers(x) || !integers(travel) || travel.dtype != layer.dtype)
    return ctx.error(
        "'X', 'Travel' and 'Layer' are {}, {} and {}, expected integers, the last two "
        "of one type",
        dtype_name(x.dtype), dtype_name(travel.dtype), dtype_name(layer.dtype));
  if (offsets.size() != wrong.size() + 1 || offsets.front() != 0)
    return ctx.error(
        "attribute 'layer_offset_lod' has {} entries, expected 0 and an end for each of the {} "
        "layers of 'neg_samples_num_list'",
        offsets.size(), wrong.size());
  int64_t width = 0;
  for (size_t k = 0; k < wrong.size(); ++k) {
    const int64_t nodes = int64_t{offsets[k + 1]} - offsets[k];
    // The correct node is in the layer and is never sampled.
    if (wrong[k] < 0 || wrong[k] >= nodes)
      return ctx.error(
          "attribute 'neg_samples_num_list' has {} for layer {}, expected less than "
          "the {} nodes of the layer",
          wrong[k], k, nodes);
    width += wrong[k] + (ctx.attr<bool>("output_positive") ? 1 : 0);
  }
  if (dims_known(travel)) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Travel", 2, 2));
    if (!dims_agree(travel.dims[1], static_cast<int64_t>(wrong.size())))
      return ctx.error("'Travel' has shape {}, expected {} columns, one for each layer",
                       dims_text(travel.dims), wrong.size());
  }
  if (dims_known(layer) && !dims_agree(dims_product(layer.dims), offsets.back()))
    return ctx.error("'Layer' has shape {}, expected {} nodes as attribute 'layer_offset_lod'",
                     dims_text(layer.dims), offsets.back());
  int64_t rows = -1;
  if (dims_known(x)) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 2));
    if (x.rank() == 2 && !dims_agree(x.dims[1], 1))
      return ctx.error("'X' has shape {}, expected [rows, 1]", dims_text(x.dims));
    rows = x.dims[0];
  }
  for (const char* const slot : {"Out", "Labels", "Mask"})
    ctx.set_output(slot, dtype, {rows, width});
  return Ok();
}

Status infer_rank_attention(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& places = ctx.input("RankOffset");
  const VarMeta& param = ctx.input("RankParam");
  const int64_t ranks = ctx.attr<int32_t>("MaxRank");
  if (!dims_known(x) || !dims_known(places) || !dims_known(param)) return Ok();
  for (const char* const slot : {"X", "RankOffset", "RankParam"})
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, slot, 2, 2));
  if (!dims_agree(places.dims[0], x.dims[0]) || !dims_agree(places.dims[1], 1 + 2 * ranks))
    return ctx.error("'RankOffset' has shape {}, expected [{}, {}], 1 + 2 * 'MaxRank' columns",
                     dims_text(places.dims), x.dims[0], 1 + 2 * ranks);
  const int64_t height = x.dims[1] < 0 ? -1 : ranks * ranks * x.dims[1];
  if (!dims_agree(param.dims[0], height))
    return ctx.error(
        "'RankParam' has shape {}, expected {} rows, 'MaxRank'^2 times the width of "
        "'X' {}",
        dims_text(param.dims), height, dims_text(x.dims));
  const int64_t most =
      x.dims[0] < 0 ? -1 : std::max<int64_t>(x.dims[0], ctx.attr<int32_t>("MaxSize"));
  ctx.set_output("InputHelp", x.dtype, {most, x.dims[1] < 0 ? -1 : ranks * x.dims[1]});
  ctx.set_output("InsRank", x.dtype, {most, 1});
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, {x.dims[0], param.dims[1]}));
  return Ok();
}

// Offsets of the results: size_of() returns the number of elements of each sequence.
template <typename SizeOf>
void set_pieces(InferContext& ctx, llvm::StringRef slot, DType dtype, size_t sequences,
                SizeOf&& size_of) {
  LodLevel ends{0};
  for (size_t i = 0; i < sequences; ++i) ends.push_back(ends.back() + size_of(i));
  VarMeta meta = tensor_meta(dtype, {ends.back(), 1}, 1);
  meta.lod = Lod({std::move(ends)});
  ctx.set_output(slot, std::move(meta));
}

int64_t rows_of_sequence(const VarMeta& meta, size_t i) {
  return meta.lod.last()[i + 1] - meta.lod.last()[i];
}

Status infer_match_matrix(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  const VarMeta& w = ctx.input("W");
  const int64_t channels = ctx.attr<int32_t>("dim_t");
  if (!dims_known(x) || !dims_known(y) || !dims_known(w)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Y", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "W", 3, 3));
  if (!dims_agree(w.dims[0], x.dims[1]) || !dims_agree(w.dims[1], channels) ||
      !dims_agree(w.dims[2], y.dims[1]))
    return ctx.error("'W' has shape {}, expected [{}, {}, {}] for 'X' {} and 'Y' {}",
                     dims_text(w.dims), x.dims[1], channels, y.dims[1], dims_text(x.dims),
                     dims_text(y.dims));
  const int64_t made = x.dims[0] < 0 || w.dims[2] < 0 ? -1 : x.dims[0] * channels * w.dims[2];
  ctx.set_output("Tmp", x.dtype, {made, 1});
  if (x.lod.empty() || y.lod.empty()) {
    ctx.set_output("Out", tensor_meta(x.dtype, {-1, 1}, 1));
    return Ok();
  }
  const size_t sequences = x.lod.last().size() - 1;
  if (y.lod.last().size() - 1 != sequences)
    return ctx.error("'X' has {} sequences and 'Y' {}, expected the same number", sequences,
                     y.lod.last().size() - 1);
  set_pieces(ctx, "Out", x.dtype, sequences,
             [&](size_t i) { return channels * rows_of_sequence(x, i) * rows_of_sequence(y, i); });
  return Ok();
}

int64_t places_of_var_conv(int64_t extent, int64_t stride) {
  return extent == 0 ? 0 : (extent - 1) / stride + 1;
}

Status infer_var_conv(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& w = ctx.input("W");
  const int64_t inputs = ctx.attr<int32_t>("InputChannel");
  const int64_t outputs = ctx.attr<int32_t>("OutputChannel");
  const int64_t taps =
      inputs * ctx.attr<int32_t>("KernelH") * int64_t{ctx.attr<int32_t>("KernelW")};
  if (dims_known(w) &&
      (w.rank() != 2 || !dims_agree(w.dims[0], outputs) || !dims_agree(w.dims[1], taps)))
    return ctx.error("'W' has shape {}, expected [{}, {}]", dims_text(w.dims), outputs, taps);
  if (dims_known(x) && (x.rank() != 2 || !dims_agree(x.dims[1], 1)))
    return ctx.error("'X' has shape {}, expected [elements, 1]", dims_text(x.dims));
  const VarMeta& rows = ctx.input("ROW");
  const VarMeta& columns = ctx.input("COLUMN");
  if (x.lod.empty() || rows.lod.empty() || columns.lod.empty()) {
    for (const char* const slot : {"Out", "Col"})
      ctx.set_output(slot, tensor_meta(x.dtype, {-1, 1}, 1));
    return Ok();
  }
  const size_t images = x.lod.last().size() - 1;
  if (rows.lod.last().size() - 1 != images || columns.lod.last().size() - 1 != images)
    return ctx.error(
        "'X', 'ROW' and 'COLUMN' have {}, {} and {} sequences, expected the same number", images,
        rows.lod.last().size() - 1, columns.lod.last().size() - 1);
  for (size_t i = 0; i < images; ++i) {
    const int64_t wanted = inputs * rows_of_sequence(rows, i) * rows_of_sequence(columns, i);
    if (rows_of_sequence(x, i) != wanted)
      return ctx.error("image {} of 'X' has {} elements, expected {} x {} x {}", i,
                       rows_of_sequence(x, i), inputs, rows_of_sequence(rows, i),
                       rows_of_sequence(columns, i));
  }
  const auto places = [&](size_t i) {
    return places_of_var_conv(rows_of_sequence(rows, i), ctx.attr<int32_t>("StrideH")) *
           places_of_var_conv(rows_of_sequence(columns, i), ctx.attr<int32_t>("StrideW"));
  };
  set_pieces(ctx, "Out", x.dtype, images, [&](size_t i) { return outputs * places(i); });
  set_pieces(ctx, "Col", x.dtype, images, [&](size_t i) { return taps * places(i); });
  return Ok();
}

void add_trees(OpRegistry& registry) {
  registry.add(
      OpDef("tdm_child")
          .doc("children of nodes of a tree, 0 for none, and which of them are leaves")
          .input("X", "nodes, any shape")
          .input("TreeInfo",
                 "[nodes, 3 + child_nums]: item, layer, parent, children; a "
                 "node with an item is a leaf")
          .output("Child", "[..., child_nums]")
          .output("LeafMask", "1 where the child is a leaf, else 0")
          .required_attr<int32_t>("child_nums", "children of a node, 0 at the end for none")
          .range(1)
          .attr("dtype", 2, "element type of the results")
          .infer(infer_tdm_child));
  registry.add(
      OpDef("tdm_sampler")
          .doc("for each leaf the nodes on its path through a tree, and others of their layers")
          .input("X", "leaves [rows, 1]")
          .input("Travel", "node in each layer on the path to a leaf [leaves, layers]; 0: none")
          .input("Layer", "nodes of all layers, one after the other [nodes, 1]")
          .output("Out", "for each layer the correct node and the sampled ones")
          .output("Labels", "1 for the correct node, else 0", Arity::kOptional)
          .output("Mask", "0 where there is no node, else 1")
          .attr("output_positive", true, "include the correct nodes in the results")
          .attr("neg_samples_num_list", std::vector<int32_t>{}, "nodes to sample in each layer")
          .attr("layer_offset_lod", std::vector<int32_t>{}, "where each layer ends in Layer")
          .attr("seed", 0, "0: a new seed in every run")
          .attr("dtype", 2, "element type of the results")
          .infer(infer_tdm_sampler));
}

}  // namespace

void add_feature_recommendation(OpRegistry& registry) {
  add_trees(registry);
  registry.add(
      OpDef("rank_attention")
          .doc("rows of X times submatrices of RankParam, chosen by the ranks of a row and its "
               "partners")
          .input("X", "[rows, width]")
          .input("RankOffset",
                 "rank of the row, then rank and row of each partner; ranks from 1, below 1: "
                 "none [rows, 1 + 2 * MaxRank]")
          .input("RankParam", "[MaxRank * MaxRank * width, columns]")
          .intermediate("InputHelp", "rows of the partners, concatenated")
          .output("Out", "[rows, columns]")
          .intermediate("InsRank", "rank of each row, -1 after the last")
          .attr("MaxRank", 3, "largest rank")
          .range(1)
          .attr("MaxSize", 0, "minimum number of rows of InputHelp and InsRank")
          .range(0)
          .infer(infer_rank_attention)
          .grad({"rank_attention_grad",
                 {"InputHelp", "InsRank", "Out@GRAD", "RankOffset", "RankParam", "X"},
                 {"RankParam@GRAD"},
                 {}}));
  registry.add(
      OpDef("match_matrix_tensor")
          .doc("x W[:, t] y' for every pair of rows of sequence i of X and of Y, and every t")
          .input("X", "sequences [rows, width]")
          .input("Y", "sequences [rows, width of Y]")
          .input("W", "[width, dim_t, width of Y]")
          .output("Out", "[elements, 1], for each sequence [dim_t, rows of X, rows of Y]")
          .intermediate("Tmp", "X W, [elements, 1]")
          .attr("dim_t", 1, "matrices in W")
          .range(1)
          .infer(infer_match_matrix)
          .grad({"match_matrix_tensor_grad",
                 {"Out@GRAD", "Tmp", "W", "X", "Y"},
                 {"W@GRAD", "X@GRAD", "Y@GRAD"},
                 {}}));
  OpDef conv("var_conv_2d");
  conv.doc("convolution of images of different sizes, zeros around them")
      .input("X", "images one after the other [elements, 1], each [InputChannel, height, width]")
      .input("ROW", "its LoD has the heights")
      .input("COLUMN", "its LoD has the widths")
      .input("W", "[OutputChannel, InputChannel * KernelH * KernelW]")
      .output("Out", "[elements, 1], each [OutputChannel, height / StrideH, width / StrideW]")
      .intermediate("Col", "windows of the images, one column per position");
  for (const char* const name : {"InputChannel", "OutputChannel"})
    conv.attr(name, 1, "number of channels").range(1);
  for (const char* const name : {"StrideH", "StrideW"}) conv.attr(name, 1, "step").range(1);
  for (const char* const name : {"KernelH", "KernelW"})
    conv.attr(name, 1, "extent of the window").range(1);
  registry.add(conv.infer(infer_var_conv)
                   .grad({"var_conv_2d_grad",
                          {"COLUMN", "Col", "Out", "Out@GRAD", "ROW", "W", "X"},
                          {"W@GRAD", "X@GRAD"},
                          {}}));
}

}  // namespace millrace::ops
