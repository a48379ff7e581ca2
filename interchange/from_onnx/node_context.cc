#include "interchange/from_onnx/node_context.h"

#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "interchange/imported_model.h"
#include "ops/infer_shapes.h"

namespace millrace::interchange {

using ::onnx::AttributeProto;

std::string node_text(const ::onnx::NodeProto& node) {
  const std::string domain = node.domain().empty() ? "" : node.domain() + ".";
  const std::string name =
      node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  return fmt::format("node '{}' ({}{})", name, domain, node.op_type());
}

bool has_fair_size(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim > kMaxExtent) return false;
    if (dim > 0 && __builtin_mul_overflow(count, dim, &count)) return false;
  }
  return count <= kMaxElements;
}

int64_t to_int64(long double value) {
  constexpr long double kLimit = 9223372036854775807.0L;
  if (!(value > -kLimit)) return std::numeric_limits<int64_t>::min();  // NaN as well
  return value < kLimit ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::max();
}

NodeContext::NodeContext(const ::onnx::NodeProto& node, ImportState& state)
    : node_(node), state_(state) {}

Status NodeContext::refuse(const std::string& why) const {
  return Unimplemented("import of ONNX: {}: {}", node_text(node_), why);
}

void NodeContext::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

// ---- inputs

bool NodeContext::has(size_t index) const {
  return index < input_count() && !node_.input(static_cast<int>(index)).empty();
}

std::string NodeContext::in(size_t index) {
  if (!has(index)) {
    fail(InvalidProgram("{}: input {} is missing", node_text(node_), index));
    return "";
  }
  inputs_read_.insert(index);
  const auto found = state_.value.find(node_.input(static_cast<int>(index)));
  return found == state_.value.end() ? "" : found->second;
}

std::vector<std::string> NodeContext::ins() {
  std::vector<std::string> vars;
  for (size_t i = 0; i < input_count(); ++i) vars.push_back(in(i));
  return vars;
}

void NodeContext::ignore_inputs(size_t first) {
  for (size_t i = first; i < input_count(); ++i) inputs_read_.insert(i);
}

// ---- vars

Dims NodeContext::dims(const std::string& var) const {
  const Var* const found = find(var);
  return found == nullptr ? Dims() : Dims(found->dims().begin(), found->dims().end());
}

DType NodeContext::dtype(const std::string& var) const {
  const Var* const found = find(var);
  return found == nullptr ? DType::kFloat32 : found->dtype();
}

int64_t NodeContext::extent(const std::string& var, int64_t axis) const {
  const Dims all = dims(var);
  if (axis < 0) axis += static_cast<int64_t>(all.size());
  return axis < 0 || axis >= static_cast<int64_t>(all.size()) ? -1 : all[static_cast<size_t>(axis)];
}

bool NodeContext::is_static(const std::string& var) const {
  for (const int64_t dim : dims(var))
    if (dim < 0) return false;
  return true;
}

const KnownElements* NodeContext::known(const std::string& var) const {
  const auto found = state_.known.find(var);
  return found == state_.known.end() ? nullptr : &found->second;
}

void NodeContext::set_known(const std::string& var, KnownElements elements) {
  state_.known[var] = std::move(elements);
}

std::optional<std::vector<int64_t>> NodeContext::ints(const std::string& var) const {
  const KnownElements* const elements = known(var);
  const DType type = dtype(var);
  if (elements == nullptr || type == DType::kFloat32 || type == DType::kFloat64)
    return std::nullopt;
  std::vector<int64_t> values;
  for (const auto& element : *elements) {
    if (!element) return std::nullopt;
    values.push_back(to_int64(*element));
  }
  return values;
}

std::vector<int64_t> NodeContext::fixed_ints(size_t index, const char* what) {
  const std::string var = in(index);
  if (auto values = ints(var)) return *values;
  fail(refuse(fmt::format("{} that are computed by the model", what)));
  return {};
}

std::optional<double> NodeContext::number(const std::string& var) const {
  const KnownElements* const elements = known(var);
  if (elements == nullptr || elements->size() != 1 || !(*elements)[0]) return std::nullopt;
  const long double exact = *(*elements)[0];
  const auto number = static_cast<double>(exact);
  if (!std::isnan(number) && number != exact) return std::nullopt;
  return number;
}

const Tensor* NodeContext::constant(const std::string& var) const {
  const auto found = state_.params.find(var);
  return found == state_.params.end() ? nullptr : found->second.get_if<Tensor>();
}

void NodeContext::refine(const std::string& var, const Dims& dims) {
  Var* const found = block().find_var(var);
  if (found == nullptr || found->dims().size() != dims.size()) return;
  Dims result(found->dims().begin(), found->dims().end());
  for (size_t i = 0; i < dims.size(); ++i)
    if (result[i] < 0) result[i] = dims[i];
  found->set_dims(result);
}

// ---- attributes

