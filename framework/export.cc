#include "framework/export.h"

#include "framework/wire.h"

namespace millrace {
namespace {

using wire::begin_message;
using wire::end_message;
using wire::put_bytes;
using wire::put_double;
using wire::put_float;
using wire::put_int;

void put_scalar(std::string& out, uint32_t number, const Scalar& scalar) {
  const size_t message = begin_message(out, number);
  put_int(out, 1, static_cast<int32_t>(scalar.type));
  switch (scalar.type) {
    case Scalar::Type::kBool:
      put_int(out, 2, scalar.boolean ? 1 : 0);
      break;
    case Scalar::Type::kLong:
      put_int(out, 3, scalar.integer);
      break;
    case Scalar::Type::kFloat64:
      put_double(out, 4, scalar.real);
      break;
    case Scalar::Type::kComplex: {
      const size_t complex = begin_message(out, 5);
      put_double(out, 1, scalar.real);
      put_double(out, 2, scalar.imaginary);
      end_message(out, complex);
      break;
    }
  }
  end_message(out, message);
}

void put_value(std::string& out, const AttrValue& value) {
  namespace field = wire::attr_field;
  switch (value.kind()) {
    case AttrKind::kInt:
      put_int(out, field::kI, value.integer());
      break;
    case AttrKind::kFloat:
      put_float(out, field::kF, value.float32());
      break;
    case AttrKind::kString:
      put_bytes(out, field::kS, value.string());
      break;
    case AttrKind::kInts:
      for (const int32_t v : value.ints()) put_int(out, field::kInts, v);
      break;
    case AttrKind::kFloats:
      for (const float v : value.floats()) put_float(out, field::kFloats, v);
      break;
    case AttrKind::kStrings:
      for (const std::string& v : value.strings()) put_bytes(out, field::kStrings, v);
      break;
    case AttrKind::kBool:
      put_int(out, field::kB, value.boolean() ? 1 : 0);
      break;
    case AttrKind::kBools:
      for (const uint8_t v : value.bools()) put_int(out, field::kBools, v);
      break;
    case AttrKind::kBlock:
      put_int(out, field::kBlockIdx, value.integer());
      break;
    case AttrKind::kLong:
      put_int(out, field::kL, value.integer());
      break;
    case AttrKind::kBlocks:
      for (const int32_t v : value.ints()) put_int(out, field::kBlocksIdx, v);
      break;
    case AttrKind::kLongs:
      for (const int64_t v : value.longs()) put_int(out, field::kLongs, v);
      break;
    case AttrKind::kFloat64s:
      for (const double v : value.float64s()) put_double(out, field::kFloat64s, v);
      break;
    case AttrKind::kVar:
      put_bytes(out, field::kVarName, value.string());
      break;
    case AttrKind::kVars:
      for (const std::string& v : value.strings()) put_bytes(out, field::kVarsName, v);
      break;
    case AttrKind::kFloat64:
      put_double(out, field::kFloat64, value.float64());
      break;
    case AttrKind::kScalar:
      put_scalar(out, field::kScalar, value.scalars()[0]);
      break;
    case AttrKind::kScalars:
      for (const Scalar& v : value.scalars()) put_scalar(out, field::kScalars, v);
      break;
  }
}

void put_unknown(std::string& out, const std::shared_ptr<const std::string>& unknown) {
  if (unknown != nullptr) out += *unknown;
}

void put_slots(std::string& out, uint32_t number, const Op& op, llvm::ArrayRef<Slot> slots) {
  namespace field = wire::slot_field;
  for (const Slot& slot : slots) {
    const size_t message = begin_message(out, number);
    put_bytes(out, field::kParameter, op.name_of(slot.name));
    for (const Arg& arg : slot.args) put_bytes(out, field::kArguments, op.name_of(arg.name));
    end_message(out, message);
  }
}

void append_op(std::string& out, const Op& op) {
  namespace field = wire::op_field;
  put_slots(out, field::kInputs, op, op.inputs());
  put_slots(out, field::kOutputs, op, op.outputs());
  put_bytes(out, field::kType, op.type());
  for (const Attr& attr : op.attrs()) {
    const size_t message = begin_message(out, field::kAttrs);
    put_bytes(out, wire::attr_field::kName, op.name_of(attr.name));
    put_int(out, wire::attr_field::kType, static_cast<int32_t>(attr.value.kind()));
    if (!attr.missing_value) put_value(out, attr.value);
    put_unknown(out, attr.unknown);
    end_message(out, message);
  }
  if (op.is_target()) put_int(out, field::kIsTarget, *op.is_target() ? 1 : 0);
  put_unknown(out, op.unknown());
}

void put_tensor(std::string& out, const VarSpec& spec) {
  put_int(out, 1, static_cast<int32_t>(spec.dtype));
  for (const int64_t dim : spec.dims) put_int(out, 2, dim);
}

void put_var_type(std::string& out, uint32_t number, const VarSpec& spec) {
  const size_t type = begin_message(out, number);
  put_int(out, 1, static_cast<int32_t>(spec.kind));
  if (spec.has_tensor()) {
    const size_t form = begin_message(out, static_cast<uint32_t>(spec.form));
    const bool with_lod =
        spec.form == TensorForm::kLodTensor || spec.form == TensorForm::kTensorArray;
    if (with_lod) {
      const size_t tensor = begin_message(out, 1);
      put_tensor(out, spec);
      end_message(out, tensor);
      if (spec.lod_level) put_int(out, 2, *spec.lod_level);
    } else {
      put_tensor(out, spec);
    }
    end_message(out, form);
  }
  put_unknown(out, spec.type_extra);
  end_message(out, type);
}

void append_var(std::string& out, const Var& var) {
  namespace field = wire::var_field;
  const VarSpec& spec = var.spec();
  put_bytes(out, field::kName, var.name());
  put_var_type(out, field::kType, spec);
  auto put_flag = [&](uint32_t number, std::optional<bool> flag) {
    if (flag) put_int(out, number, *flag ? 1 : 0);
  };
  put_flag(field::kPersistable, spec.persistable);
  put_flag(field::kNeedCheckFeed, spec.need_check_feed);
  put_flag(field::kIsParameter, spec.is_parameter);
  put_flag(field::kStopGradient, spec.stop_gradient);
  put_unknown(out, spec.extra);
}

void put_block(std::string& out, const Block& block, const ExportOptions& options) {
  namespace field = wire::block_field;
  const size_t message = begin_message(out, wire::program_field::kBlocks);
  put_int(out, field::kIdx, block.stated_index());
  put_int(out, field::kParentIdx, block.parent());
  for (const Var& var : block.vars()) {
    if (!options.canonical && !var.wire().empty()) {
      put_bytes(out, field::kVars, var.wire());
      continue;
    }
    const size_t element = begin_message(out, field::kVars);
    append_var(out, var);
    end_message(out, element);
  }
  for (const Op& op : block.ops()) {
    if (!options.canonical && !op.wire().empty()) {
      put_bytes(out, field::kOps, op.wire());
      continue;
    }
    const size_t element = begin_message(out, field::kOps);
    append_op(out, op);
    end_message(out, element);
  }
  if (block.forward_block()) put_int(out, field::kForwardBlockIdx, *block.forward_block());
  put_unknown(out, block.unknown());
  end_message(out, message);
}

// Approximate number of bytes of a serialized program. Underestimating costs one reallocation.
size_t estimated_size(const Program& program) {
  constexpr size_t kVar = 48;
  constexpr size_t kOp = 64;
  constexpr size_t kSlot = 24;
  constexpr size_t kAttr = 40;
  size_t total = 256;
  for (const Block& block : program.blocks()) {
    for (const Var& var : block.vars())
      total += var.wire().empty() ? kVar + var.name().size() : var.wire().size() + 8;
    for (const Op& op : block.ops()) {
      total += op.wire().empty() ? kOp + kSlot * (op.inputs().size() + op.outputs().size()) +
                                       kAttr * op.attrs().size()
                                 : op.wire().size() + 8;
    }
  }
  return total;
}

std::string encode_op_versions(llvm::ArrayRef<OpVersion> versions) {
  std::string out;
  for (const OpVersion& entry : versions) {
    std::string version;
    put_int(version, 1, entry.version);
    std::string pair;
    put_bytes(pair, 1, entry.op);
    put_bytes(pair, 2, version);
    put_bytes(out, 1, pair);
  }
  return out;
}

}  // namespace

std::string encode_op(const Op& op) {
  std::string out;
  append_op(out, op);
  return out;
}

std::string encode_var(const Var& var) {
  std::string out;
  append_var(out, var);
  return out;
}

std::string export_program(const Program& program, const ExportOptions& options) {
  namespace field = wire::program_field;
  if (!options.canonical && program.pristine_bytes() != nullptr) return *program.pristine_bytes();
  std::string out;
  out.reserve(estimated_size(program));
  for (const Block& block : program.blocks()) put_block(out, block, options);
  if (program.has_version()) {
    std::string version;
    if (program.version()) put_int(version, 1, *program.version());
    put_bytes(out, field::kVersion, version);
  }
  if (program.has_op_versions())
    put_bytes(out, field::kOpVersionMap, encode_op_versions(program.op_versions()));
  put_unknown(out, program.unknown());
  return out;
}

}  // namespace millrace
