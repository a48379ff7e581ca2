// When two attributes are considered equal.

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/diff/normal_form.h"
#include "framework/text_form/value.h"

namespace millrace::diff {
namespace {

// Attribute defaults of ops that are not the zero of their kind. The value is written as in the
// text form of an int, bool, float or string.
struct Default {
  std::string_view op;
  std::string_view attr;
  std::string_view value;
};
constexpr std::array<Default, 20> kDefaults = {{
    {"send", "use_send_handler", "true"},
    {"recv", "with_barrier", "true"},
    {"listen_and_serv", "lr_decay_block_id", "-1"},
    {"listen_and_serv", "checkpint_block_id", "-1"},
    {"listen_and_serv", "Fanin", "1"},
    {"listen_and_serv", "rpc_get_thread_num", "1"},
    {"listen_and_serv", "rpc_send_thread_num", "1"},
    {"listen_and_serv", "rpc_prefetch_thread_num", "1"},
    {"listen_and_serv", "endpoint", "\"127.0.0.1:6164\""},
    {"lookup_sparse_table", "padding_idx", "-1"},
    {"lookup_sparse_table", "auto_grown_table", "true"},
    {"distributed_lookup_table", "padding_idx", "-1"},
    {"lookup_table", "padding_idx", "-1"},
    {"lookup_table_v2", "padding_idx", "-1"},
    {"scale", "scale", "1.0"},
    {"scale", "bias_after_scale", "true"},
    {"gen_nccl_id", "nccl_comm_num", "1"},
    {"gen_nccl_id", "hierarchical_allreduce_inter_nranks", "-1"},
    {"sum", "mkldnn_data_type", "\"float32\""},
    {"save", "overwrite", "true"},
}};

bool is_set_like(llvm::StringRef op, llvm::StringRef name) {
  return op == "listen_and_serv" && (name == "grad_to_block_id" || name == "sparse_grad_to_param");
}

// -0.0 equals 0.0; everything else compares by its bits.
template <typename T>
std::vector<T> without_negative_zero(llvm::ArrayRef<T> values) {
  std::vector<T> out(values.begin(), values.end());
  for (T& value : out)
    if (value == 0) value = 0;
  return out;
}

AttrValue with_plain_zero(const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kFloat:
      return value.float32() == 0 ? AttrValue::of_float(0) : value;
    case AttrKind::kFloat64:
      return value.float64() == 0 ? AttrValue::of_float64(0) : value;
    case AttrKind::kFloats:
      return AttrValue::of_floats(without_negative_zero(value.floats()));
    case AttrKind::kFloat64s:
      return AttrValue::of_float64s(without_negative_zero(value.float64s()));
    default:
      return value;
  }
}

AttrValue sorted_strings(const AttrValue& value) {
  std::vector<std::string> strings = value.strings().vec();
  llvm::sort(strings);
  return AttrValue::of_strings(std::move(strings));
}

AttrValue widened(const AttrValue& value) {
  if (value.kind() != AttrKind::kInt && value.kind() != AttrKind::kInts) return value;
  if (value.kind() == AttrKind::kInt) return AttrValue::of_long(value.integer());
  return AttrValue::of_longs(std::vector<int64_t>(value.ints().begin(), value.ints().end()));
}

}  // namespace

std::string comparable_attr(llvm::StringRef op, llvm::StringRef name, const AttrValue& value,
                            const DiffOptions& options) {
  AttrValue out = with_plain_zero(value);
  if (is_set_like(op, name) && out.kind() == AttrKind::kStrings) out = sorted_strings(out);
  if (options.strict_types) return print_value(out);
  const std::string text = print_value(widened(out));
  // All empty lists are equal, whatever their element kind.
  return text.size() > 2 && llvm::StringRef(text).endswith("s[]") ? "[]" : text;
}

bool is_default_attr(llvm::StringRef op, llvm::StringRef name, const AttrValue& value) {
  if (value.kind() == AttrKind::kBlock || value.kind() == AttrKind::kBlocks) return false;
  std::string text = print_value(with_plain_zero(value));
  const auto* const rule = llvm::find_if(kDefaults, [&](const Default& d) {
    return d.op == std::string_view(op) && d.attr == std::string_view(name);
  });
  const bool is_number = value.kind() == AttrKind::kInt || value.kind() == AttrKind::kLong ||
                         value.kind() == AttrKind::kFloat64;
  if (is_number && llvm::StringRef("ld").contains(text.back())) text.pop_back();
  if (rule != kDefaults.end()) {
    // 1, 1.0 and true are the same number.
    const auto number = [](std::string_view t) {
      if (t == "true" || t == "1.0") return std::string_view("1");
      return t == "false" || t == "0.0" ? std::string_view("0") : t;
    };
    return number(text) == number(rule->value);
  }
  return text == "0" || text == "0.0" || text == "false" || text == "\"\"" || text == "%\"\"" ||
         llvm::StringRef(text).endswith("s[]");
}

}  // namespace millrace::diff