bool NodeContext::has_attr(const char* name) const {
  for (const AttributeProto& attr : node_.attribute())
    if (attr.name() == name) return true;
  return false;
}

const AttributeProto* NodeContext::find_attr(const char* name, int type) {
  attrs_read_.insert(name);
  for (const AttributeProto& attr : node_.attribute()) {
    if (attr.name() != name) continue;
    if (!attr.ref_attr_name().empty()) {
      fail(refuse(fmt::format("attribute {} refers to one of a function", name)));
      return nullptr;
    }
    if (attr.type() != type) {
      fail(InvalidProgram("{}: attribute {} has another type than expected", node_text(node_),
                          name));
      return nullptr;
    }
    return &attr;
  }
  return nullptr;
}

int64_t NodeContext::attr_int(const char* name, int64_t fallback) {
  const AttributeProto* const attr = find_attr(name, AttributeProto::INT);
  return attr == nullptr ? fallback : attr->i();
}

float NodeContext::attr_float(const char* name, float fallback) {
  const AttributeProto* const attr = find_attr(name, AttributeProto::FLOAT);
  return attr == nullptr ? fallback : attr->f();
}

std::string NodeContext::attr_string(const char* name, const std::string& fallback) {
  const AttributeProto* const attr = find_attr(name, AttributeProto::STRING);
  return attr == nullptr ? fallback : attr->s();
}

std::vector<int64_t> NodeContext::attr_ints(const char* name) {
  const AttributeProto* const attr = find_attr(name, AttributeProto::INTS);
  if (attr == nullptr) return {};
  return {attr->ints().begin(), attr->ints().end()};
}

std::vector<float> NodeContext::attr_floats(const char* name) {
  const AttributeProto* const attr = find_attr(name, AttributeProto::FLOATS);
  if (attr == nullptr) return {};
  return {attr->floats().begin(), attr->floats().end()};
}

std::vector<std::string> NodeContext::attr_strings(const char* name) {
  const AttributeProto* const attr = find_attr(name, AttributeProto::STRINGS);
  if (attr == nullptr) return {};
  return {attr->strings().begin(), attr->strings().end()};
}

const ::onnx::TensorProto* NodeContext::attr_tensor(const char* name) {
  const AttributeProto* const attr = find_attr(name, AttributeProto::TENSOR);
  return attr == nullptr ? nullptr : &attr->t();
}

StatusOr<Tensor> NodeContext::read_tensor(const ::onnx::TensorProto& proto) const {
  StatusOr<Tensor> tensor = tensor_from_onnx(proto, state_.folder);
  if (tensor.ok()) return tensor;
  return std::move(tensor).status().with_note(node_text(node_));
}

int64_t NodeContext::axis_of(int64_t axis, int64_t rank) {
  const int64_t counted = axis < 0 ? axis + rank : axis;
  if (counted >= 0 && counted < std::max<int64_t>(rank, 1)) return counted;
  fail(InvalidProgram("{}: axis {}, but the operand has {} dims", node_text(node_), axis, rank));
  return 0;
}

int64_t NodeContext::attr_axis(const char* name, int64_t fallback, int64_t rank) {
  return axis_of(attr_int(name, fallback), rank);
}

void NodeContext::ignore(std::initializer_list<const char*> names) {
  for (const char* const name : names) attrs_read_.insert(name);
}

// ---- ops

std::string NodeContext::unique(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; !state_.names.insert(name).second; ++i) name = fmt::format("{}.{}", wanted, i);
  return name;
}

std::vector<std::string> NodeContext::ops(
    const char* type, const std::vector<SlotVars>& inputs, const std::vector<OpAttr>& attrs,
    const std::vector<std::pair<const char*, size_t>>& outputs) {
  std::vector<std::string> made;
  size_t count = 0;
  for (const auto& [slot, vars] : outputs) count += vars;
  if (!is_ok()) return std::vector<std::string>(count);
  Op& op = block().append_op(type);
  for (const auto& [slot, vars] : inputs) op.set_input(slot, vars);
  const std::string stem = node_.output_size() > 0 ? node_.output(0) : node_.name();
  for (const auto& [slot, vars] : outputs) {
    std::vector<std::string> names;
    for (size_t i = 0; i < vars; ++i) {
      names.push_back(unique(fmt::format("{}.{}", stem, type)));
      own_.insert(names.back());
      block().declare(names.back(), VarSpec::shapeless(VarKind::kLodTensor));
    }
    op.set_output(slot, names);
    made.insert(made.end(), names.begin(), names.end());
  }
  for (const OpAttr& attr : attrs)
    if (Status set = set_fitting(*state_.registry, op, attr.first, attr.second, "ONNX"); !set.ok())
      fail(std::move(set).with_note(node_text(node_)));
  if (!is_ok()) return std::vector<std::string>(count);
  if (Status inferred = ops::infer_op(*state_.registry, op); !inferred.ok()) {
    fail(std::move(inferred).with_note(fmt::format("import of ONNX: {}", node_text(node_))));
    return std::vector<std::string>(count);
  }
  for (const std::string& name : made) {
    if (!find(name)->spec().has_tensor())
      fail(refuse("the number of dims of a value depends on the input"));
    else if (!has_fair_size(dims(name)))
      fail(refuse("a value with too many elements"));
  }
  return made;
}

