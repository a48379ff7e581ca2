#include <millrace/framework/program_file.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"

namespace millrace::python {
namespace {

nb::dict difference_of(const api::ProgramDifference& found) {
  nb::dict facts;
  facts["block"] = found.block;
  facts["op_a"] = found.op_a;
  facts["op_b"] = found.op_b;
  facts["op_type"] = to_text(found.op_type);
  facts["what"] = to_text(found.what);
  facts["a"] = to_text(found.a);
  facts["b"] = to_text(found.b);
  facts["text"] = to_text(found.text);
  return facts;
}

nb::list differences(const Handle& a, const Handle& b, const api::CompareOptions& options) {
  const auto found = without_gil([&] { return api::compare(*a.program, *b.program, options); });
  nb::list list;
  for (const api::ProgramDifference& difference : found) list.append(difference_of(difference));
  return list;
}

nb::list problems(const Handle& given, const api::VerifyOptions& options) {
  const auto found = without_gil([&] { return api::verify(*given.program, options); });
  nb::list list;
  for (const api::ProblemFound& problem : found)
    list.append(nb::make_tuple(problem.is_error, problem.rule, exception_of(problem.status)));
  return list;
}

}  // namespace

void bind_programs(nb::module_& m) {
  nb::class_<Handle>(m, "ProgramHandle");
  m.def("load_program", [](const std::string& path) {
    return Handle{without_gil([&] { return value_of(load_program(path)); })};
  });
  m.def("parse_program", [](const nb::bytes& bytes, const std::string& name) {
    std::string copy(bytes.c_str(), bytes.size());
    return Handle{
        without_gil([&] { return value_of(parse_program_bytes(std::move(copy), name)); })};
  });
  m.def("program_bytes", [](const Handle& given) {
    const std::string bytes = without_gil([&] { return program_bytes(*given.program); });
    return nb::bytes(bytes.data(), bytes.size());
  });
  m.def("program_text", [](const Handle& given) {
    return to_text(without_gil([&] { return program_text(*given.program); }));
  });
  m.def("save_program", [](const Handle& given, const std::string& path, bool replace) {
    without_gil([&] { check(save_program(*given.program, path, replace)); });
  });
  nb::enum_<api::ProgramView>(m, "ProgramView")
      .value("summary", api::ProgramView::kSummary)
      .value("html", api::ProgramView::kHtml)
      .value("json", api::ProgramView::kJson)
      .value("dot", api::ProgramView::kDot)
      .value("svg", api::ProgramView::kSvg);
  m.def("view_program", [](const Handle& given, api::ProgramView view, const std::string& name) {
    return to_text(without_gil([&] { return api::view_program(*given.program, view, name); }));
  });
  nb::class_<api::VerifyOptions>(m, "VerifyOptions")
      .def(nb::init<>())
      .def_rw("lint", &api::VerifyOptions::lint)
      .def_rw("allow_outside_paths", &api::VerifyOptions::allow_outside_paths)
      .def_rw("allow_network", &api::VerifyOptions::allow_network)
      .def_rw("allow_old_forms", &api::VerifyOptions::allow_old_forms);
  nb::class_<api::CompareOptions>(m, "CompareOptions")
      .def(nb::init<>())
      .def_rw("any_order", &api::CompareOptions::any_order)
      .def_rw("semantic", &api::CompareOptions::semantic)
      .def_rw("strict_attrs", &api::CompareOptions::strict_attrs)
      .def_rw("strict_types", &api::CompareOptions::strict_types)
      .def_rw("strict_vars", &api::CompareOptions::strict_vars)
      .def_rw("ignore_attrs", &api::CompareOptions::ignore_attrs);
  m.def("verify", &problems);
  m.def("compare", &differences);
  m.def(
      "run_passes",
      [](const Handle& given, const std::string& pipeline, const Handle* startup) {
        api::PassesResult result = without_gil([&] {
          return value_of(api::run_passes(*given.program, pipeline,
                                          startup == nullptr ? nullptr : startup->program.get()));
        });
        nb::object initial = nb::none();
        if (result.startup != nullptr) initial = nb::cast(Handle{result.startup});
        return nb::make_tuple(Handle{result.program}, initial, result.remarks);
      },
      nb::arg("program"), nb::arg("pipeline"), nb::arg("startup").none());
  m.def("pass_names", &api::pass_names);
  m.def("op_types", &api::op_types);
}

}  // namespace millrace::python
