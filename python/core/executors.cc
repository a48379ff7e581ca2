#include <optional>

#include <millrace/api/executor.h>
#include <millrace/executor/session.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"
#include "python/core/datasets.h"

namespace millrace::python {
namespace {

// A prepared program with the lock of its scope.
struct Prepared {
  api::PreparedProgram program;
  std::shared_ptr<std::mutex> mutex;
};

// An executor, whose runs share a sequence of random numbers.
struct LockedExecutor {
  api::Executor executor;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
};

struct LockedSession {
  Session session;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
};

nb::object python_value(Array& array) {
  return to_numpy(std::move(array));
}
nb::object python_value(api::Rows& rows) {
  const auto count = static_cast<int64_t>(rows.rows.size());
  return nb::module_::import_("millrace.execution")
      .attr("Rows")(to_numpy(Array::of<int64_t>({count}, rows.rows)), rows.height,
                    to_numpy(std::move(rows.values)));
}
nb::object python_value(std::vector<Array>& arrays) {
  nb::list list;
  for (Array& array : arrays) {
    if (array.dims.empty() && array.bytes.empty())
      list.append(nb::none());
    else
      list.append(to_numpy(std::move(array)));
  }
  return list;
}

nb::dict run_prepared(Prepared& self, const nb::dict& feeds,
                      const std::vector<std::string>& fetches) {
  const BorrowedArrays fed(feeds);
  auto results =
      alone(*self.mutex, [&] { return value_of(self.program.run_any(fed.views(), fetches)); });
  nb::dict values;
  for (const std::string& name : fetches.empty() ? self.program.outputs() : fetches) {
    const nb::str key = to_text(name);
    if (values.contains(key)) continue;
    values[key] = std::visit([](auto& value) { return python_value(value); }, results.at(name));
  }
  return values;
}

nb::dict run_once(LockedExecutor& self, const Handle& program, const LockedScope& scope,
                  const nb::dict& feeds, const std::vector<std::string>& fetches) {
  const Arrays fed = arrays_from(feeds);
  Arrays results = alone(*self.mutex, [&] {
    const std::scoped_lock lock(*scope.mutex);
    return value_of(self.executor.run(*program.program, scope.scope, fed, fetches));
  });
  return to_dict(std::move(results));
}

nb::object train_prepared(Prepared& self, const EpochArguments& epoch) {
  return run_epoch(epoch, {self.mutex.get()}, [&](auto& dataset, const auto& options) {
    return self.program.train_from_dataset(dataset, options);
  });
}

nb::object infer_prepared(Prepared& self, const EpochArguments& epoch) {
  return run_epoch(epoch, {self.mutex.get()}, [&](auto& dataset, const auto& options) {
    return self.program.infer_from_dataset(dataset, options);
  });
}

nb::object train_once(LockedExecutor& self, const Handle& program, const LockedScope& scope,
                      const EpochArguments& epoch) {
  return run_epoch(
      epoch, {self.mutex.get(), scope.mutex.get()}, [&](auto& dataset, const auto& options) {
        return self.executor.train_from_dataset(*program.program, scope.scope, dataset, options);
      });
}

nb::object infer_once(LockedExecutor& self, const Handle& program, const LockedScope& scope,
                      const EpochArguments& epoch) {
  return run_epoch(
      epoch, {self.mutex.get(), scope.mutex.get()}, [&](auto& dataset, const auto& options) {
        return self.executor.infer_from_dataset(*program.program, scope.scope, dataset, options);
      });
}

nb::dict run_session(LockedSession& self, const nb::dict& feeds,
                     const std::vector<std::string>& fetches) {
  const Arrays fed = arrays_from(feeds);
  Arrays results = alone(*self.mutex, [&] { return value_of(self.session.run(fed, fetches)); });
  return to_dict(fetches.empty() ? self.session.outputs() : fetches, std::move(results));
}

void bind_scope(nb::module_& m) {
  nb::class_<LockedScope>(m, "Scope")
      .def(nb::init<>())
      .def("names",
           [](const LockedScope& self) {
             nb::list names;
             for (const std::string& name : alone(*self.mutex, [&] { return self.scope.names(); }))
               names.append(to_text(name));
             return names;
           })
      .def("has",
           [](const LockedScope& self, const std::string& name) {
             return alone(*self.mutex, [&] { return self.scope.has(name); });
           })
      .def("get",
           [](const LockedScope& self, const std::string& name) {
             return to_numpy(alone(*self.mutex, [&] { return value_of(self.scope.get(name)); }));
           })
      .def("get_rows",
           [](const LockedScope& self, const std::string& name) {
             api::Rows rows =
                 alone(*self.mutex, [&] { return value_of(self.scope.get_rows(name)); });
             const auto count = static_cast<int64_t>(rows.rows.size());
             return nb::make_tuple(to_numpy(Array::of<int64_t>({count}, rows.rows)), rows.height,
                                   to_numpy(std::move(rows.values)));
           })
      .def("set",
           [](LockedScope& self, const std::string& name, nb::handle value) {
             const Array array = from_numpy(name, value);
             alone(*self.mutex, [&] { check(self.scope.set(name, array)); });
           })
      .def("set_rows",
           [](LockedScope& self, const std::string& name, const std::vector<int64_t>& rows,
              int64_t height, nb::handle values) {
             const api::Rows value{rows, height, from_numpy(name, values)};
             alone(*self.mutex, [&] { check(self.scope.set_rows(name, value)); });
           })
      .def("clear", [](LockedScope& self, const std::string& name) {
        alone(*self.mutex, [&] { self.scope.clear(name); });
      });
}

void bind_options(nb::module_& m) {
  nb::class_<api::ExecutorOptions>(m, "ExecutorOptions")
      .def(nb::init<>())
      .def_rw("threads", &api::ExecutorOptions::threads)
      .def_rw("seed", &api::ExecutorOptions::seed)
      .def_rw("optimize", &api::ExecutorOptions::optimize)
      .def_rw("device", &api::ExecutorOptions::device)
      .def_rw("bf16_products", &api::ExecutorOptions::bf16_products)
      .def_rw("tf32_products", &api::ExecutorOptions::tf32_products)
      .def_rw("inter_op", &api::ExecutorOptions::inter_op)
      .def_rw("debug_memory", &api::ExecutorOptions::debug_memory)
      .def_rw("allow_dir", &api::ExecutorOptions::allow_dir)
      .def_rw("ranks", &api::ExecutorOptions::ranks);
  nb::class_<SessionOptions>(m, "SessionOptions")
      .def(nb::init<>())
      .def_rw("threads", &SessionOptions::threads)
      .def_rw("seed", &SessionOptions::seed)
      .def_rw("optimize", &SessionOptions::optimize)
      .def_rw("device", &SessionOptions::device)
      .def_rw("bf16_products", &SessionOptions::bf16_products)
      .def_rw("tf32_products", &SessionOptions::tf32_products)
      .def_rw("debug_memory", &SessionOptions::debug_memory)
      .def_rw("allow_dir", &SessionOptions::allow_dir)
      .def_rw("devices", &SessionOptions::devices)
      .def_rw("loss", &SessionOptions::loss);
}

void bind_session(nb::module_& m) {
  nb::class_<LockedSession>(m, "Session")
      .def_static("open_model",
                  [](const std::string& folder, const SessionOptions& options) {
                    return LockedSession{without_gil(
                        [&] { return value_of(Session::open_model(folder, options)); })};
                  })
      .def_static(
          "open",
          [](const Handle& program, const Handle* startup, const SessionOptions& options) {
            return LockedSession{without_gil([&] {
              return value_of(Session::open(*program.program,
                                            startup == nullptr ? nullptr : startup->program.get(),
                                            options));
            })};
          },
          nb::arg("program"), nb::arg("startup").none(), nb::arg("options"))
      .def("inputs", [](const LockedSession& self) { return self.session.inputs(); })
      .def("outputs", [](const LockedSession& self) { return self.session.outputs(); })
      .def("run", &run_session)
      .def("get",
           [](const LockedSession& self, const std::string& name) {
             return to_numpy(alone(*self.mutex, [&] { return value_of(self.session.get(name)); }));
           })
      .def("set",
           [](LockedSession& self, const std::string& name, nb::handle value) {
             const Array array = from_numpy(name, value);
             alone(*self.mutex, [&] { check(self.session.set(name, array)); });
           })
      .def("load_params",
           [](LockedSession& self, const std::string& path) {
             std::vector<std::string> kept;
             alone(*self.mutex, [&] { check(self.session.load_params(path, &kept)); });
             return kept;
           })
      .def("save_params",
           [](const LockedSession& self, const std::string& path) {
             alone(*self.mutex, [&] { check(self.session.save_params(path)); });
           })
      .def("save_model",
           [](const LockedSession& self, const std::string& folder,
              const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
             alone(*self.mutex, [&] { check(self.session.save_model(folder, inputs, outputs)); });
           });
}

}  // namespace

void bind_executors(nb::module_& m) {
  bind_scope(m);
  bind_options(m);
  nb::class_<Prepared>(m, "PreparedProgram")
      .def("run", &run_prepared)
      .def("train_from_dataset", &train_prepared)
      .def("infer_from_dataset", &infer_prepared)
      .def("inputs", [](const Prepared& self) { return self.program.inputs(); })
      .def("outputs", [](const Prepared& self) { return self.program.outputs(); })
      .def_prop_rw(
          "random_position",
          [](const Prepared& self) {
            return alone(*self.mutex, [&] { return self.program.random_position(); });
          },
          [](Prepared& self, uint64_t position) {
            alone(*self.mutex, [&] { self.program.set_random_position(position); });
          })
      .def("plan_text", [](const Prepared& self) {
        return to_text(alone(*self.mutex, [&] { return self.program.plan_text(); }));
      });
  nb::class_<LockedExecutor>(m, "Executor")
      .def_static("create",
                  [](const api::ExecutorOptions& options) {
                    return LockedExecutor{
                        without_gil([&] { return value_of(api::Executor::create(options)); })};
                  })
      .def("prepare",
           [](const LockedExecutor& self, const Handle& program, const LockedScope& scope) {
             return Prepared{
                 alone(*scope.mutex,
                       [&] {
                         return value_of(self.executor.prepare(*program.program, scope.scope));
                       }),
                 scope.mutex};
           })
      .def("run", &run_once)
      .def("train_from_dataset", &train_once)
      .def("infer_from_dataset", &infer_once);
  bind_session(m);
}

}  // namespace millrace::python
