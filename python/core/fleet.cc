#include <millrace/api/fleet.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"

namespace millrace::python {
namespace {

using api::Connection;
using api::Fleet;

#define FIELD(name) .def_rw(#name, &T::name)

void bind_fleet_options(nb::module_& m) {
  {
    using T = api::FleetStrategy;
    nb::class_<T>(m, "FleetStrategy")
        .def(nb::init<>()) FIELD(a_sync) FIELD(a_sync_configs) FIELD(trainer_desc_configs)
            FIELD(fs_client_param) FIELD(tables) FIELD(use_cvm) FIELD(adam_d2sum)
                FIELD(all_optimizers);
  }
  {
    using T = api::FleetRole;
    nb::class_<T>(m, "FleetRole")
        .def(nb::init<>()) FIELD(is_server) FIELD(id) FIELD(worker_num) FIELD(server_endpoints)
            FIELD(worker_endpoints)
        .def("is_first_worker", &T::is_first_worker);
  }
  {
    using T = api::FleetTableOptions;
    nb::class_<T>(m, "FleetTableOptions").def(nb::init<>()) FIELD(seed) FIELD(disk_path);
  }
  {
    using T = api::FleetWorkerOptions;
    nb::class_<T>(m, "FleetWorkerOptions")
        .def(nb::init<>()) FIELD(wait_for_servers) FIELD(deadline) FIELD(heartbeat);
  }
  {
    using T = api::FleetFolder;
    nb::class_<T>(m, "FleetFolder")
        .def(nb::init<>()) FIELD(root) FIELD(folder) FIELD(replace) FIELD(mode);
  }
}

#undef FIELD

nb::object handle_of(api::ProgramPtr program) {
  if (program == nullptr) return nb::none();
  return nb::cast(Handle{std::move(program)});
}

void bind_setup(nb::class_<Fleet>& c) {
  c.def(nb::init<Connection>())
      .def("init", [](Fleet& self, const api::FleetRole& role) { check(self.init(role)); })
      .def("init_from_environment", [](Fleet& self) { check(self.init_from_environment()); })
      .def("remarks", &Fleet::remarks)
      .def("role", [](const Fleet& self) { return value_of(self.role()); })
      .def("split_files",
           [](const Fleet& self, const std::vector<std::string>& files) {
             return value_of(self.split_files(files));
           })
      .def("distributed_optimizer",
           [](Fleet& self, const MinimizeOptions& optimizer, const api::FleetStrategy& strategy) {
             check(self.distributed_optimizer(optimizer, strategy));
           })
      .def("minimize",
           [](Fleet& self, const Handle& main, const Handle& startup, const std::string& loss) {
             without_gil([&] { check(self.minimize(*main.program, *startup.program, loss)); });
           })
      .def("main_program", [](const Fleet& self) { return handle_of(self.main_program()); })
      .def("startup_program", [](const Fleet& self) { return handle_of(self.startup_program()); });
}

void bind_server_calls(nb::class_<Fleet>& c) {
  c.def("init_server",
        [](Fleet& self, const std::string& folder, const std::vector<std::string>& tables,
           const api::FleetTableOptions& options, const api::ServerOptions& service) {
          without_gil([&] { check(self.init_server(folder, tables, options, service)); });
        })
      .def("run_server", [](Fleet& self) { without_gil([&] { check(self.run_server()); }); })
      .def("stop_server", [](Fleet& self) { without_gil([&] { self.stop_server(); }); });
}

void bind_worker_calls(nb::class_<Fleet>& c) {
  c.def("init_worker",
        [](Fleet& self, const api::FleetWorkerOptions& options) {
          without_gil([&] { check(self.init_worker(options)); });
        })
      .def("step",
           [](Fleet& self, const nb::dict& feeds, const std::vector<std::string>& fetches) {
             const Arrays fed = arrays_from(feeds);
             return to_dict(fetches,
                            without_gil([&] { return value_of(self.step(fed, fetches)); }));
           })
      .def("get",
           [](const Fleet& self, const std::string& name) {
             return to_numpy(without_gil([&] { return value_of(self.get(name)); }));
           })
      .def("barrier_worker",
           [](Fleet& self) { without_gil([&] { check(self.barrier_worker()); }); })
      .def("wait_for_all", [](Fleet& self) { without_gil([&] { check(self.wait_for_all()); }); })
      .def("stop_worker", [](Fleet& self) { without_gil([&] { check(self.stop_worker()); }); })
      .def("save_persistables",
           [](Fleet& self, const api::FleetFolder& to) {
             without_gil([&] { check(self.save_persistables(to)); });
           })
      .def("save_inference_model",
           [](Fleet& self, const api::FleetFolder& to, const std::vector<std::string>& feeds,
              const std::vector<std::string>& fetches) {
             without_gil([&] { check(self.save_inference_model(to, feeds, fetches)); });
           })
      .def("load_model",
           [](Fleet& self, const api::FleetFolder& from) {
             without_gil([&] { check(self.load_model(from)); });
           })
      .def("shrink", [](Fleet& self) { without_gil([&] { check(self.shrink()); }); });
}

}  // namespace

void bind_fleet(nb::module_& m) {
  bind_fleet_options(m);
  nb::class_<Fleet> fleet(m, "Fleet");
  bind_setup(fleet);
  bind_server_calls(fleet);
  bind_worker_calls(fleet);
}

}  // namespace millrace::python
