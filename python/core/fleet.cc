#include <millrace/api/fleet.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"
#include "python/core/datasets.h"

namespace millrace::python {
namespace {

using api::Connection;
using api::Fleet;

// One call at a time, except while it serves: stop_server() may come from any thread.
struct LockedFleet {
  Fleet fleet;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
};

#define FIELD(name) .def_rw(#name, &T::name)

void bind_strategy(nb::module_& m) {
  using T = api::TranspilerStrategy;
  nb::class_<T>(m, "TranspilerStrategy")
      .def_static("sync", &T::sync)
      .def_static("async_", &T::async)
      .def_static("half_async", &T::half_async)
      .def_static("geo", &T::geo, nb::arg("update_frequency") = 100)
      .def_static(
          "from_config",
          [](const transpiler::DistributeTranspilerConfig& config) { return T::from(config); })
      .def_static("from_strategy", [](const api::FleetStrategy& strategy) {
        return value_of(T::from(strategy));
      }) FIELD(config) FIELD(communicator) FIELD(sparse_tables);
}

void bind_fleet_options(nb::module_& m) {
  {
    using T = api::FleetStrategy;
    nb::class_<T>(m, "FleetStrategy")
        .def(nb::init<>()) FIELD(a_sync) FIELD(a_sync_configs) FIELD(trainer_desc_configs)
            FIELD(fs_client_param) FIELD(tables) FIELD(use_cvm) FIELD(adam_d2sum)
                FIELD(all_optimizers) FIELD(dense_gradients);
  }
  {
    using T = api::DownpourStrategy;
    nb::class_<T>(m, "DownpourStrategy")
        .def(nb::init<>()) FIELD(sparse_configs) FIELD(dense_configs) FIELD(datanorm_configs)
            FIELD(data_norm_names) FIELD(use_cvm) FIELD(window) FIELD(early) FIELD(learning_rate)
                FIELD(fleet_desc) FIELD(program_config_messages);
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
        .def(nb::init<>()) FIELD(wait_for_servers) FIELD(deadline) FIELD(heartbeat) FIELD(folder)
            FIELD(engine) FIELD(rendezvous) FIELD(join_deadline);
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

void bind_setup(nb::class_<LockedFleet>& c) {
  c.def("__init__", [](LockedFleet* self,
                       const Connection& connection) { new (self) LockedFleet{Fleet(connection)}; })
      .def("init",
           [](LockedFleet& self, const api::FleetRole& role) { check(self.fleet.init(role)); })
      .def("init_from_environment",
           [](LockedFleet& self) { check(self.fleet.init_from_environment()); })
      .def("init_from_mpi",
           [](LockedFleet& self, const std::string& host) {
             alone(*self.mutex, [&] { check(self.fleet.init_from_mpi(host)); });
           })
      .def("remarks", [](const LockedFleet& self) { return self.fleet.remarks(); })
      .def("role", [](const LockedFleet& self) { return value_of(self.fleet.role()); })
      .def("split_files",
           [](const LockedFleet& self, const std::vector<std::string>& files) {
             return value_of(self.fleet.split_files(files));
           })
      .def("distributed_optimizer",
           [](LockedFleet& self, const MinimizeOptions& optimizer,
              const api::FleetStrategy& strategy) {
             check(self.fleet.distributed_optimizer(optimizer, strategy));
           })
      .def("distributed_optimizer",
           [](LockedFleet& self, const MinimizeOptions& optimizer,
              const api::TranspilerStrategy& strategy) {
             check(self.fleet.distributed_optimizer(optimizer, strategy));
           })
      .def("distributed_optimizer",
           [](LockedFleet& self, const api::DownpourStrategy& strategy) {
             check(self.fleet.distributed_optimizer(strategy));
           })
      .def("minimize",
           [](LockedFleet& self, const Handle& main, const Handle& startup,
              const std::string& loss) {
             alone(*self.mutex,
                   [&] { check(self.fleet.minimize(*main.program, *startup.program, loss)); });
           })
      .def("main_program",
           [](const LockedFleet& self) { return handle_of(self.fleet.main_program()); })
      .def("startup_program",
           [](const LockedFleet& self) { return handle_of(self.fleet.startup_program()); })
      .def("description", [](const LockedFleet& self) {
        const api::FleetDescription made = value_of(self.fleet.description());
        return std::vector{made.tables, made.runtime, made.fleet_desc, made.opt_info};
      });
}

void bind_server_calls(nb::class_<LockedFleet>& c) {
  c.def("init_server",
        [](LockedFleet& self, const std::string& folder, const std::vector<std::string>& tables,
           const api::FleetTableOptions& options, const api::ServerOptions& service) {
          alone(*self.mutex,
                [&] { check(self.fleet.init_server(folder, tables, options, service)); });
        })
      .def("run_server",
           [](LockedFleet& self) { without_gil([&] { check(self.fleet.run_server()); }); })
      .def("stop_server",
           [](LockedFleet& self) { without_gil([&] { self.fleet.stop_server(); }); });
}

void bind_worker_calls(nb::class_<LockedFleet>& c) {
  c.def("init_worker",
        [](LockedFleet& self, const api::FleetWorkerOptions& options) {
          alone(*self.mutex, [&] { check(self.fleet.init_worker(options)); });
        })
      .def("step",
           [](LockedFleet& self, const nb::dict& feeds, const std::vector<std::string>& fetches) {
             const Arrays fed = arrays_from(feeds);
             return to_dict(fetches, alone(*self.mutex, [&] {
                              return value_of(self.fleet.step(fed, fetches));
                            }));
           })
      .def("train_from_dataset",
           [](LockedFleet& self, const EpochArguments& epoch) {
             return run_epoch(epoch, {self.mutex.get()}, [&](auto& dataset, const auto& options) {
               return self.fleet.train_from_dataset(dataset, options);
             });
           })
      .def("get",
           [](const LockedFleet& self, const std::string& name) {
             return to_numpy(alone(*self.mutex, [&] { return value_of(self.fleet.get(name)); }));
           })
      .def_prop_ro("first_step", [](const LockedFleet& self) { return self.fleet.first_step(); })
      .def("next_step", [](const LockedFleet& self) { return self.fleet.next_step(); })
      .def("must_go_back", [](const LockedFleet& self) { return self.fleet.must_go_back(); })
      .def("go_back",
           [](LockedFleet& self) { alone(*self.mutex, [&] { check(self.fleet.go_back()); }); })
      .def("barrier_worker",
           [](LockedFleet& self) {
             alone(*self.mutex, [&] { check(self.fleet.barrier_worker()); });
           })
      .def("wait_for_all",
           [](LockedFleet& self) { alone(*self.mutex, [&] { check(self.fleet.wait_for_all()); }); })
      .def("stop_worker",
           [](LockedFleet& self) { alone(*self.mutex, [&] { check(self.fleet.stop_worker()); }); })
      .def("save_persistables",
           [](LockedFleet& self, const api::FleetFolder& to) {
             alone(*self.mutex, [&] { check(self.fleet.save_persistables(to)); });
           })
      .def("save_inference_model",
           [](LockedFleet& self, const api::FleetFolder& to, const std::vector<std::string>& feeds,
              const std::vector<std::string>& fetches) {
             alone(*self.mutex,
                   [&] { check(self.fleet.save_inference_model(to, feeds, fetches)); });
           })
      .def("load_model",
           [](LockedFleet& self, const api::FleetFolder& from) {
             alone(*self.mutex, [&] { check(self.fleet.load_model(from)); });
           })
      .def("shrink",
           [](LockedFleet& self) { alone(*self.mutex, [&] { check(self.fleet.shrink()); }); });
}

}  // namespace

void bind_fleet(nb::module_& m) {
  bind_fleet_options(m);
  bind_strategy(m);
  nb::class_<LockedFleet> fleet(m, "Fleet");
  bind_setup(fleet);
  bind_server_calls(fleet);
  bind_worker_calls(fleet);
}

}  // namespace millrace::python
