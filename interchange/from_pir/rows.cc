// Rows of the export, read backwards: which op of a program an op of PIR is.

#include "interchange/pir/rows.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/base/errors.h"
#include "interchange/from_pir/op_context.h"

namespace millrace::interchange::pir {
namespace {

using Words = llvm::SmallVector<llvm::StringRef, 12>;

Words split_words(llvm::StringRef text, char separator) {
  Words words;
  text.split(words, separator, -1, false);
  return words;
}

// Several ops of a program are the same op of PIR: the newest form, or the one that does more.
bool is_preferred(llvm::StringRef type) {
  static constexpr const char* kTypes[] = {
      "reshape2", "squeeze2", "unsqueeze2", "transpose2",      "tile",
      "conv2d",   "softmax",  "sum",        "deformable_conv", "clip"};
  return llvm::is_contained(kTypes, type);
}

size_t operands_of(const Row& row) {
  size_t count = 0;
  for (const llvm::StringRef word : split_words(row.inputs, ' '))
    if (!word.starts_with("!")) ++count;
  return count;
}

// What the words of a row have collected, before the op is made: constants that become ops of their
// own come first.
struct Draft {
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs;
  std::vector<std::pair<std::string, AttrValue>> attrs;
};

// "@axis:i32|AxisTensor|AxisList*"
void read_constant(ImportContext& c, size_t k, llvm::StringRef word, Draft& draft) {
  const Words choices = split_words(word.drop_front(), '|');
  const auto [attr, kind] = choices[0].split(':');
  if (c.constant(k) != nullptr) {
    AttrValue value = AttrValue::of_long(0);
    if (kind == "i64s")
      value = AttrValue::of_longs(c.ints(k, attr.str().c_str()));
    else if (kind == "f32")
      value = AttrValue::of_float(static_cast<float>(c.number(k, attr.str().c_str())));
    else
      value = AttrValue::of_long(c.integer(k, attr.str().c_str()));
    draft.attrs.emplace_back(attr.str(), std::move(value));
    return;
  }
  for (llvm::StringRef slot : llvm::ArrayRef(choices).drop_front()) {
    const bool takes_list = slot.consume_back("*");
    if (takes_list != c.is_list(k)) continue;
    draft.inputs.emplace_back(slot.str(),
                              takes_list ? c.list(k) : std::vector<std::string>{c.in(k)});
    return;
  }
  c.fail(c.refuse(attr.str() + " that the program computes"));
}

void read_input(ImportContext& c, size_t k, llvm::StringRef word, Draft& draft) {
  if (word.starts_with("@")) return read_constant(c, k, word, draft);
  if (word == "-") {
    if (c.has(k)) c.fail(c.refuse(fmt::format("operand {} is not known to the import", k)));
    return;
  }
  const bool is_optional = word.consume_back("?");
  const bool is_list = word.consume_back("*");
  if (is_optional && !c.has(k)) return;
  draft.inputs.emplace_back(word.str(), is_list ? c.list(k) : std::vector<std::string>{c.in(k)});
}

// "sorted:bool=true": our op does the same only with this value.
void check_stated(ImportContext& c, const std::string& name, llvm::StringRef kind,
                  llvm::StringRef value) {
  bool is_same = false;
  int64_t integer = 0;
  double number = 0;
  value.getAsInteger(10, integer);
  value.getAsDouble(number);
  if (kind == "bool")
    is_same = c.attr<bool>(name) == (value == "true");
  else if (kind == "i32")
    is_same = c.attr<int64_t>(name) == integer;
  else if (kind == "f32")
    is_same = c.attr<double>(name) == number;
  else
    is_same = c.attr<std::string>(name) == value;
  if (!is_same) c.fail(c.refuse(fmt::format("{} other than {}", name, value.str())));
}

AttrValue list_of(ImportContext& c, llvm::StringRef name, llvm::StringRef kind) {
  if (kind == "i32s" || kind == "i64s")
    return AttrValue::of_longs(c.attr<std::vector<int64_t>>(name));
  if (kind == "strs") return AttrValue::of_strings(c.attr<std::vector<std::string>>(name));
  const auto values = c.attr<std::vector<double>>(name);
  return AttrValue::of_floats({values.begin(), values.end()});
}

AttrValue read_value(ImportContext& c, llvm::StringRef name, llvm::StringRef kind) {
  if (kind.ends_with("s")) return list_of(c, name, kind);
  if (kind == "bool") return AttrValue::of_bool(c.attr<bool>(name));
  if (kind == "i32" || kind == "i64") return AttrValue::of_long(c.attr<int64_t>(name));
  if (kind == "str") return AttrValue::of_string(c.attr<std::string>(name));
  if (kind == "dtype") return AttrValue::of_int(c.dtype_attr(name));
  return AttrValue::of_float(static_cast<float>(c.attr<double>(name)));
}

// "axis:i32", "dim<axis:i32", "sorted:bool=true", "place" or "!name".
void read_attribute(ImportContext& c, llvm::StringRef word, Draft& draft) {
  if (word.starts_with("!")) return;
  if (word == "place") return c.ignore({word});
  const auto [names, type] = word.split(':');
  const auto [kind, value] = type.split('=');
  const auto [name, other] = names.split('<');
  if (!value.empty()) return check_stated(c, name.str(), kind, value);
  draft.attrs.emplace_back((other.empty() ? name : other).str(), read_value(c, name, kind));
}

// "Out", "Out?", "Out*", "ParamOut=Param" or "-".
void add_output(ImportContext& c, size_t k, llvm::StringRef word, const Draft& draft, Op& op) {
  if (word == "-") return;
  const auto [slot, same] = word.split('=');
  word.consume_back("?");
  if (const llvm::StringRef updated = same; !updated.empty()) {
    const auto source =
        llvm::find_if(draft.inputs, [&](const auto& in) { return in.first == updated; });
    if (source != draft.inputs.end() && source->second.size() == 1)
      c.set_result(op, slot.str().c_str(), k, source->second[0]);
    return;
  }
  if (c.source().results[k].types.empty()) return;
  if (word.consume_back("*")) return c.add_results(op, word.rtrim('?').str().c_str(), k);
  c.add_result(op, word.str().c_str(), k);
}

}  // namespace

const Row* row_of(const SourceOp& op) {
  const llvm::StringRef name = llvm::StringRef(op.name).drop_front(2);
  const Row* found = nullptr;
  for (const auto& [type, row] : all_converters().rows) {
    if (name != row->name || operands_of(*row) != op.inputs.size()) continue;
    if (found == nullptr || is_preferred(row->type)) found = row;
  }
  return found;
}

std::vector<std::string> names_of_rows(const ops::OpRegistry& registry) {
  std::vector<std::string> names;
  for (const auto& [type, row] : all_converters().rows)
    if (registry.find(type) != nullptr) names.emplace_back(row->name);
  return names;
}

Status convert_back_by_row(ImportContext& c, const Row& row) {
  const Words words = split_words(row.outputs, ' ');
  if (words.size() != c.source().results.size())
    return c.refuse(
        fmt::format("{} results, expected {}", c.source().results.size(), words.size()));
  Draft draft;
  size_t k = 0;
  for (const llvm::StringRef word : split_words(row.inputs, ' '))
    if (!word.starts_with("!")) read_input(c, k++, word, draft);
  for (const llvm::StringRef word : split_words(row.attrs, ' ')) read_attribute(c, word, draft);
  if (!c.is_ok()) return Ok();  // finish() returns the error
  Op& op = c.append(row.type);
  for (const auto& [slot, vars] : draft.inputs) op.set_input(slot, vars);
  for (const auto& [name, value] : draft.attrs) c.set_attr(op, name.c_str(), value);
  for (size_t i = 0; i < words.size(); ++i) add_output(c, i, words[i], draft, op);
  if (llvm::StringRef(row.type) == "cast")
    c.set_attr(op, "in_dtype",
               AttrValue::of_int(static_cast<int32_t>(c.dtype(draft.inputs[0].second[0]))));
  c.finish_op(op);
  return Ok();
}

}  // namespace millrace::interchange::pir
