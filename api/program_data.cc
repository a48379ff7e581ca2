#include "api/program_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"

namespace millrace::api {
namespace {

ScalarData scalar_data(const Scalar& scalar) {
  switch (scalar.type) {
    case Scalar::Type::kBool:
      return scalar.boolean;
    case Scalar::Type::kLong:
      return scalar.integer;
    case Scalar::Type::kFloat64:
      return scalar.real;
    case Scalar::Type::kComplex:
      break;
  }
  return std::complex<double>(scalar.real, scalar.imaginary);
}

Scalar scalar_of(const ScalarData& data) {
  Scalar scalar;
  if (const auto* const flag = std::get_if<bool>(&data)) {
    scalar.type = Scalar::Type::kBool;
    scalar.boolean = *flag;
  } else if (const auto* const integer = std::get_if<int64_t>(&data)) {
    scalar.type = Scalar::Type::kLong;
    scalar.integer = *integer;
  } else if (const auto* const real = std::get_if<double>(&data)) {
    scalar.type = Scalar::Type::kFloat64;
    scalar.real = *real;
  } else {
    const auto& number = std::get<std::complex<double>>(data);
    scalar.type = Scalar::Type::kComplex;
    scalar.real = number.real();
    scalar.imaginary = number.imag();
  }
  return scalar;
}

template <typename To, typename From>
std::vector<To> vector_of(const From& values) {
  return std::vector<To>(values.begin(), values.end());
}

AttrPayload payload_of(const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kBool:
      return value.boolean();
    case AttrKind::kInt:
    case AttrKind::kLong:
    case AttrKind::kBlock:
      return value.integer();
    case AttrKind::kFloat:
      return static_cast<double>(value.float32());
    case AttrKind::kFloat64:
      return value.float64();
    case AttrKind::kString:
    case AttrKind::kVar:
      return value.string().str();
    case AttrKind::kBools:
      return vector_of<bool>(value.bools());
    case AttrKind::kInts:
    case AttrKind::kBlocks:
      return vector_of<int64_t>(value.ints());
    case AttrKind::kLongs:
      return vector_of<int64_t>(value.longs());
    case AttrKind::kFloats:
      return vector_of<double>(value.floats());
    case AttrKind::kFloat64s:
      return vector_of<double>(value.float64s());
    case AttrKind::kStrings:
    case AttrKind::kVars:
      return vector_of<std::string>(value.strings());
    case AttrKind::kScalar:
    case AttrKind::kScalars:
      break;
  }
  std::vector<ScalarData> scalars;
  for (const Scalar& scalar : value.scalars()) scalars.push_back(scalar_data(scalar));
  return scalars;
}

std::vector<SlotData> slots_of(const Op& op, llvm::ArrayRef<Slot> slots) {
  std::vector<SlotData> data;
  for (const Slot& slot : slots) {
    SlotData& added = data.emplace_back(SlotData{op.name_of(slot.name).str(), {}});
    for (const Arg& arg : slot.args) added.vars.push_back(op.name_of(arg.name).str());
  }
  return data;
}

bool is_empty_list(const AttrPayload& payload) {
  return std::visit(
      [](const auto& value) {
        if constexpr (requires { value.push_back(value.front()); } &&
                      !std::is_same_v<std::decay_t<decltype(value)>, std::string>)
          return value.empty();
        else
          return false;
      },
      payload);
}

bool fits_int32(int64_t value) {
  return value >= std::numeric_limits<int32_t>::min() &&
         value <= std::numeric_limits<int32_t>::max();
}

AttrKind suggested_kind(const AttrPayload& payload) {
  struct Suggest {
    AttrKind operator()(bool) const { return AttrKind::kBool; }
    AttrKind operator()(int64_t v) const {
      return fits_int32(v) ? AttrKind::kInt : AttrKind::kLong;
    }
    AttrKind operator()(double) const { return AttrKind::kFloat; }
    AttrKind operator()(const std::string&) const { return AttrKind::kString; }
    AttrKind operator()(const std::vector<bool>&) const { return AttrKind::kBools; }
    AttrKind operator()(const std::vector<int64_t>& v) const {
      return std::all_of(v.begin(), v.end(), fits_int32) ? AttrKind::kInts : AttrKind::kLongs;
    }
    AttrKind operator()(const std::vector<double>&) const { return AttrKind::kFloats; }
    AttrKind operator()(const std::vector<std::string>&) const { return AttrKind::kStrings; }
    AttrKind operator()(const std::vector<ScalarData>& v) const {
      return v.size() == 1 ? AttrKind::kScalar : AttrKind::kScalars;
    }
  };
  return std::visit(Suggest{}, payload);
}

AttrKind kind_for(const AttrData& attr, const Op& op, const ops::OpRegistry& registry) {
  if (attr.kind) return *attr.kind;
  if (const AttrValue* const present = op.find_attr(attr.name)) return present->kind();
  const ops::OpDef* const schema = registry.find(op.type());
  const ops::AttrDef* def = schema == nullptr ? nullptr : schema->find_attr(attr.name);
  if (def == nullptr) def = registry.find_common_attr(attr.name);
  return def == nullptr ? suggested_kind(attr.value) : def->kind;
}

StatusOr<int32_t> narrow(int64_t value) {
  if (fits_int32(value)) return static_cast<int32_t>(value);
  return InvalidArgument("expected 32 bits, found {}", value);
}

StatusOr<float> narrow(double value) {
  const auto narrowed = static_cast<float>(value);
  if (std::isfinite(narrowed) || !std::isfinite(value)) return narrowed;
  return InvalidArgument("expected a number of f32, found {}", value);
}

template <typename To, typename From>
StatusOr<std::vector<To>> narrow_all(const std::vector<From>& values) {
  std::vector<To> narrowed;
  narrowed.reserve(values.size());
  for (const From value : values) {
    MILLRACE_ASSIGN_OR_RETURN(const To element, narrow(value));
    narrowed.push_back(element);
  }
  return narrowed;
}

// Integers are taken where numbers are expected, and an empty list is a list of any kind.
template <typename T>
StatusOr<T> payload(const AttrPayload& from, AttrKind kind) {
  if (const T* const value = std::get_if<T>(&from)) return *value;
  if constexpr (std::is_same_v<T, double>) {
    if (const auto* const value = std::get_if<int64_t>(&from)) return static_cast<double>(*value);
  }
  if constexpr (std::is_same_v<T, std::vector<double>>) {
    if (const auto* const values = std::get_if<std::vector<int64_t>>(&from))
      return vector_of<double>(*values);
  }
  if constexpr (!std::is_same_v<T, std::string> && requires(T t) { t.clear(); }) {
    if (is_empty_list(from)) return T();
  }
  return InvalidArgument("expected a value of kind {}, found one of kind {}", attr_kind_name(kind),
                         attr_kind_name(suggested_kind(from)));
}

StatusOr<AttrValue> convert(const AttrPayload& from, AttrKind kind) {
  switch (kind) {
    case AttrKind::kBool: {
      MILLRACE_ASSIGN_OR_RETURN(const bool value, payload<bool>(from, kind));
      return AttrValue::of_bool(value);
    }
    case AttrKind::kInt:
    case AttrKind::kBlock: {
      MILLRACE_ASSIGN_OR_RETURN(const int64_t value, payload<int64_t>(from, kind));
      MILLRACE_ASSIGN_OR_RETURN(const int32_t narrowed, narrow(value));
      return kind == AttrKind::kInt ? AttrValue::of_int(narrowed) : AttrValue::of_block(narrowed);
    }
    case AttrKind::kLong: {
      MILLRACE_ASSIGN_OR_RETURN(const int64_t value, payload<int64_t>(from, kind));
      return AttrValue::of_long(value);
    }
    case AttrKind::kFloat: {
      MILLRACE_ASSIGN_OR_RETURN(const double value, payload<double>(from, kind));
      MILLRACE_ASSIGN_OR_RETURN(const float narrowed, narrow(value));
      return AttrValue::of_float(narrowed);
    }
    case AttrKind::kFloat64: {
      MILLRACE_ASSIGN_OR_RETURN(const double value, payload<double>(from, kind));
      return AttrValue::of_float64(value);
    }
    case AttrKind::kString:
    case AttrKind::kVar: {
      MILLRACE_ASSIGN_OR_RETURN(std::string value, payload<std::string>(from, kind));
      return kind == AttrKind::kString ? AttrValue::of_string(std::move(value))
                                       : AttrValue::of_var(std::move(value));
    }
    case AttrKind::kBools: {
      MILLRACE_ASSIGN_OR_RETURN(const std::vector<bool> value,
                                payload<std::vector<bool>>(from, kind));
      return AttrValue::of_bools(vector_of<uint8_t>(value));
    }
    case AttrKind::kInts:
    case AttrKind::kBlocks: {
      MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> value,
                                payload<std::vector<int64_t>>(from, kind));
      MILLRACE_ASSIGN_OR_RETURN(std::vector<int32_t> narrowed, narrow_all<int32_t>(value));
      return kind == AttrKind::kInts ? AttrValue::of_ints(std::move(narrowed))
                                     : AttrValue::of_blocks(std::move(narrowed));
    }
    case AttrKind::kLongs: {
      MILLRACE_ASSIGN_OR_RETURN(std::vector<int64_t> value,
                                payload<std::vector<int64_t>>(from, kind));
      return AttrValue::of_longs(std::move(value));
    }
    case AttrKind::kFloats: {
      MILLRACE_ASSIGN_OR_RETURN(const std::vector<double> value,
                                payload<std::vector<double>>(from, kind));
      MILLRACE_ASSIGN_OR_RETURN(std::vector<float> narrowed, narrow_all<float>(value));
      return AttrValue::of_floats(std::move(narrowed));
    }
    case AttrKind::kFloat64s: {
      MILLRACE_ASSIGN_OR_RETURN(std::vector<double> value,
                                payload<std::vector<double>>(from, kind));
      return AttrValue::of_float64s(std::move(value));
    }
    case AttrKind::kStrings:
    case AttrKind::kVars: {
      MILLRACE_ASSIGN_OR_RETURN(std::vector<std::string> value,
                                payload<std::vector<std::string>>(from, kind));
      return kind == AttrKind::kStrings ? AttrValue::of_strings(std::move(value))
                                        : AttrValue::of_vars(std::move(value));
    }
    case AttrKind::kScalar:
    case AttrKind::kScalars:
      break;
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ScalarData> values,
                            payload<std::vector<ScalarData>>(from, kind));
  std::vector<Scalar> scalars;
  for (const ScalarData& value : values) scalars.push_back(scalar_of(value));
  if (kind == AttrKind::kScalars) return AttrValue::of_scalars(std::move(scalars));
  if (scalars.size() != 1) return InvalidArgument("expected one scalar, found {}", scalars.size());
  return AttrValue::of_scalar(scalars[0]);
}

