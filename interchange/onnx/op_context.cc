#include "interchange/onnx/op_context.h"

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/block.h"

namespace millrace::interchange {

std::string OpContext::in(llvm::StringRef slot) {
  const std::vector<std::string> values = ins(slot);
  if (values.size() == 1) return values[0];
  fail(InvalidProgram("input {} has {} vars, expected one", slot.str(), values.size())
           .at(op().location()));
  return "";
}

std::vector<std::string> OpContext::ins(llvm::StringRef slot) {
  note_input(slot);
  std::vector<std::string> values;
  for (const llvm::StringRef name : op().input(slot)) {
    const auto found = vars_.value.find(name.str());
    if (found == vars_.value.end()) {
      fail(InvalidProgram("input {} '{}' has no value: no converted op writes it and it is neither "
                          "fed nor a parameter",
                          slot.str(), name.str())
               .at(op().location()));
      return {};
    }
    values.push_back(found->second);
  }
  return values;
}

std::vector<std::string> OpContext::lod(llvm::StringRef slot) const {
  const auto found = vars_.lod.find(op().first_input(slot).str());
  return found == vars_.lod.end() ? std::vector<std::string>() : found->second;
}

std::string OpContext::offsets(llvm::StringRef slot) {
  const std::vector<std::string> levels = lod(slot);
  if (!levels.empty()) return levels.back();
  fail(refuse(fmt::format("input {} '{}' has no LoD", slot.str(), op().first_input(slot).str())));
  return "";
}

void OpContext::set(llvm::StringRef slot, const std::string& value, size_t k) {
  const auto names = op().output(slot);
  note_output(slot);
  if (k >= names.size() || !is_ok()) return;
  const std::string name = names[k].str();
  std::string bound = value;
  if (graph_.is_temporary(value)) {
    bound = graph_.unique(name);
    graph_.rename(value, bound, first_node_);
  }
  vars_.value[name] = bound;
  vars_.constant.erase(name);
  if (lod_set_.contains(name)) return;
  vars_.lod.erase(name);
  const Var* const var = var_of(slot, k, /*is_output=*/true);
  if (var == nullptr || var->lod_level() == 0) return;
  for (const llvm::StringRef input : op().input_names()) {
    const auto found = vars_.lod.find(input.str());
    if (found == vars_.lod.end()) continue;
    // Other levels than the output has are not those of its rows.
    if (static_cast<int32_t>(found->second.size()) != var->lod_level()) continue;
    vars_.lod[name] = found->second;
    break;
  }
}

void OpContext::set_lod(llvm::StringRef slot, std::vector<std::string> levels) {
  const std::string name = op().first_output(slot).str();
  lod_set_.insert(name);
  vars_.lod.erase(name);
  if (!levels.empty()) vars_.lod[name] = std::move(levels);
}

std::string OpContext::node(const std::string& type, const std::vector<std::string>& inputs,
                            std::vector<NodeAttr> attrs) {
  return graph_.add_node(type, inputs, std::move(attrs), 1)[0];
}

std::string OpContext::cast(const std::string& value, DType to) {
  if (onnx_type(to) == 0)
    fail(refuse(fmt::format("element type {} has no counterpart", dtype_name(to))));
  return node("Cast", {value}, {{"to", int64_t{onnx_type(to)}}});
}

std::string OpContext::reshape(const std::string& value, const std::vector<int64_t>& dims) {
  return node("Reshape", {value, graph_.ints(dims)});
}

std::string OpContext::squeeze(const std::string& value, const std::vector<int64_t>& axes) {
  return axes.empty() ? value : node("Squeeze", {value, graph_.ints(axes)});
}

std::string OpContext::unsqueeze(const std::string& value, const std::vector<int64_t>& axes) {
  return axes.empty() ? value : node("Unsqueeze", {value, graph_.ints(axes)});
}

std::string OpContext::transpose(const std::string& value, const std::vector<int64_t>& order) {
  return node("Transpose", {value}, {{"perm", order}});
}

std::string OpContext::reduce(const std::string& type, const std::string& value,
                              const std::vector<int64_t>& axes, bool keep) {
  std::vector<NodeAttr> attrs = {{"keepdims", int64_t{keep}}};
  // ReduceSum has had axes as an input since opset 13, the others since 18.
  if (type == "ReduceSum" || opset() >= 18)
    return node(type, {value, graph_.ints(axes)}, std::move(attrs));
  attrs.push_back({"axes", axes});
  return node(type, {value}, std::move(attrs));
}

std::string OpContext::slice(const std::string& value, int64_t axis, int64_t begin, int64_t end) {
  return node("Slice", {value, graph_.ints({begin}), graph_.ints({end}), graph_.ints({axis})});
}

std::string OpContext::extent(const std::string& value, int64_t axis) {
  return node("Shape", {value}, {{"start", axis}, {"end", axis + 1}});
}

}  // namespace millrace::interchange
