// Elements of values that are known before the run: shapes, and what models compute from them.

#include <algorithm>
#include <cmath>
#include <functional>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

using Element = std::optional<long double>;

// Longer values are no shapes; their elements are not followed.
constexpr int64_t kMaxKnown = 4096;

// A value of the model during folding: its elements and declaration.
struct Folded {
  KnownElements elements;
  Dims dims;
  DType dtype = DType::kFloat32;
};

// Results of floats are rounded as the model's own arithmetic would.
Element rounded(DType dtype, long double value) {
  if (dtype == DType::kFloat32) return static_cast<float>(value);
  if (dtype == DType::kFloat64) return static_cast<double>(value);
  return value;
}

// True if the type stores the number; results of integers that overflow are left to the run.
bool fits(DType dtype, long double value) {
  if (dtype == DType::kInt32) return value >= -2147483648.0L && value <= 2147483647.0L;
  return dtype != DType::kInt64 || std::abs(value) < 9.0e18L;
}

bool is_followed(DType dtype) {
  return dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kBool ||
         dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

template <typename T>
KnownElements elements_of(const Tensor& tensor) {
  KnownElements elements;
  for (const T value : tensor.values<T>()) elements.emplace_back(static_cast<long double>(value));
  return elements;
}

class Folder {
 public:
  Folder(const ::onnx::NodeProto& node, ImportState& state) : node_(node), state_(state) {}

  void run() {
    using Rule = KnownElements (Folder::*)();
    static const auto& rules =
        *new std::map<std::string, Rule>{{"Shape", &Folder::shape},
                                         {"Size", &Folder::size},
                                         {"Gather", &Folder::gather},
                                         {"Concat", &Folder::concat},
                                         {"Slice", &Folder::slice},
                                         {"Cast", &Folder::cast},
                                         {"Unsqueeze", &Folder::same},
                                         {"Squeeze", &Folder::same},
                                         {"Reshape", &Folder::same},
                                         {"Flatten", &Folder::same},
                                         {"Add", &Folder::arithmetic},
                                         {"Sub", &Folder::arithmetic},
                                         {"Mul", &Folder::arithmetic},
                                         {"Div", &Folder::arithmetic},
                                         {"Mod", &Folder::arithmetic},
                                         {"Min", &Folder::arithmetic},
                                         {"Max", &Folder::arithmetic},
                                         {"Equal", &Folder::arithmetic},
                                         {"Less", &Folder::arithmetic},
                                         {"Greater", &Folder::arithmetic},
                                         {"LessOrEqual", &Folder::arithmetic},
                                         {"GreaterOrEqual", &Folder::arithmetic},
                                         {"And", &Folder::arithmetic},
                                         {"Or", &Folder::arithmetic},
                                         {"Neg", &Folder::unary},
                                         {"Not", &Folder::unary},
                                         {"Floor", &Folder::unary},
                                         {"Ceil", &Folder::unary},
                                         {"Where", &Folder::where},
                                         {"Range", &Folder::range},
                                         {"ConstantOfShape", &Folder::filled},
                                         {"ReduceProd", &Folder::product},
                                         {"Expand", &Folder::expand}};
    const auto rule = rules.find(node_.op_type());
    if (rule == rules.end() || node_.output_size() == 0) return;
    const auto value = state_.value.find(node_.output(0));
    if (value == state_.value.end() || state_.known.contains(value->second)) return;
    const Var* const out = state_.program->root().find_var(value->second);
    if (out == nullptr || !is_followed(out->dtype())) return;
    out_ = {.elements = {},
            .dims = Dims(out->dims().begin(), out->dims().end()),
            .dtype = out->dtype()};
    KnownElements elements = (this->*rule->second)();
    const std::optional<int64_t> count = element_count(out_.dims);
    if (count && *count >= 0 && static_cast<int64_t>(elements.size()) == *count &&
        std::any_of(elements.begin(), elements.end(),
                    [](const Element& e) { return e.has_value(); }))
      state_.known[value->second] = std::move(elements);
  }

 private:
  [[nodiscard]] bool has(int index) const {
    return index < node_.input_size() && !node_.input(index).empty();
  }

  [[nodiscard]] Folded input(int index) const {
    Folded folded;
    if (!has(index)) return folded;
    const auto value = state_.value.find(node_.input(index));
    if (value == state_.value.end()) return folded;
    const Var* const var = state_.program->root().find_var(value->second);
    if (var == nullptr) return folded;
    folded.dims = Dims(var->dims().begin(), var->dims().end());
    folded.dtype = var->dtype();
    const auto known = state_.known.find(value->second);
    const std::optional<int64_t> count = element_count(folded.dims);
    if (known != state_.known.end())
      folded.elements = known->second;
    else if (count && *count >= 0 && *count <= kMaxKnown)
      folded.elements.resize(static_cast<size_t>(*count));
    return folded;
  }

  [[nodiscard]] std::optional<int64_t> attr(const char* name) const {
    for (const auto& attribute : node_.attribute())
      if (attribute.name() == name) return attribute.i();
    return std::nullopt;
  }

  KnownElements shape() {
    const Folded x = input(0);
    const auto rank = static_cast<int64_t>(x.dims.size());
    const auto bound = [&](const char* name, int64_t fallback) {
      const int64_t at = attr(name).value_or(fallback);
      return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    KnownElements elements;
    for (int64_t i = bound("start", 0); i < bound("end", rank); ++i) {
      const int64_t dim = x.dims[static_cast<size_t>(i)];
      elements.push_back(dim < 0 ? Element() : Element(dim));
    }
    return elements;
  }

  KnownElements size() {
    const std::optional<int64_t> count = element_count(input(0).dims);
    return {count && *count >= 0 ? Element(*count) : Element()};
  }

  KnownElements same() { return input(0).elements; }

  KnownElements cast() {
    Folded x = input(0);
    for (Element& e : x.elements) {
      if (!e) continue;
      if (out_.dtype == DType::kBool)
        e = *e != 0;
      else if (out_.dtype == DType::kInt32 || out_.dtype == DType::kInt64)
        e = std::isfinite(*e) ? Element(std::trunc(*e)) : Element();
      else
        e = rounded(out_.dtype, *e);
      if (e && !fits(out_.dtype, *e)) e.reset();
    }
    return x.elements;
  }

  KnownElements gather() {
    const Folded x = input(0);
    const Folded index = input(1);
    if (x.dims.size() != 1 || attr("axis").value_or(0) > 0) return {};
    KnownElements elements;
    for (const Element& e : index.elements) {
      if (!e) return {};
      const auto count = static_cast<int64_t>(x.elements.size());
      auto at = to_int64(*e);
      if (at < 0) at += count;
      if (at < 0 || at >= count) return {};
      elements.push_back(x.elements[static_cast<size_t>(at)]);
    }
    return elements;
  }

  KnownElements concat() {
    KnownElements elements;
    for (int i = 0; i < node_.input_size(); ++i) {
      const Folded part = input(i);
      if (part.dims.size() != 1 || (part.elements.empty() && part.dims[0] != 0)) return {};
      elements.insert(elements.end(), part.elements.begin(), part.elements.end());
    }
    return elements;
  }

  // One axis, with bounds that are known.
  KnownElements slice() {
    const Folded x = input(0);
    if (x.dims.size() != 1 || x.elements.empty() || node_.input_size() < 3) return {};
    const auto bound = [&](int index, int64_t fallback) -> std::optional<int64_t> {
      if (!has(index)) return fallback;
      const Folded at = input(index);
      if (at.elements.size() != 1 || !at.elements[0]) return std::nullopt;
      return to_int64(*at.elements[0]);
    };
    const auto begin = bound(1, 0);
    const auto end = bound(2, 0);
    const auto step = bound(4, 1);
    if (!begin || !end || step != 1) return {};
    const auto count = static_cast<int64_t>(x.elements.size());
    const auto clamped = [&](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + count : at, 0, count);
    };
    KnownElements elements;
    for (int64_t i = clamped(*begin); i < clamped(*end); ++i)
      elements.push_back(x.elements[static_cast<size_t>(i)]);
    return elements;
  }

  // Operands with one element, or with equal numbers of elements.
  KnownElements combine(const std::vector<Folded>& operands,
                        const std::function<Element(const std::vector<long double>&)>& f) {
    size_t count = 1;
    for (const Folded& operand : operands) {
      if (operand.dims.size() > 1 || operand.elements.empty()) return {};
      count = std::max(count, operand.elements.size());
    }
    KnownElements elements;
    for (size_t i = 0; i < count; ++i) {
      std::vector<long double> values;
      for (const Folded& operand : operands) {
        if (operand.elements.size() != 1 && operand.elements.size() != count) return {};
        const Element& e = operand.elements[operand.elements.size() == 1 ? 0 : i];
        if (e) values.push_back(*e);
      }
      elements.push_back(values.size() == operands.size() ? f(values) : Element());
    }
    return elements;
  }

  static Element arithmetic_of(const std::string& type, DType dtype,
                               const std::vector<long double>& v) {
    const bool is_float = dtype == DType::kFloat32 || dtype == DType::kFloat64;
    const long double a = v[0];
    const long double b = v.size() > 1 ? v[1] : 0;
    if (type == "Add") return a + b;
    if (type == "Sub") return a - b;
    if (type == "Mul") return a * b;
    if (type == "Div") return b == 0 ? Element() : Element(is_float ? a / b : std::trunc(a / b));
    if (type == "Mod") return b == 0 || is_float ? Element() : Element(a - b * std::floor(a / b));
    if (type == "Min") return std::min(a, b);
    if (type == "Max") return std::max(a, b);
    if (type == "Equal") return a == b;
    if (type == "Less") return a < b;
    if (type == "Greater") return a > b;
    if (type == "LessOrEqual") return a <= b;
    if (type == "GreaterOrEqual") return a >= b;
    if (type == "And") return a != 0 && b != 0;
    return a != 0 || b != 0;  // Or
  }

  KnownElements arithmetic() {
    if (node_.input_size() != 2 || attr("fmod").value_or(0) != 0) return {};
    const DType dtype = input(0).dtype;
    return combine({input(0), input(1)}, [&](const std::vector<long double>& v) -> Element {
      const Element result = arithmetic_of(node_.op_type(), dtype, v);
      return result && fits(out_.dtype, *result) ? rounded(out_.dtype, *result) : Element();
    });
  }

  KnownElements unary() {
    const std::string& type = node_.op_type();
    return combine({input(0)}, [&](const std::vector<long double>& v) -> Element {
      if (type == "Neg") return fits(out_.dtype, -v[0]) ? Element(-v[0]) : Element();
      if (type == "Not") return v[0] == 0;
      return type == "Floor" ? std::floor(v[0]) : std::ceil(v[0]);
    });
  }

  KnownElements where() {
    return combine({input(0), input(1), input(2)}, [](const std::vector<long double>& v) {
      return Element(v[0] != 0 ? v[1] : v[2]);
    });
  }

  KnownElements range() {
    const Folded parts[] = {input(0), input(1), input(2)};
    for (const Folded& part : parts)
      if (part.elements.size() != 1 || !part.elements[0]) return {};
    const auto count = element_count(out_.dims);
    if (!count || *count < 0 || *count > kMaxKnown) return {};
    KnownElements elements;
    for (int64_t i = 0; i < *count; ++i)
      elements.push_back(rounded(out_.dtype, *parts[0].elements[0] + i * *parts[2].elements[0]));
    return elements;
  }

  KnownElements filled() {
    const auto count = element_count(out_.dims);
    if (!count || *count < 0 || *count > kMaxKnown) return {};
    Element value = 0;
    for (const auto& attribute : node_.attribute()) {
      const StatusOr<Tensor> tensor = tensor_from_onnx(attribute.t(), "");
      if (!tensor.ok() || tensor->numel() != 1) return {};
      ImportState constant;
      note_known(constant, "", *tensor);
      if (!constant.known.contains("")) return {};
      value = constant.known[""][0];
    }
    return KnownElements(static_cast<size_t>(*count), value);
  }

  KnownElements product() {
    const Folded x = input(0);
    if (x.dims.size() > 1 || x.elements.empty()) return {};
    long double product = 1;
    for (const Element& e : x.elements) {
      if (!e) return {};
      product *= *e;
    }
    return fits(out_.dtype, product) ? KnownElements{rounded(out_.dtype, product)}
                                     : KnownElements{};
  }

  KnownElements expand() {
    const Folded x = input(0);
    const auto count = element_count(out_.dims);
    if (x.elements.size() != 1 || !count || *count < 0 || *count > kMaxKnown) return {};
    return KnownElements(static_cast<size_t>(*count), x.elements[0]);
  }

  const ::onnx::NodeProto& node_;
  ImportState& state_;
  Folded out_;
};

}  // namespace

void note_known(ImportState& state, const std::string& var, const Tensor& tensor) {
  if (tensor.numel() > kMaxKnown) return;
  switch (tensor.dtype()) {
    case DType::kBool:
      state.known[var] = elements_of<bool>(tensor);
      break;
    case DType::kUint8:
      state.known[var] = elements_of<uint8_t>(tensor);
      break;
    case DType::kInt8:
      state.known[var] = elements_of<int8_t>(tensor);
      break;
    case DType::kInt32:
      state.known[var] = elements_of<int32_t>(tensor);
      break;
    case DType::kInt64:
      state.known[var] = elements_of<int64_t>(tensor);
      break;
    case DType::kFloat32:
      state.known[var] = elements_of<float>(tensor);
      break;
    case DType::kFloat64:
      state.known[var] = elements_of<double>(tensor);
      break;
    default:
      break;  // the elements of other types are not followed
  }
}

void fold_known(const ::onnx::NodeProto& node, ImportState& state) {
  Folder(node, state).run();
}

}  // namespace millrace::interchange