// How the wire format describes the elements of a var of a kind; kNone: it has none.
TensorForm form_of(VarKind kind) {
  static constexpr std::pair<VarKind, TensorForm> kForms[] = {
      {VarKind::kLodTensor, TensorForm::kLodTensor},
      {VarKind::kSelectedRows, TensorForm::kSelectedRows},
      {VarKind::kLodTensorArray, TensorForm::kTensorArray},
      {VarKind::kString, TensorForm::kString},
      {VarKind::kStrings, TensorForm::kStrings},
      {VarKind::kVocab, TensorForm::kVocab},
      {VarKind::kSparseCoo, TensorForm::kSparseCoo},
      {VarKind::kSparseCsr, TensorForm::kSparseCsr}};
  for (const auto& [of, form] : kForms)
    if (of == kind) return form;
  return TensorForm::kNone;
}

// A flag that does not change stays as the file states it: absent, or false.
void set_flag(std::optional<bool>& flag, bool value) {
  if (flag.value_or(false) != value) flag = value;
}

}  // namespace

OpData data_of(const Op& op) {
  OpData data;
  data.type = op.type().str();
  data.inputs = slots_of(op, op.inputs());
  data.outputs = slots_of(op, op.outputs());
  for (const Attr& attr : op.attrs())
    data.attrs.push_back({op.name_of(attr.name).str(), payload_of(attr.value), attr.value.kind()});
  return data;
}

