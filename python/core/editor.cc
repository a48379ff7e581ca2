#include <nanobind/stl/complex.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"

namespace millrace::python {
namespace {

using api::AttrData;
using api::AttrPayload;
using api::OpData;
using api::ProgramEditor;
using api::ScalarData;
using api::SlotData;
using api::VarData;

nb::object to_python(bool value) {
  return nb::bool_(value);
}
nb::object to_python(int64_t value) {
  return nb::int_(value);
}
nb::object to_python(double value) {
  return nb::float_(value);
}
nb::object to_python(const std::complex<double>& value) {
  return nb::cast(value);
}
nb::object to_python(const std::string& value) {
  return to_text(value);
}
nb::object to_python(const ScalarData& value) {
  return std::visit([](const auto& v) { return to_python(v); }, value);
}
template <typename T>
nb::object to_python(const std::vector<T>& values) {
  nb::list list;
  for (const auto& value : values) list.append(to_python(static_cast<T>(value)));
  return list;
}

bool is_scalar_kind(std::optional<AttrKind> kind) {
  return kind == AttrKind::kScalar || kind == AttrKind::kScalars;
}

nb::object attr_to_python(const AttrData& attr) {
  if (attr.kind == AttrKind::kScalar)
    return to_python(std::get<std::vector<ScalarData>>(attr.value).at(0));
  return std::visit([](const auto& v) { return to_python(v); }, attr.value);
}

// The kinds of Python values that attributes are made of, in order of generality.
enum class Sort { kBool, kInteger, kReal, kComplex, kText };

Sort sort_of(nb::handle value, const std::string& name) {
  PyObject* const object = value.ptr();
  if (PyBool_Check(object)) return Sort::kBool;
  if (PyUnicode_Check(object) || PyBytes_Check(object)) return Sort::kText;
  if (PyIndex_Check(object)) return Sort::kInteger;
  if (PyComplex_Check(object)) return Sort::kComplex;
  if (PyFloat_Check(object) || nb::hasattr(value, "__float__")) return Sort::kReal;
  throw nb::type_error(
      ("attribute '" + name + "': expected bool, int, float, str or a list").c_str());
}

int64_t integer_of(nb::handle value, const std::string& name) {
  const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  int64_t result = 0;
  if (!nb::try_cast(number, result))
    throw nb::value_error(("attribute '" + name + "': expected 64 bits").c_str());
  return result;
}

double real_of(nb::handle value) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return number;
}

ScalarData scalar_of(nb::handle value, const std::string& name) {
  switch (sort_of(value, name)) {
    case Sort::kBool:
      return value.ptr() == Py_True;
    case Sort::kInteger:
      return integer_of(value, name);
    case Sort::kReal:
      return real_of(value);
    case Sort::kComplex:
      return nb::cast<std::complex<double>>(value);
    case Sort::kText:
      break;
  }
  throw nb::type_error(("attribute '" + name + "': expected a number").c_str());
}

AttrPayload single(nb::handle value, const std::string& name) {
  if (sort_of(value, name) == Sort::kText) return from_text(value, name.c_str());
  const ScalarData scalar = scalar_of(value, name);
  if (std::holds_alternative<std::complex<double>>(scalar)) return std::vector<ScalarData>{scalar};
  if (const auto* const real = std::get_if<double>(&scalar)) return *real;
  if (const auto* const integer = std::get_if<int64_t>(&scalar)) return *integer;
  return std::get<bool>(scalar);
}

template <typename T, typename F>
std::vector<T> list_of(const nb::list& values, F convert) {
  std::vector<T> list;
  for (const nb::handle value : values) list.push_back(convert(value));
  return list;
}

// Integers among reals are reals; other mixtures are an error.
Sort common_sort(const nb::list& values, const std::string& name) {
  Sort common = sort_of(values[0], name);
  for (const nb::handle value : values) {
    const Sort sort = sort_of(value, name);
    const bool numbers = sort != Sort::kText && common != Sort::kText && sort != Sort::kBool &&
                         common != Sort::kBool;
    if (sort != common && !numbers)
      throw nb::type_error(("attribute '" + name + "': expected values of one type").c_str());
    common = std::max(common, sort);
  }
  return common;
}

AttrPayload list_payload(const nb::list& values, const std::string& name) {
  if (values.size() == 0) return std::vector<int64_t>();
  switch (common_sort(values, name)) {
    case Sort::kBool:
      return list_of<bool>(values, [](nb::handle v) { return v.ptr() == Py_True; });
    case Sort::kInteger:
      return list_of<int64_t>(values, [&](nb::handle v) { return integer_of(v, name); });
    case Sort::kReal:
      return list_of<double>(values, [](nb::handle v) { return real_of(v); });
    case Sort::kComplex:
      return list_of<ScalarData>(values, [&](nb::handle v) { return scalar_of(v, name); });
    case Sort::kText:
      break;
  }
  return list_of<std::string>(values, [&](nb::handle v) { return from_text(v, name.c_str()); });
}

std::optional<AttrKind> kind_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  const std::optional<AttrKind> kind = parse_attr_kind(*name);
  if (!kind) throw nb::value_error(("unknown kind of attribute '" + *name + "'").c_str());
  return kind;
}

