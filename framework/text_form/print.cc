#include "framework/text_form/print.h"

#include <fmt/format.h>

#include "framework/base/text.h"
#include "framework/export.h"
#include "framework/text_form/lexer.h"
#include "framework/text_form/value.h"

namespace millrace {
namespace text_form {
namespace {

// Maximum width of a line, unless a single attribute is longer.
constexpr size_t kOpColumns = 100;
constexpr const char* kCallstack = "op_callstack";

using Bytes = std::shared_ptr<const std::string>;

void append_hex(std::string& out, const char* what, llvm::StringRef bytes) {
  out += what;
  out += '"';
  out += hex_of(bytes);
  out += '"';
}

void append_unknown(std::string& out, const char* what, const Bytes& bytes) {
  if (bytes != nullptr) append_hex(out, what, *bytes);
}

void append_name(std::string& out, llvm::StringRef name) {
  if (is_plain_name(name)) {
    out.append(name.data(), name.size());
  } else {
    out += in_quotes({name.data(), name.size()});
  }
}

// Appends a name in a position where a keyword would also be valid.
void append_free_name(std::string& out, llvm::StringRef name) {
  if (is_keyword(name)) {
    out += in_quotes({name.data(), name.size()});
  } else {
    append_name(out, name);
  }
}

void append_slots(std::string& out, const Op& op, llvm::ArrayRef<Slot> slots) {
  for (const Slot& slot : slots) {
    out += ' ';
    append_free_name(out, op.name_of(slot.name));
    out += '=';
    if (slot.args.empty()) out += "[]";
    bool first = true;
    for (const Arg& arg : slot.args) {
      if (!first) out += ", ";
      first = false;
      append_name(out, op.name_of(arg.name));
    }
  }
}

void append_attr(std::string& out, const Op& op, const Attr& attr) {
  append_name(out, op.name_of(attr.name));
  out += ": ";
  if (attr.missing_value) {
    out += attr_kind_name(attr.value.kind());
    out += '?';
  } else {
    append_value(out, attr.value);
  }
  append_unknown(out, " unknown=", attr.unknown);
}

void append_attrs(std::string& out, const Op& op, const TextOptions& options, size_t line_begin,
                  const std::string& indent) {
  llvm::SmallVector<const Attr*, 16> shown;
  for (const Attr& attr : op.attrs()) {
    if (options.callstack || op.name_of(attr.name) != kCallstack) shown.push_back(&attr);
  }
  if (shown.empty() || !options.attrs) return;
  const size_t begin = out.size();
  out += " {";
  for (const Attr* attr : shown) {
    if (attr != shown.front()) out += ", ";
    append_attr(out, op, *attr);
    if (out.size() - line_begin > kOpColumns) break;
  }
  out += '}';
  if (out.size() - line_begin <= kOpColumns) return;
  // Too long for one line: put the attributes on separate lines.
  out.resize(begin);
  out += " {";
  size_t line = begin;
  for (const Attr* attr : shown) {
    const size_t before = out.size();
    out += attr == shown.front() ? "" : " ";
    append_attr(out, op, *attr);
    if (attr != shown.back()) out += ',';
    if (attr == shown.front() || out.size() - line > kOpColumns) {
      const size_t blank = attr == shown.front() ? 0 : 1;
      out.replace(before, blank, '\n' + indent + "    ");
      line = before + 1;
    }
  }
  out += '\n' + indent + "}";
}

void append_op(std::string& out, const Op& op, const TextOptions& options,
               const std::string& indent) {
  const size_t begin = out.size();
  out += indent;
  append_free_name(out, op.type());
  append_slots(out, op, op.inputs());
  if (!op.outputs().empty()) {
    out += " ->";
    append_slots(out, op, op.outputs());
  }
  append_attrs(out, op, options, begin, indent);
  if (op.is_target()) out += *op.is_target() ? " target" : " !target";
  append_unknown(out, " unknown=", op.unknown());
  const bool complete = options.attrs && options.callstack;
  if (complete && !op.wire().empty() && op.wire() != encode_op(op))
    append_hex(out, " wire=", op.wire());
}

void append_var(std::string& out, const Var& var) {
  const VarSpec& spec = var.spec();
  const bool is_param = spec.is_parameter == true && spec.persistable == true;
  const bool is_persist = !is_param && spec.persistable == true;
  out += is_param ? "param " : is_persist ? "persist " : "var ";
  append_name(out, var.name());
  out += ": ";
  out += print_var_type(spec);
  const auto flag = [&](const char* name, std::optional<bool> value) {
    if (value) out += fmt::format(" {}{}", *value ? "" : "!", name);
  };
  if (!is_param && !is_persist) flag("persistable", spec.persistable);
  flag("need_check_feed", spec.need_check_feed);
  if (!is_param) flag("is_parameter", spec.is_parameter);
  flag("stop_gradient", spec.stop_gradient);
  append_unknown(out, " type_extra=", spec.type_extra);
  append_unknown(out, " extra=", spec.extra);
  if (!var.wire().empty() && var.wire() != encode_var(var)) append_hex(out, " wire=", var.wire());
}

void append_block(std::string& out, const Block& block, const TextOptions& options) {
  out += fmt::format("\nblock {}", block.index());
  if (block.index() != 0 || block.parent() != -1) out += fmt::format(" parent={}", block.parent());
  if (block.stated_index() != block.index()) out += fmt::format(" idx={}", block.stated_index());
  if (block.forward_block()) out += fmt::format(" forward={}", *block.forward_block());
  append_unknown(out, " unknown=", block.unknown());
  out += " {\n";
  for (const Var& var : block.vars()) {
    out += "  ";
    append_var(out, var);
    out += '\n';
  }
  if (block.var_count() != 0 && block.op_count() != 0) out += '\n';
  const std::string indent = "  ";
  for (const Op& op : block.ops()) {
    append_op(out, op, options, indent);
    out += '\n';
  }
  out += "}\n";
}

}  // namespace
}  // namespace text_form

std::string print_name(llvm::StringRef name) {
  std::string out;
  text_form::append_name(out, name);
  return out;
}

std::string print_var_type(const VarSpec& spec) {
  std::string out;
  const bool plain = spec.kind == VarKind::kLodTensor && spec.form == TensorForm::kLodTensor;
  if (!plain) {
    out += is_valid(spec.kind) ? std::string(var_kind_name(spec.kind))
                               : fmt::format("?{}", static_cast<int32_t>(spec.kind));
    if (!spec.has_tensor()) return out;
    if (spec.form != text_form::usual_form(spec.kind))
      out += fmt::format(" as {}", text_form::form_name(spec.form));
    out += ' ';
  }
  out += is_valid(spec.dtype) ? std::string(dtype_name(spec.dtype))
                              : fmt::format("?{}", static_cast<int32_t>(spec.dtype));
  out += fmt::format("({})", fmt::join(spec.dims.begin(), spec.dims.end(), ", "));
  if (spec.lod_level) out += fmt::format(" lod={}", *spec.lod_level);
  return out;
}

std::string print_var(const Var& var) {
  std::string out;
  text_form::append_var(out, var);
  return out;
}

std::string print_op(const Op& op, const TextOptions& options) {
  std::string out;
  text_form::append_op(out, op, options, "");
  return out;
}

std::string print_program(const Program& program, const TextOptions& options) {
  std::string out = kTextFormHeader;
  if (!options.attrs) {
    out += ", without attributes";
  } else if (!options.callstack) {
    out += fmt::format(", without {}", text_form::kCallstack);
  }
  if (options.is_part) out += ", a part of the program";
  out += '\n';
  if (program.has_version())
    out += program.version() ? fmt::format("version {}\n", *program.version()) : "version absent\n";
  if (program.has_op_versions()) {
    out += "op_versions {\n";
    for (const OpVersion& entry : program.op_versions())
      out += fmt::format("  {} {}\n", print_name(entry.op), entry.version);
    out += "}\n";
  }
  if (program.unknown() != nullptr) {
    text_form::append_hex(out, "unknown=", *program.unknown());
    out += '\n';
  }
  for (const Block& block : program.blocks()) text_form::append_block(out, block, options);
  return out;
}

}  // namespace millrace