VarData data_of(const Var& var) {
  const VarSpec& spec = var.spec();
  VarData data;
  data.name = var.name().str();
  data.kind = spec.kind;
  if (spec.has_tensor()) {
    data.dtype = spec.dtype;
    data.dims.assign(spec.dims.begin(), spec.dims.end());
  }
  data.lod_level = var.lod_level();
  data.persistable = var.persistable();
  data.is_parameter = var.is_parameter();
  data.stop_gradient = var.stop_gradient();
  data.need_check_feed = spec.need_check_feed.value_or(false);
  return data;
}

StatusOr<AttrValue> value_of(const AttrData& attr, const Op& op, const ops::OpRegistry& registry) {
  const AttrKind kind = kind_for(attr, op, registry);
  StatusOr<AttrValue> value = is_valid(kind)
                                  ? convert(attr.value, kind)
                                  : InvalidArgument("unknown kind {}", static_cast<int>(kind));
  if (value.ok()) return value;
  Location location;
  location.block = op.block().index();
  location.op_type = op.type().str();
  location.attr = attr.name;
  return std::move(value).status().at(std::move(location));
}

StatusOr<VarSpec> spec_of(const VarData& var, const VarSpec* present) {
  const auto wrong = [&var](Status status) { return of_var(std::move(status), var.name); };
  if (var.name.empty())
    return InvalidArgument("name of the var: expected a name, found an empty one");
  if (!is_valid(var.kind))
    return wrong(InvalidArgument("unknown kind {}", static_cast<int>(var.kind)));
  if (var.dtype && !is_valid(*var.dtype))
    return wrong(InvalidArgument("unknown element type {}", static_cast<int>(*var.dtype)));
  const TensorForm form = var.dtype ? form_of(var.kind) : TensorForm::kNone;
  if (var.dtype && form == TensorForm::kNone) {
    return wrong(InvalidArgument("expected no element type for a var of kind {}, found {}",
                                 var_kind_name(var.kind), dtype_name(*var.dtype)));
  }
  if (!var.dtype && !var.dims.empty())
    return wrong(InvalidArgument("expected an element type beside {} dims", var.dims.size()));
  for (const int64_t dim : var.dims)
    if (dim < -1) return wrong(InvalidArgument("expected dims of at least -1, found {}", dim));
  VarSpec spec = present != nullptr && present->kind == var.kind ? *present : VarSpec();
  spec.kind = var.kind;
  if (spec.has_tensor() != var.dtype.has_value()) spec.form = form;
  spec.dtype = var.dtype.value_or(DType::kFloat32);
  spec.dims.assign(var.dims.begin(), var.dims.end());
  if (spec.lod_level.value_or(0) != var.lod_level) spec.lod_level = var.lod_level;
  set_flag(spec.persistable, var.persistable);
  set_flag(spec.is_parameter, var.is_parameter);
  set_flag(spec.stop_gradient, var.stop_gradient);
  set_flag(spec.need_check_feed, var.need_check_feed);
  return spec;
}

}  // namespace millrace::api