// \param present  kind of the attribute that is replaced
AttrData attr_from(const std::string& name, nb::handle value, std::optional<AttrKind> kind,
                   std::optional<AttrKind> present = std::nullopt) {
  AttrData attr{name, {}, kind};
  const bool is_list = !PyUnicode_Check(value.ptr()) && !PyBytes_Check(value.ptr()) &&
                       PySequence_Check(value.ptr()) != 0;
  const nb::list values = is_list ? nb::list(value) : nb::list();
  if (is_scalar_kind(kind ? kind : present)) {
    std::vector<ScalarData> scalars;
    for (const nb::handle element : values) scalars.push_back(scalar_of(element, name));
    if (!is_list) scalars.push_back(scalar_of(value, name));
    attr.value = std::move(scalars);
  } else {
    attr.value = is_list ? list_payload(values, name) : single(value, name);
  }
  return attr;
}

nb::dict slots_to_python(const std::vector<SlotData>& slots) {
  nb::dict dict;
  for (const SlotData& slot : slots) dict[to_text(slot.name)] = to_python(slot.vars);
  return dict;
}

std::vector<std::string> names_from(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) return {from_text(value, "name of a var")};
  std::vector<std::string> names;
  for (const nb::handle name : nb::list(value)) names.push_back(from_text(name, "name of a var"));
  return names;
}

std::vector<SlotData> slots_from(const nb::dict& dict) {
  std::vector<SlotData> slots;
  for (const auto& [name, vars] : dict)
    slots.push_back({from_text(name, "name of a slot"), names_from(vars)});
  return slots;
}

nb::tuple op_to_python(const OpData& op) {
  nb::dict attrs;
  nb::dict kinds;
  for (const AttrData& attr : op.attrs) {
    const nb::str name = to_text(attr.name);
    attrs[name] = attr_to_python(attr);
    kinds[name] = std::string(attr_kind_name(*attr.kind)).c_str();
  }
  return nb::make_tuple(to_text(op.type), slots_to_python(op.inputs), slots_to_python(op.outputs),
                        attrs, kinds);
}

OpData op_from(const std::string& type, const nb::dict& inputs, const nb::dict& outputs,
               const nb::dict& attrs) {
  OpData op{type, slots_from(inputs), slots_from(outputs), {}};
  for (const auto& [name, value] : attrs)
    op.attrs.push_back(attr_from(from_text(name, "name of an attribute"), value, std::nullopt));
  return op;
}

nb::dict var_to_python(const VarData& var) {
  nb::dict facts;
  facts["name"] = to_text(var.name);
  facts["kind"] = std::string(var_kind_name(var.kind)).c_str();
  facts["dtype"] = nb::none();
  if (var.dtype) facts["dtype"] = std::string(dtype_name(*var.dtype)).c_str();
  facts["dims"] = nb::tuple(to_python(var.dims));
  facts["lod_level"] = var.lod_level;
  facts["persistable"] = var.persistable;
  facts["is_parameter"] = var.is_parameter;
  facts["stop_gradient"] = var.stop_gradient;
  facts["need_check_feed"] = var.need_check_feed;
  return facts;
}

VarData var_from(const nb::dict& facts) {
  VarData var;
  var.name = from_text(facts["name"], "name of a var");
  const auto kind = nb::cast<std::string>(facts["kind"]);
  if (const auto parsed = parse_var_kind(kind))
    var.kind = *parsed;
  else
    throw nb::value_error(("unknown kind of var '" + kind + "'").c_str());
  if (!facts["dtype"].is_none()) {
    const auto name = nb::cast<std::string>(facts["dtype"]);
    var.dtype = parse_dtype(name);
    if (!var.dtype) throw nb::value_error(("unknown element type '" + name + "'").c_str());
  }
  var.dims = nb::cast<std::vector<int64_t>>(facts["dims"]);
  var.lod_level = nb::cast<int32_t>(facts["lod_level"]);
  var.persistable = nb::cast<bool>(facts["persistable"]);
  var.is_parameter = nb::cast<bool>(facts["is_parameter"]);
  var.stop_gradient = nb::cast<bool>(facts["stop_gradient"]);
  var.need_check_feed = nb::cast<bool>(facts["need_check_feed"]);
  return var;
}

