#include "interchange/pir/rows.h"

#include <cmath>

#include <llvm/ADT/SmallVector.h>

#include "framework/base/errors.h"

namespace millrace::interchange::pir {
namespace {

using Words = llvm::SmallVector<llvm::StringRef, 12>;

Words words_of(llvm::StringRef text, char separator) {
  Words words;
  text.split(words, separator, -1, false);
  return words;
}

// An operand that is absent.
Value no_value() {
  return {.id = 0, .types = {TensorType{}}};
}

// The values of a slot as the operand that a word with `*` or without it means.
Value operand(OpContext& c, llvm::StringRef slot, bool is_list) {
  return is_list ? c.list(c.ins(slot)) : c.in(slot);
}

// "@axis:i32|AxisTensor|AxisList*"
Value constant(OpContext& c, llvm::StringRef word) {
  const Words choices = words_of(word.drop_front(), '|');
  const auto [attr, kind] = choices[0].split(':');
  Value chosen;
  for (llvm::StringRef slot : llvm::ArrayRef(choices).drop_front()) {
    const bool is_list = slot.consume_back("*");
    if (!c.has(slot)) continue;
    if (chosen.exists()) {
      c.ins(slot);  // the original does not read it either
    } else {
      chosen = operand(c, slot, is_list);
    }
  }
  c.ignore({attr});
  if (chosen.exists()) return chosen;
  if (kind == "i64s") return c.int_list(c.ints(attr));
  if (kind == "f32") return c.full(c.attr<float>(attr), DType::kFloat32);
  return c.full(static_cast<double>(c.attr<int64_t>(attr)),
                kind == "i64" ? DType::kInt64 : DType::kInt32);
}

Value input(OpContext& c, llvm::StringRef word) {
  if (word.starts_with("@")) return constant(c, word);
  if (word == "-") return no_value();
  const bool is_optional = word.consume_back("?");
  const bool is_list = word.consume_back("*");
  if (is_optional && !c.names_var(word)) {
    c.note_input_slot(word);
    return no_value();
  }
  return operand(c, word, is_list);
}

// A constant attribute: "sorted:bool=true".
Attr stated(std::string name, llvm::StringRef kind, llvm::StringRef value) {
  int64_t integer = 0;
  double number = 0;
  value.getAsInteger(10, integer);
  value.getAsDouble(number);
  if (kind == "bool") return of_bool(std::move(name), value == "true");
  if (kind == "i32") return of_i32(std::move(name), integer);
  if (kind == "f32") return of_f32(std::move(name), number);
  return of_string(std::move(name), value.str());
}

Attr list_attr(OpContext& c, std::string name, llvm::StringRef source, llvm::StringRef kind) {
  if (kind == "i32s") return of_i32s(std::move(name), c.ints(source));
  if (kind == "i64s") return of_i64s(std::move(name), c.ints(source));
  if (kind == "f32s") return of_f32s(std::move(name), c.attr<std::vector<float>>(source));
  if (kind == "f64s") {
    const auto values = c.attr<std::vector<float>>(source);
    return of_f64s(std::move(name), {values.begin(), values.end()});
  }
  return of_strings(std::move(name), c.attr<std::vector<std::string>>(source));
}

Attr number_attr(OpContext& c, std::string name, llvm::StringRef source, llvm::StringRef kind) {
  const auto value = c.attr<float>(source);
  if (!std::isfinite(value))
    c.fail(
        c.refuse("the attribute " + source.str() + " is not finite, which PIR files cannot say"));
  return kind == "f32" ? of_f32(std::move(name), value) : of_f64(std::move(name), value);
}

Attr dtype_attr(OpContext& c, std::string name, llvm::StringRef source) {
  const auto value = c.attr<int32_t>(source);
  if (value < 0) return of_own_dtype(std::move(name));
  if (!has_type(static_cast<DType>(value)))
    c.fail(c.refuse("an element type that PIR does not have"));
  return of_dtype(std::move(name), static_cast<DType>(value));
}

// "axis:i32", "dim<axis:i32" or "sorted:bool=true".
Attr attribute(OpContext& c, llvm::StringRef word) {
  const auto [names, type] = word.split(':');
  const auto [kind, value] = type.split('=');
  const auto [name, other] = names.split('<');
  if (!value.empty() || type.ends_with("=")) return stated(name.str(), kind, value);
  const llvm::StringRef source = other.empty() ? name : other;
  if (kind.ends_with("s")) return list_attr(c, name.str(), source, kind);
  if (kind == "bool") return of_bool(name.str(), c.attr<bool>(source));
  if (kind == "i32") return of_i32(name.str(), c.attr<int64_t>(source));
  if (kind == "i64") return of_i64(name.str(), c.attr<int64_t>(source));
  if (kind == "str") return of_string(name.str(), c.attr<std::string>(source));
  if (kind == "dtype") return dtype_attr(c, name.str(), source);
  return number_attr(c, name.str(), source, kind);
}

Value result(OpContext& c, llvm::StringRef word) {
  if (word == "-") return {};
  const bool is_optional = word.contains('=') || word.ends_with("?");
  word = word.split('=').first;
  word.consume_back("?");
  if (is_optional && !c.computes(word.rtrim('*'))) return {};
  if (word.consume_back("*")) {
    std::vector<TensorType> types;
    for (size_t k = 0; k < c.op().output(word).size(); ++k) types.push_back(c.out_type(word, k));
    return results_of(std::move(types));
  }
  return result_of(c.out_type(word));
}

void bind(OpContext& c, llvm::StringRef word, const Value& value) {
  if (value.types.empty()) return;
  const auto [output, updated] = word.split('=');
  if (!updated.empty()) return c.set_updated(output, value);
  word.consume_back("?");
  if (!word.consume_back("*")) return c.set(word, value);
  const std::vector<Value> parts = c.parts(value);
  for (size_t k = 0; k < parts.size(); ++k) c.set(word, parts[k], k);
}

}  // namespace

Status convert_by_row(OpContext& c, const Row& row) {
  const Words words = words_of(row.outputs, ' ');
  std::vector<Value> inputs;
  for (const llvm::StringRef word : words_of(row.inputs, ' ')) {
    if (word.starts_with("!")) {
      c.note_input_slot(word.drop_front());
      continue;
    }
    inputs.push_back(input(c, word));
    for (const llvm::StringRef output : words)
      if (const auto [slot, updated] = output.split('='); updated == word.rtrim("?"))
        inputs.back() = c.to_update(inputs.back(), updated, slot);
  }
  std::vector<Attr> attrs;
  for (const llvm::StringRef word : words_of(row.attrs, ' ')) {
    if (word.starts_with("!"))
      c.ignore({word.drop_front()});
    else
      attrs.push_back(word == "place" ? of_place(false) : attribute(c, word));
  }
  std::vector<Value> results;
  for (const llvm::StringRef word : words) results.push_back(result(c, word));
  for (const Value& value : results)
    for (const TensorType& type : value.types)
      if (!has_type(type.dtype)) return c.refuse("an element type that PIR does not have");
  results = c.nodes(row.name, inputs, attrs, std::move(results));
  for (size_t i = 0; i < words.size(); ++i) bind(c, words[i], results[i]);
  return Ok();
}

}  // namespace millrace::interchange::pir
