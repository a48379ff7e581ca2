#include "framework/views/json.h"

#include "framework/base/json_writer.h"
#include "framework/text_form/print.h"
#include "framework/text_form/value.h"
#include "framework/views/summary.h"

namespace millrace {
namespace {

std::string_view as_view(llvm::StringRef value) {
  return {value.data(), value.size()};
}

template <typename List>
void json_list(JsonWriter& out, const List& list) {
  out.begin_array().inline_array();
  for (const auto& element : list) out.value(element);
  out.end_array();
}

void json_value(JsonWriter& out, const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kInt:
    case AttrKind::kLong:
    case AttrKind::kBlock:
      out.value(value.integer());
      return;
    case AttrKind::kBool:
      out.value(value.boolean());
      return;
    case AttrKind::kFloat:
      out.value(value.float32());
      return;
    case AttrKind::kFloat64:
      out.value(value.float64());
      return;
    case AttrKind::kString:
    case AttrKind::kVar:
      out.value(as_view(value.string()));
      return;
    case AttrKind::kInts:
    case AttrKind::kBlocks:
      return json_list(out, value.ints());
    case AttrKind::kLongs:
      return json_list(out, value.longs());
    case AttrKind::kFloats:
      return json_list(out, value.floats());
    case AttrKind::kFloat64s:
      return json_list(out, value.float64s());
    case AttrKind::kStrings:
    case AttrKind::kVars:
      return json_list(out, value.strings());
    case AttrKind::kBools:
      out.begin_array().inline_array();
      for (const uint8_t flag : value.bools()) out.value(flag != 0);
      out.end_array();
      return;
    case AttrKind::kScalar:
    case AttrKind::kScalars:
      out.value(print_value(value));
      return;
  }
}

void json_slots(JsonWriter& out, const Op& op, const char* key, llvm::ArrayRef<Slot> slots) {
  out.key(key).begin_array();
  for (const Slot& slot : slots) {
    out.begin_object().inline_array().member("slot", as_view(op.name_of(slot.name)));
    out.key("args").begin_array();
    for (const Arg& arg : slot.args) out.value(as_view(op.name_of(arg.name)));
    out.end_array().end_object();
  }
  out.end_array();
}

void json_var(JsonWriter& out, const Var& var) {
  const VarSpec& spec = var.spec();
  out.begin_object().inline_array().member("name", as_view(var.name()));
  out.member("kind", var_kind_name(spec.kind));
  if (spec.has_tensor()) {
    out.member("dtype", dtype_name(spec.dtype)).key("dims");
    json_list(out, spec.dims);
    out.member("lod_level", var.lod_level());
  }
  out.member("persistable", var.persistable()).member("is_parameter", var.is_parameter());
  out.member("stop_gradient", var.stop_gradient()).end_object();
}

void json_op(JsonWriter& out, const Op& op, int64_t index, const JsonOptions& options) {
  out.begin_object().member("index", index).member("type", as_view(op.type()));
  json_slots(out, op, "inputs", op.inputs());
  json_slots(out, op, "outputs", op.outputs());
  if (options.attrs) {
    out.key("attrs").begin_array();
    for (const Attr& attr : op.attrs()) {
      const llvm::StringRef name = op.name_of(attr.name);
      if (!options.callstack && name == "op_callstack") continue;
      out.begin_object().inline_array().member("name", as_view(name));
      out.member("kind", attr_kind_name(attr.value.kind())).key("value");
      if (attr.missing_value) {
        out.null();
      } else {
        json_value(out, attr.value);
      }
      out.end_object();
    }
    out.end_array();
  }
  out.end_object();
}

}  // namespace

std::string json_view(const Program& program, const std::string& file, const JsonOptions& options) {
  const ProgramSummary sizes = summarize(program);
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.program").member("version", 1);
  out.end_object().member("file", file);
  if (program.version()) out.member("program_version", *program.version());
  out.key("summary").begin_object();
  out.member("blocks", static_cast<int64_t>(sizes.blocks));
  out.member("ops", static_cast<int64_t>(sizes.ops));
  out.member("vars", static_cast<int64_t>(sizes.vars));
  out.member("parameters", static_cast<int64_t>(sizes.parameters));
  out.member("parameter_elements", sizes.parameter_elements);
  out.member("parameter_bytes", sizes.parameter_bytes).key("op_types").begin_object();
  for (const auto& [type, count] : sizes.op_types) out.member(type, static_cast<int64_t>(count));
  out.end_object().end_object().key("blocks").begin_array();
  for (const Block& block : program.blocks()) {
    out.begin_object().member("index", block.index()).member("parent", block.parent());
    if (block.forward_block()) out.member("forward_block", *block.forward_block());
    out.key("vars").begin_array();
    for (const Var& var : block.vars()) json_var(out, var);
    out.end_array().key("ops").begin_array();
    int64_t index = 0;
    for (const Op& op : block.ops()) json_op(out, op, index++, options);
    out.end_array().end_object();
  }
  return out.end_array().end_object().take();
}

}  // namespace millrace