std::optional<AttrKind> present_kind(const ProgramEditor& editor, ProgramEditor::OpId op,
                                     const std::string& name) {
  for (const AttrData& attr : value_of(editor.op(op)).attrs)
    if (attr.name == name) return attr.kind;
  return std::nullopt;
}

}  // namespace

void bind_editor(nb::module_& m) {
  using OpId = ProgramEditor::OpId;
  nb::class_<ProgramEditor>(m, "ProgramEditor")
      .def(nb::init<>())
      .def("__init__", [](ProgramEditor* self,
                          const Handle& given) { new (self) ProgramEditor(*given.program); })
      .def("program", [](const ProgramEditor& self) { return Handle{self.program()}; })
      .def("version", &ProgramEditor::version)
      .def("block_count", &ProgramEditor::block_count)
      .def("parent",
           [](const ProgramEditor& self, int block) { return value_of(self.parent(block)); })
      .def("add_block",
           [](ProgramEditor& self, int parent) { return value_of(self.add_block(parent)); })
      .def("ops", [](const ProgramEditor& self, int block) { return value_of(self.ops(block)); })
      .def("op",
           [](const ProgramEditor& self, OpId op) { return op_to_python(value_of(self.op(op))); })
      .def("op_type",
           [](const ProgramEditor& self, OpId op) { return to_text(value_of(self.op_type(op))); })
      .def("place", [](const ProgramEditor& self, OpId op) { return value_of(self.place(op)); })
      .def("source_line", [](const ProgramEditor& self,
                             OpId op) { return to_text(value_of(self.source_line(op))); })
      .def(
          "insert_op",
          [](ProgramEditor& self, int block, const std::string& type, const nb::dict& inputs,
             const nb::dict& outputs, const nb::dict& attrs, std::optional<OpId> before) {
            return value_of(self.insert_op(block, op_from(type, inputs, outputs, attrs), before));
          },
          nb::arg("block"), nb::arg("type"), nb::arg("inputs"), nb::arg("outputs"),
          nb::arg("attrs"), nb::arg("before").none())
      .def("erase_op", [](ProgramEditor& self, OpId op) { check(self.erase_op(op)); })
      .def("set_op_type", [](ProgramEditor& self, OpId op,
                             const std::string& type) { check(self.set_op_type(op, type)); })
      .def("set_input", [](ProgramEditor& self, OpId op, const std::string& slot,
                           nb::handle vars) { check(self.set_input(op, slot, names_from(vars))); })
      .def("set_output",
           [](ProgramEditor& self, OpId op, const std::string& slot, nb::handle vars) {
             check(self.set_output(op, slot, names_from(vars)));
           })
      .def("remove_input", [](ProgramEditor& self, OpId op,
                              const std::string& slot) { check(self.remove_input(op, slot)); })
      .def("remove_output", [](ProgramEditor& self, OpId op,
                               const std::string& slot) { check(self.remove_output(op, slot)); })
      .def(
          "set_attr",
          [](ProgramEditor& self, OpId op, const std::string& name, nb::handle value,
             const std::optional<std::string>& kind) {
            check(self.set_attr(
                op, attr_from(name, value, kind_of(kind), present_kind(self, op, name))));
          },
          nb::arg("op"), nb::arg("name"), nb::arg("value"), nb::arg("kind").none())
      .def("remove_attr", [](ProgramEditor& self, OpId op,
                             const std::string& name) { check(self.remove_attr(op, name)); })
      .def("vars",
           [](const ProgramEditor& self, int block) {
             nb::list list;
             for (const VarData& var : value_of(self.vars(block))) list.append(var_to_python(var));
             return list;
           })
      .def("var",
           [](const ProgramEditor& self, int block, const std::string& name) {
             return var_to_python(value_of(self.var(block, name)));
           })
      .def("declare", [](ProgramEditor& self, int block,
                         const nb::dict& facts) { check(self.declare(block, var_from(facts))); })
      .def("erase_var", [](ProgramEditor& self, int block,
                           const std::string& name) { check(self.erase_var(block, name)); })
      .def("rename_var", [](ProgramEditor& self, int block, const std::string& from,
                            const std::string& to) { check(self.rename_var(block, from, to)); });
}

}  // namespace millrace::python
