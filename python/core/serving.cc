#include <millrace/api/checkpoints.h>
#include <millrace/api/communicator.h>
#include <millrace/api/live_model.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"
#include "python/core/datasets.h"

namespace millrace::python {
namespace {

using api::Communicator;
using api::Connection;
using api::LiveModel;
using api::ServerCheckpoint;

#define FIELD(name) .def_rw(#name, &T::name)

struct LockedLiveModel {
  LiveModel model;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
};

void bind_live_model(nb::module_& m) {
  {
    using T = api::LiveModelOptions;
    nb::class_<T>(m, "LiveModelOptions")
        .def(nb::init<>()) FIELD(trainer) FIELD(threads) FIELD(optimize) FIELD(deadline)
            FIELD(heartbeat) FIELD(log);
  }
  nb::class_<LockedLiveModel>(m, "LiveModel")
      .def_static("open",
                  [](const api::RoleFiles& files, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs, const Connection& connection,
                     const api::LiveModelOptions& options) {
                    return LockedLiveModel{without_gil([&] {
                      return value_of(LiveModel::open(files, inputs, outputs, connection, options));
                    })};
                  })
      .def("run",
           [](LockedLiveModel& self, const nb::dict& feeds) {
             const Arrays fed = arrays_from(feeds);
             return to_dict(alone(*self.mutex, [&] { return value_of(self.model.run(fed)); }));
           })
      .def("infer_from_dataset",
           [](LockedLiveModel& self, const EpochArguments& epoch) {
             return run_epoch(epoch, {self.mutex.get()}, [&](auto& dataset, const auto& options) {
               return self.model.infer_from_dataset(dataset, options);
             });
           })
      .def("refresh",
           [](LockedLiveModel& self) { alone(*self.mutex, [&] { check(self.model.refresh()); }); })
      .def("close",
           [](LockedLiveModel& self) { alone(*self.mutex, [&] { check(self.model.close()); }); });
}

void bind_communicator(nb::module_& m) {
  {
    using T = api::CommunicatorOptions;
    nb::class_<T>(m, "CommunicatorOptions")
        .def(nb::init<>()) FIELD(trainer) FIELD(settings) FIELD(cpu_num) FIELD(deadline)
            FIELD(heartbeat) FIELD(log);
  }
  nb::class_<Communicator>(m, "Communicator")
      .def_static("open",
                  [](const Handle& program, const Connection& connection,
                     const api::CommunicatorOptions& options) {
                    return without_gil([&] {
                      return value_of(Communicator::open(*program.program, connection, options));
                    });
                  })
      .def("sent_vars", &Communicator::sent_vars)
      .def("received_vars", &Communicator::received_vars)
      .def("remarks", &Communicator::remarks)
      .def("start", [](Communicator& self) { without_gil([&] { check(self.start()); }); })
      .def("stop", [](Communicator& self) { without_gil([&] { check(self.stop()); }); })
      .def("is_running", &Communicator::is_running)
      .def("send",
           [](Communicator& self, const std::string& var, nb::handle value) {
             const Array array = from_numpy(var, value);
             without_gil([&] { check(self.send(var, array)); });
           })
      .def("send_rows",
           [](Communicator& self, const std::string& var, const std::vector<int64_t>& rows,
              int64_t height, nb::handle values) {
             const api::Rows value{rows, height, from_numpy(var, values)};
             without_gil([&] { check(self.send_rows(var, value)); });
           })
      .def("barrier", [](Communicator& self) { without_gil([&] { check(self.barrier()); }); })
      .def("leave", [](Communicator& self) { without_gil([&] { check(self.leave()); }); })
      .def("recv",
           [](Communicator& self, const LockedScope& scope) {
             alone(*scope.mutex, [&] { check(self.recv(scope.scope)); });
           })
      .def("finish_step",
           [](Communicator& self, const LockedScope& scope) {
             alone(*scope.mutex, [&] { check(self.finish_step(scope.scope)); });
           })
      .def("counts",
           [](const Communicator& self) {
             const Communicator::Counts counts = self.counts();
             nb::dict facts;
             facts["sends"] = counts.sends;
             facts["merged"] = counts.merged;
             facts["receives"] = counts.receives;
             return facts;
           })
      .def("close", [](Communicator& self) { without_gil([&] { check(self.close()); }); });
}

void bind_checkpoint(nb::module_& m) {
  {
    using T = api::ReshardOptions;
    nb::class_<T>(m, "ReshardOptions")
        .def(nb::init<>()) FIELD(max_bytes) FIELD(replace) FIELD(sync);
  }
  nb::class_<ServerCheckpoint>(m, "ServerCheckpoint")
      .def_static("open",
                  [](const std::string& root, const std::string& slices, int threads) {
                    return without_gil(
                        [&] { return value_of(ServerCheckpoint::open(root, slices, threads)); });
                  })
      .def("step", &ServerCheckpoint::step)
      .def("servers", &ServerCheckpoint::servers)
      .def("names", &ServerCheckpoint::names)
      .def("get",
           [](const ServerCheckpoint& self, const std::string& name) {
             return to_numpy(without_gil([&] { return value_of(self.get(name)); }));
           })
      .def("reshard", [](const ServerCheckpoint& self, const std::string& to_slices,
                         const std::string& output, const api::ReshardOptions& options) {
        without_gil([&] { check(self.reshard(to_slices, output, options)); });
      });
}

#undef FIELD

}  // namespace

void bind_serving(nb::module_& m) {
  bind_live_model(m);
  bind_communicator(m);
  bind_checkpoint(m);
}

}  // namespace millrace::python