std::string NodeContext::op(const char* type, const std::vector<SlotVars>& inputs,
                            const std::vector<OpAttr>& attrs, const char* slot) {
  return ops(type, inputs, attrs, {{slot, 1}})[0];
}

void NodeContext::add_output(const std::string& var, const char* slot, const std::string& same) {
  if (!is_ok()) return;
  if (Op* const writer = block().last_writer(var)) writer->set_output(slot, same);
}

std::string NodeContext::constant_var(Tensor tensor) {
  const std::string stem = node_.output_size() > 0 ? node_.output(0) : node_.name();
  const std::string name = unique(stem + ".const");
  VarSpec spec = VarSpec::tensor(tensor.dtype(), tensor.dims());
  spec.persistable = true;
  block().declare(name, std::move(spec));
  note_known(state_, name, tensor);
  state_.params[name].as<Tensor>() = std::move(tensor);
  return name;
}

namespace {

template <typename T, typename From>
void copy_as(const std::vector<From>& values, Tensor& to) {
  T* out = to.data<T>();
  for (const From value : values) *out++ = static_cast<T>(value);
}

template <typename From>
Status fill_tensor(const std::vector<From>& values, Tensor& to) {
  if (static_cast<int64_t>(values.size()) != to.numel())
    return Internal("{} values for {}", values.size(), describe(to));
  switch (to.dtype()) {
    case DType::kBool:
      copy_as<bool>(values, to);
      return Ok();
    case DType::kUint8:
      copy_as<uint8_t>(values, to);
      return Ok();
    case DType::kInt8:
      copy_as<int8_t>(values, to);
      return Ok();
    case DType::kInt16:
      copy_as<int16_t>(values, to);
      return Ok();
    case DType::kInt32:
      copy_as<int32_t>(values, to);
      return Ok();
    case DType::kInt64:
      copy_as<int64_t>(values, to);
      return Ok();
    case DType::kFloat16:
      for (size_t i = 0; i < values.size(); ++i)
        to.data<Float16>()[i] = Float16(static_cast<float>(values[i]));
      return Ok();
    case DType::kFloat64:
      copy_as<double>(values, to);
      return Ok();
    case DType::kFloat32:
      copy_as<float>(values, to);
      return Ok();
    default:
      return Unimplemented("import of ONNX: a constant of dtype {}", dtype_name(to.dtype()));
  }
}

}  // namespace

template <typename T>
std::string NodeContext::listed(const std::vector<T>& values, DType dtype, const Dims& dims) {
  if (!is_ok()) return "";
  StatusOr<Tensor> tensor = Tensor::create(dtype, dims);
  Status filled = tensor.ok() ? fill_tensor(values, *tensor) : tensor.status();
  if (filled.ok()) return constant_var(std::move(*tensor));
  fail(std::move(filled));
  return "";
}

std::string NodeContext::numbers(const std::vector<double>& values, DType dtype, const Dims& dims) {
  return listed(values, dtype, dims);
}

std::string NodeContext::longs(const std::vector<int64_t>& values, const Dims& dims) {
  return listed(values, DType::kInt64, dims);
}

// ---- outputs

bool NodeContext::has_output(size_t index) const {
  return index < output_count() && !node_.output(static_cast<int>(index)).empty();
}

void NodeContext::set(size_t index, const std::string& var) {
  outputs_set_.insert(index);
  if (!has_output(index) || !is_ok()) return;
  const std::string& name = node_.output(static_cast<int>(index));
  // A var that this node made takes the name of the value, unless it has one already.
  if (own_.erase(var) > 0) {
    block().rename(var, name);
    state_.value[name] = name;
    return;
  }
  state_.value[name] = var;
}

Status NodeContext::finish() {
  MILLRACE_RETURN_IF_ERROR(Status(status_));
  for (const AttributeProto& attr : node_.attribute())
    if (!attrs_read_.contains(attr.name()))
      return refuse(fmt::format("attribute {} is not known to the import", attr.name()));
  for (size_t i = 0; i < input_count(); ++i)
    if (has(i) && !inputs_read_.contains(i))
      return refuse(fmt::format("input {} is not known to the import", i));
  // Values that nothing computed are reported where they are read.
  for (size_t i = 0; i < output_count(); ++i)
    if (has_output(i) && !outputs_set_.contains(i))
      state_.not_computed.insert(node_.output(static_cast<int>(i)));
  return Ok();
}

}  // namespace millrace::interchange
