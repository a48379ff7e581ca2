#include <millrace/api/persistables.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"

namespace millrace::python {

void bind_files(nb::module_& m) {
  using api::SaveModelOptions;
  using api::SaveVarsOptions;
  nb::class_<SaveVarsOptions>(m, "SaveVarsOptions")
      .def(nb::init<>())
      .def_rw("filename", &SaveVarsOptions::filename)
      .def_rw("replace", &SaveVarsOptions::replace)
      .def_rw("sync", &SaveVarsOptions::sync)
      .def_rw("manifest", &SaveVarsOptions::manifest);
  nb::class_<SaveModelOptions>(m, "SaveModelOptions")
      .def(nb::init<>())
      .def_rw("model_filename", &SaveModelOptions::model_filename)
      .def_rw("params_filename", &SaveModelOptions::params_filename)
      .def_rw("program_only", &SaveModelOptions::program_only)
      .def_rw("replace", &SaveModelOptions::replace);
  m.def("save_persistables", [](const Handle& program, const LockedScope& scope,
                                const std::string& folder, const SaveVarsOptions& options) {
    return alone(*scope.mutex, [&] {
      return value_of(api::save_persistables(*program.program, scope.scope, folder, options));
    });
  });
  m.def("save_vars",
        [](const Handle& program, const LockedScope& scope, const std::vector<std::string>& names,
           const std::string& folder, const SaveVarsOptions& options) {
          return alone(*scope.mutex, [&] {
            return value_of(api::save_vars(*program.program, scope.scope, names, folder, options));
          });
        });
  m.def("load_persistables", [](const Handle& program, const LockedScope& scope,
                                const std::string& folder, const std::string& filename) {
    alone(*scope.mutex,
          [&] { check(api::load_persistables(*program.program, scope.scope, folder, filename)); });
  });
  m.def("load_vars", [](const Handle& program, const LockedScope& scope,
                        const std::vector<std::string>& names, const std::string& folder,
                        const std::string& filename) {
    alone(*scope.mutex,
          [&] { check(api::load_vars(*program.program, scope.scope, names, folder, filename)); });
  });
  m.def("persistables_to_memory", [](const Handle& program, const LockedScope& scope) {
    const std::string bytes = alone(*scope.mutex, [&] {
      return value_of(api::persistables_to_memory(*program.program, scope.scope));
    });
    return nb::bytes(bytes.data(), bytes.size());
  });
  m.def("persistables_from_memory",
        [](const Handle& program, const LockedScope& scope, const nb::bytes& bytes) {
          const std::string_view view(bytes.c_str(), bytes.size());
          alone(*scope.mutex,
                [&] { check(api::persistables_from_memory(*program.program, scope.scope, view)); });
        });
  m.def("save_inference_model",
        [](const Handle& program, const LockedScope& scope, const std::string& folder,
           const std::vector<std::string>& feeds, const std::vector<std::string>& fetches,
           const SaveModelOptions& options) {
          alone(*scope.mutex, [&] {
            check(api::save_inference_model(*program.program, scope.scope, folder, feeds, fetches,
                                            options));
          });
        });
  m.def("load_inference_model",
        [](const std::string& folder, const LockedScope& scope, const std::string& model_filename,
           const std::string& params_filename) {
          api::InferenceModel model = alone(*scope.mutex, [&] {
            return value_of(
                api::load_inference_model(folder, scope.scope, model_filename, params_filename));
          });
          return nb::make_tuple(Handle{model.program}, model.feeds, model.fetches);
        });
}

}  // namespace millrace::python
