// Ops that split, slice and expand tensors.

#include "interchange/from_pir/op_context.h"

namespace millrace::interchange::pir {
namespace {

// Along an axis into given or equal extents.
Status split(ImportContext& c) {
  const bool is_equal = c.name() == "split_with_num";
  const std::string x = c.in(0);
  const std::vector<int64_t> sections = is_equal ? std::vector<int64_t>() : c.ints(1, "sections");
  const int64_t axis = c.integer(is_equal ? 1 : 2, "the axis");
  const int64_t num = is_equal ? c.attr<int64_t>("num") : 0;
  Op& op = c.append("split");
  op.set_input("X", x);
  c.set_attr(op, "axis", AttrValue::of_long(axis));
  c.set_attr(op, "num", AttrValue::of_long(num));
  c.set_attr(op, "sections", AttrValue::of_longs(sections));
  c.add_results(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

// Positions of a slice: an attribute, a list of tensors, or a tensor.
void set_positions(ImportContext& c, Op& op, const std::string& attr, const std::string& slot,
                   const std::vector<int64_t>& known, const std::vector<std::string>& vars,
                   bool is_list, size_t axes) {
  if (!vars.empty()) {
    op.set_input(slot + (is_list ? "List" : ""), vars);
    c.set_attr(op, attr.c_str(), AttrValue::of_longs(std::vector<int64_t>(axes, -1)));
    return;
  }
  c.set_attr(op, attr.c_str(), AttrValue::of_longs(known));
}

struct Positions {
  std::vector<int64_t> known;
  std::vector<std::string> vars;
  bool is_list = false;
};

Positions read_positions(ImportContext& c, size_t k, const char* what) {
  if (c.constant(k) != nullptr) return {c.ints(k, what), {}, false};
  if (c.is_list(k)) return {{}, c.list(k), true};
  return {{}, {c.in(k)}, false};
}

Status slice(ImportContext& c) {
  const bool has_steps = c.name() == "strided_slice";
  const std::string x = c.in(0);
  const Positions starts = read_positions(c, 1, "starts");
  const Positions ends = read_positions(c, 2, "ends");
  const Positions steps = has_steps ? read_positions(c, 3, "strides") : Positions();
  const auto axes = c.attr<std::vector<int64_t>>("axes");
  Op& op = c.append(c.name().str().c_str());
  op.set_input("Input", x);
  c.set_attr(op, "axes", AttrValue::of_longs(axes));
  const auto set = [&](const char* attr, const char* slot, const Positions& p) {
    set_positions(c, op, attr, slot, p.known, p.vars, p.is_list, axes.size());
  };
  set("starts", "StartsTensor", starts);
  set("ends", "EndsTensor", ends);
  std::vector<int64_t> flags(axes.size(), 1);
  if (has_steps) {
    set("strides", "StridesTensor", steps);
  } else {
    c.ignore({"infer_flags"});  // of what is known before the run, which follows from the operands
    c.set_attr(op, "decrease_axis",
               AttrValue::of_longs(c.attr<std::vector<int64_t>>("decrease_axis")));
  }
  if (!starts.vars.empty() || !ends.vars.empty() || !steps.vars.empty())
    flags.assign(axes.size(), -1);
  c.set_attr(op, "infer_flags", AttrValue::of_longs(flags));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

Status expand_as(ImportContext& c) {
  const std::string x = c.in(0);
  const std::string y = c.has(1) ? c.in(1) : "";
  Op& op = c.append("expand_as_v2");
  op.set_input("X", x);
  // The operand has precedence in release 3, the list in programs.
  const auto dims = c.attr<std::vector<int64_t>>("target_shape");
  if (!y.empty()) {
    op.set_input("Y", y);
    c.set_attr(op, "target_shape", AttrValue::of_longs({}));
  } else {
    c.set_attr(op, "target_shape", AttrValue::of_longs(dims));
  }
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

// The second operand has precedence over the list, in both forms of the op.
Status lod_reset(ImportContext& c) {
  const std::string x = c.in(0);
  const std::string y = c.has(1) ? c.in(1) : "";
  Op& op = c.append("lod_reset");
  op.set_input("X", x);
  if (!y.empty()) op.set_input("Y", y);
  c.set_attr(op, "target_lod", AttrValue::of_longs(c.attr<std::vector<int64_t>>("target_lod")));
  c.set_attr(op, "append", AttrValue::of_bool(c.attr<bool>("append")));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

Status put_along_axis(ImportContext& c) {
  const std::string x = c.in(0);
  const std::string index = c.in(1);
  const std::string value = c.in(2);
  Op& op = c.append("put_along_axis");
  op.set_input("Input", x).set_input("Index", index).set_input("Value", value);
  c.set_attr(op, "Axis", AttrValue::of_long(c.attr<int64_t>("axis")));
  c.set_attr(op, "Reduce", AttrValue::of_string(c.attr<std::string>("reduce")));
  c.set_attr(op, "Include_self", AttrValue::of_bool(c.attr<bool>("include_self")));
  c.add_result(op, "Result", 0);
  c.finish_op(op);
  return Ok();
}

// Parts of the columns of several tensors, joined or added.
Status partial(ImportContext& c) {
  const std::vector<std::string> x = c.list(0);
  Op& op = c.append(c.name().str().c_str());
  op.set_input("X", x);
  c.set_attr(op, "start_index", AttrValue::of_long(c.attr<int64_t>("start_index")));
  c.set_attr(op, "length", AttrValue::of_long(c.attr<int64_t>("length")));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

}  // namespace

void add_shape_imports(ImportConverters& table) {
  table["split"] = table["split_with_num"] = split;
  table["slice"] = table["strided_slice"] = slice;
  table["expand_as"] = expand_as;
  table["lod_reset"] = lod_reset;
  table["put_along_axis"] = put_along_axis;
  table["partial_concat"] = table["partial_sum"] = partial;
}

}  // namespace millrace::interchange::pir
