#include <millrace/api/connection.h>
#include <millrace/api/server.h>
#include <millrace/api/trainer.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"
#include "python/core/datasets.h"

namespace millrace::python {
namespace {

using api::Connection;
using api::ParameterServer;
using api::Trainer;

#define FIELD(name) .def_rw(#name, &T::name)

void bind_connection(nb::module_& m) {
  nb::enum_<api::WireKind>(m, "WireKind")
      .value("auto", api::WireKind::kAuto)
      .value("grpc", api::WireKind::kGrpc)
      .value("tcp", api::WireKind::kTcp);
  {
    using T = api::TlsFiles;
    nb::class_<T>(m, "TlsFiles")
        .def(nb::init<>()) FIELD(authority) FIELD(certificate) FIELD(key) FIELD(server_name);
  }
  {
    using T = api::ConnectionOptions;
    nb::class_<T>(m, "ConnectionOptions")
        .def(nb::init<>()) FIELD(job) FIELD(kind) FIELD(tls) FIELD(job_key_file)
            FIELD(insecure_listen) FIELD(reconnect_timeout) FIELD(max_message_bytes) FIELD(etcd)
                FIELD(etcd_lease) FIELD(endpoint) FIELD(advertise) FIELD(log);
  }
  nb::class_<Connection>(m, "Connection")
      .def_static("in_process", &Connection::in_process)
      .def_static("open",
                  [](const api::ConnectionOptions& options) {
                    return without_gil([&] { return value_of(Connection::open(options)); });
                  })
      .def_prop_ro("job", &Connection::job)
      .def("close", [](Connection& self) { without_gil([&] { self.close(); }); });
}

void bind_ranks(nb::module_& m) {
  using T = api::RankOptions;
  nb::class_<T>(m, "RankOptions")
      .def(nb::init<>()) FIELD(rank) FIELD(endpoints) FIELD(engine) FIELD(rendezvous)
          FIELD(job_key_file) FIELD(wait) FIELD(join);
  nb::class_<api::Ranks>(m, "Ranks")
      .def_static("open",
                  [](const api::RankOptions& options) {
                    return without_gil([&] { return value_of(api::Ranks::open(options)); });
                  })
      .def_prop_ro("rank", &api::Ranks::rank)
      .def_prop_ro("size", &api::Ranks::size)
      .def("barrier", [](const api::Ranks& self) { without_gil([&] { check(self.barrier()); }); });
}

void bind_server(nb::module_& m) {
  {
    using T = api::RoleFiles;
    nb::class_<T>(m, "RoleFiles")
        .def(nb::init<>()) FIELD(program) FIELD(startup) FIELD(slices) FIELD(params)
            FIELD(load_program);
  }
  m.def("trainer_files", &api::trainer_files);
  m.def("server_files", &api::server_files);
  {
    using T = api::ServerOptions;
    nb::class_<T>(m, "ServerOptions")
        .def(nb::init<>()) FIELD(endpoint) FIELD(threads) FIELD(seed) FIELD(start_timeout)
            FIELD(silence_timeout) FIELD(report_interval) FIELD(dc_lambda) FIELD(elastic)
                FIELD(files_root) FIELD(snapshot_root) FIELD(snapshot_every)
                    FIELD(snapshot_interval) FIELD(snapshot_durable) FIELD(log);
  }
  nb::class_<ParameterServer>(m, "ParameterServer")
      .def_static("open",
                  [](const api::RoleFiles& files, const Connection& connection,
                     const api::ServerOptions& options) {
                    return without_gil([&] {
                      return value_of(ParameterServer::open(files, connection, options));
                    });
                  })
      .def("on_ready", &ParameterServer::on_ready)
      .def("serve", [](ParameterServer& self) { without_gil([&] { check(self.serve()); }); })
      .def("stop", [](ParameterServer& self) { without_gil([&] { self.stop(); }); });
}

nb::dict facts_of(const api::TrainerStats& stats) {
  nb::dict facts;
  facts["loss_name"] = to_text(stats.loss_name);
  facts["losses"] = nb::cast(stats.losses);
  facts["steps"] = stats.steps;
  facts["examples"] = stats.examples;
  facts["seconds"] = stats.seconds;
  facts["compute_seconds"] = stats.compute_seconds;
  facts["send_seconds"] = stats.send_seconds;
  facts["wait_seconds"] = stats.wait_seconds;
  return facts;
}

// One step at a time, except for those of workers.
struct LockedTrainer {
  Trainer trainer;
  bool has_workers = false;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
};

void bind_trainer_options(nb::module_& m) {
  {
    using T = api::TrainerDevices;
    nb::class_<T>(m, "TrainerDevices")
        .def(nb::init<>()) FIELD(devices) FIELD(loss_name) FIELD(exec_strategy)
            FIELD(build_strategy) FIELD(split);
  }
  {
    using T = api::TrainerOptions;
    nb::class_<T>(m, "TrainerOptions")
        .def(nb::init<>()) FIELD(trainer) FIELD(threads) FIELD(seed) FIELD(optimize)
            FIELD(files_root) FIELD(communicator) FIELD(cpu_num) FIELD(workers) FIELD(devices)
                FIELD(deadline) FIELD(heartbeat) FIELD(log);
  }
  {
    using T = api::TrainerEnding;
    nb::class_<T>(m, "TrainerEnding")
        .def(nb::init<>()) FIELD(gather) FIELD(params) FIELD(save_programs) FIELD(model)
            FIELD(model_program) FIELD(model_feeds) FIELD(model_fetches) FIELD(replace);
  }
}

#undef FIELD

void bind_trainer(nb::module_& m) {
  nb::class_<LockedTrainer>(m, "Trainer")
      .def_static(
          "open",
          [](const api::RoleFiles& files, const Connection& connection,
             const api::TrainerOptions& options) {
            return LockedTrainer{
                without_gil([&] { return value_of(Trainer::open(files, connection, options)); }),
                options.workers > 1};
          })
      .def("next_step", [](const LockedTrainer& self) { return self.trainer.next_step(); })
      .def("step",
           [](LockedTrainer& self, const nb::dict& feeds, const std::vector<std::string>& fetches) {
             const Arrays fed = arrays_from(feeds);
             return to_dict(fetches, alone(*self.mutex, [&] {
                              return value_of(self.trainer.step(fed, fetches));
                            }));
           })
      .def("train_from_dataset",
           [](LockedTrainer& self, const EpochArguments& epoch) {
             // workers call on_print in their threads, which cannot give back a lock of this one
             std::vector<std::mutex*> locks;
             if (!self.has_workers) locks.push_back(self.mutex.get());
             return run_epoch(epoch, locks, [&](auto& dataset, const auto& options) {
               return self.trainer.train_from_dataset(dataset, options);
             });
           })
      .def("worker_step",
           [](LockedTrainer& self, int worker, int64_t number, const nb::dict& feeds,
              const std::vector<std::string>& fetches) {
             const Arrays fed = arrays_from(feeds);
             return to_dict(
                 fetches, without_gil([&] {
                   return value_of(self.trainer.worker_step(worker, number, fed, fetches));
                 }));
           })
      .def("worker_leaves",
           [](LockedTrainer& self) { without_gil([&] { check(self.trainer.worker_leaves()); }); })
      .def("must_go_back", [](const LockedTrainer& self) { return self.trainer.must_go_back(); })
      .def("go_back",
           [](LockedTrainer& self) { alone(*self.mutex, [&] { check(self.trainer.go_back()); }); })
      .def("stats", [](const LockedTrainer& self) { return facts_of(self.trainer.stats()); })
      .def("finish", [](LockedTrainer& self, const api::TrainerEnding& ending) {
        return to_dict(alone(*self.mutex, [&] { return value_of(self.trainer.finish(ending)); }));
      });
}

}  // namespace

void bind_jobs(nb::module_& m) {
  bind_connection(m);
  bind_ranks(m);
  bind_server(m);
  bind_trainer_options(m);
  bind_trainer(m);
}

}  // namespace millrace::python
