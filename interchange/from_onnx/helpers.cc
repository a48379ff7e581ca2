// Ops that many converters need.

#include <algorithm>

#include "framework/base/errors.h"
#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {

std::string NodeContext::cast(const std::string& var, DType to) {
  if (dtype(var) == to) return var;
  return op("cast", {{"X", {var}}},
            {{"in_dtype", AttrValue::of_int(static_cast<int32_t>(dtype(var)))},
             {"out_dtype", AttrValue::of_int(static_cast<int32_t>(to))}});
}

std::string NodeContext::reshape(const std::string& var, const std::vector<int64_t>& dims) {
  return op("reshape2", {{"X", {var}}}, {{"shape", AttrValue::of_longs(dims)}});
}

std::string NodeContext::transpose(const std::string& var, const std::vector<int64_t>& order) {
  return op("transpose2", {{"X", {var}}}, {{"axis", AttrValue::of_longs(order)}});
}

std::string NodeContext::unsqueeze(const std::string& var, const std::vector<int64_t>& axes) {
  if (axes.empty()) return var;
  return op("unsqueeze2", {{"X", {var}}}, {{"axes", AttrValue::of_longs(axes)}});
}

std::string NodeContext::squeeze(const std::string& var, const std::vector<int64_t>& axes) {
  if (axes.empty()) return var;
  return op("squeeze2", {{"X", {var}}}, {{"axes", AttrValue::of_longs(axes)}});
}

std::string NodeContext::binary(const char* type, const std::string& x, const std::string& y) {
  return op(type, {{"X", {x}}, {"Y", {y}}}, {{"axis", AttrValue::of_int(-1)}});
}

std::string NodeContext::shape(const std::string& var) {
  return cast(op("shape", {{"Input", {var}}}), DType::kInt64);
}

std::string NodeContext::slice(const std::string& var, int64_t axis, int64_t begin, int64_t end,
                               bool drop) {
  std::vector<OpAttr> attrs = {{"axes", AttrValue::of_longs({axis})},
                               {"starts", AttrValue::of_longs({begin})},
                               {"ends", AttrValue::of_longs({end})}};
  if (drop) attrs.push_back({"decrease_axis", AttrValue::of_longs({axis})});
  return op("slice", {{"Input", {var}}}, attrs);
}

namespace {

// The dims that two shapes have after broadcasting; -1 where they are not known.
Dims joined_dims(const Dims& a, const Dims& b) {
  Dims out = a.size() >= b.size() ? a : b;
  const Dims& other = a.size() >= b.size() ? b : a;
  const size_t lead = out.size() - other.size();
  for (size_t i = 0; i < other.size(); ++i) {
    int64_t& dim = out[lead + i];
    if (dim == 1)
      dim = other[i];
    else if (dim < 0 && other[i] > 1)
      dim = other[i];
  }
  return out;
}

}  // namespace

std::vector<std::string> NodeContext::broadcast(const std::vector<std::string>& vars) {
  Dims all;
  bool same = true;
  bool is_known = true;
  for (const std::string& var : vars) {
    all = joined_dims(all, dims(var));
    is_known = is_known && is_static(var);
  }
  for (const std::string& var : vars) same = same && dims(var) == all;
  if (same && is_known) return vars;
  std::vector<std::string> out;
  if (is_known) {
    const std::vector<int64_t> target(all.begin(), all.end());
    for (const std::string& var : vars)
      out.push_back(dims(var) == all ? var
                                     : op("expand_v2", {{"X", {var}}},
                                          {{"shape", AttrValue::of_longs(target)}}));
    return out;
  }
  // The sum of zeros has the shape of the result.
  std::string zeros;
  for (const std::string& var : vars) {
    const std::string own = op("fill_any_like", {{"X", {var}}},
                               {{"value", AttrValue::of_float(0)},
                                {"dtype", AttrValue::of_int(static_cast<int32_t>(DType::kInt32))}});
    zeros = zeros.empty() ? own : binary("elementwise_add", zeros, own);
  }
  const std::string target = op("shape", {{"Input", {zeros}}});
  for (const std::string& var : vars) {
    out.push_back(op("expand_v2", {{"X", {var}}, {"Shape", {target}}}));
    refine(out.back(), all);
  }
  return out;
}

}  // namespace millrace::interchange
