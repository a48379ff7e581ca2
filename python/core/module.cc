#include <millrace/framework/base/version.h>

#include "python/core/core.h"

namespace millrace::python {
namespace {

nb::dict version() {
  const VersionInfo info = version_info();
  nb::dict facts;
  facts["version"] = std::string(info.version).c_str();
  facts["commit"] = std::string(info.commit).c_str();
  facts["build_type"] = std::string(info.build_type).c_str();
  facts["compiler"] = std::string(info.compiler).c_str();
  return facts;
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "Bindings of the millrace library; use the package millrace.";
  nb::set_leak_warnings(false);  // daemon threads may hold objects when the interpreter ends
  nb::register_exception_translator(
      [](const std::exception_ptr& error, void*) {
        try {
          std::rethrow_exception(error);
        } catch (const StatusError& failed) {
          const nb::object exception = exception_of(failed.status);
          PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
        }
      },
      nullptr);
  m.def("version_info", &version, "Version, commit, build type and compiler of the library.");
  bind_programs(m);
  bind_editor(m);
  bind_datasets(m);
  bind_executors(m);
  bind_files(m);
  bind_training(m);
  bind_transpiler(m);
  bind_parallel(m);
  bind_jobs(m);
  bind_serving(m);
  bind_fleet(m);
}

}  // namespace millrace::python
