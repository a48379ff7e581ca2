#include "python/core/datasets.h"

#include <exception>
#include <functional>
#include <utility>

#include <millrace/api/connection.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace millrace::python {
namespace {

using api::Dataset;

// Runs a call of a data set without the GIL.
template <typename F>
auto of_dataset(LockedDataset& self, F&& call) {
  const GilRelease release;
  const std::unique_lock lock(*self.mutex, std::try_to_lock);
  if (!lock.owns_lock())
    check(Status(StatusCode::kInvalidArgument, "another call of the data set is running"));
  return call();
}

// Locks that are given back during a callback.
class Locks {
 public:
  explicit Locks(const std::vector<std::mutex*>& mutexes) : mutexes_(mutexes) { lock(); }
  Locks(const Locks&) = delete;
  Locks& operator=(const Locks&) = delete;
  ~Locks() { unlock(); }
  void lock() const {
    for (std::mutex* const mutex : mutexes_) mutex->lock();
  }
  void unlock() const {
    for (auto it = mutexes_.rbegin(); it != mutexes_.rend(); ++it) (*it)->unlock();
  }

 private:
  const std::vector<std::mutex*>& mutexes_;
};

// Calls on_print; its exception is kept for the thread that began the epoch.
Status print_step(const nb::object& on_print, const std::vector<std::string>& fetches,
                  const api::EpochStep& step, std::exception_ptr& raised) {
  const GilAcquire acquire;
  try {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!on_print.is_none())
      on_print(step.batch, step.examples, to_dict(fetches, step.fetches), to_text(step.text));
    return Ok();
  } catch (...) {
    raised = std::current_exception();
    return {StatusCode::kUsage, "a callback has raised an exception"};
  }
}

// A Python object that any thread may drop.
std::shared_ptr<nb::object> shared(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* held) {
            const GilAcquire acquire;
            delete held;
          }};
}

// The stream in the capsule that the method __arrow_c_stream__ of an object returns. It is moved
// out of the capsule, which is kept that long.
StatusOr<std::shared_ptr<ArrowArrayStream>> export_stream(const nb::object& from) {
  const GilAcquire acquire;
  try {
    nb::object capsule = from.attr("__arrow_c_stream__")();
    void* const stream = PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream");
    if (stream == nullptr) throw nb::python_error();
    return std::shared_ptr<ArrowArrayStream>(shared(std::move(capsule)),
                                             static_cast<ArrowArrayStream*>(stream));
  } catch (const nb::python_error& error) {
    return Status(StatusCode::kInvalidData, error.what());
  }
}

// Sources from pairs of a name and an object with __arrow_c_stream__.
std::vector<api::ArrowSource> sources_from(const nb::list& pairs) {
  std::vector<api::ArrowSource> sources;
  for (const nb::handle pair : pairs) {
    sources.push_back({from_text(pair[0], "the name of an Arrow stream"),
                       [from = shared(nb::object(pair[1]))] { return export_stream(*from); }});
  }
  return sources;
}

nb::object epoch_to_python(api::EpochResult result, const std::vector<std::string>& fetches) {
  nb::dict means;
  for (const std::string& name : fetches) {
    const auto found = result.means.find(name);
    if (found != result.means.end()) means[to_text(name)] = found->second;
  }
  return nb::module_::import_("millrace.datasets")
      .attr("Epoch")(result.batches, result.examples, result.left_out, result.seconds,
                     result.wait_seconds, means,
                     to_dict(result.batches > 0 ? fetches : std::vector<std::string>(),
                             std::move(result.last)));
}

}  // namespace

nb::object run_epoch(
    const EpochArguments& arguments, const std::vector<std::mutex*>& locks,
    const std::function<StatusOr<api::EpochResult>(api::Dataset&, const api::EpochOptions&)>& run) {
  std::exception_ptr raised;
  api::EpochOptions options;
  options.fetches = arguments.fetches;
  options.print_period = arguments.print_period;
  options.first_batch = arguments.first_batch;
  options.threads = arguments.threads;
  StatusOr<api::EpochResult> result = of_dataset(*arguments.dataset, [&] {
    const Locks held(locks);
    options.on_print = [&](const api::EpochStep& step) {
      held.unlock();
      Status status = print_step(arguments.on_print, arguments.fetches, step, raised);
      held.lock();
      return status;
    };
    return run(arguments.dataset->dataset, options);
  });
  if (raised) std::rethrow_exception(raised);
  return epoch_to_python(value_of(std::move(result)), arguments.fetches);
}

void bind_datasets(nb::module_& m) {
  nb::enum_<api::DatasetDivide>(m, "DatasetDivide")
      .value("none", api::DatasetDivide::kNone)
      .value("files", api::DatasetDivide::kFiles)
      .value("examples", api::DatasetDivide::kExamples);
  using api::DatasetOptions;
  nb::class_<DatasetOptions>(m, "DatasetOptions")
      .def(nb::init<>())
      .def_rw("files", &DatasetOptions::files)
      .def_prop_rw(
          "arrow",
          [](const DatasetOptions& self) {
            nb::list names;
            for (const api::ArrowSource& source : self.arrow) names.append(to_text(source.name));
            return names;
          },
          [](DatasetOptions& self, const nb::list& pairs) { self.arrow = sources_from(pairs); })
      .def_rw("use_vars", &DatasetOptions::use_vars)
      .def_rw("slots", &DatasetOptions::slots)
      .def_rw("slots_text", &DatasetOptions::slots_text)
      .def_rw("pipe_command", &DatasetOptions::pipe_command)
      .def_rw("allow_pipe_command", &DatasetOptions::allow_pipe_command)
      .def_rw("in_memory", &DatasetOptions::in_memory)
      .def_rw("batch_size", &DatasetOptions::batch_size)
      .def_rw("reader_threads", &DatasetOptions::reader_threads)
      .def_rw("drop_last", &DatasetOptions::drop_last)
      .def_rw("seed", &DatasetOptions::seed)
      .def_rw("divide", &DatasetOptions::divide)
      .def_rw("reshuffle_epochs", &DatasetOptions::reshuffle_epochs)
      .def_rw("trainer", &DatasetOptions::trainer)
      .def_rw("trainers", &DatasetOptions::trainers);
  nb::class_<EpochArguments>(m, "EpochArguments")
      .def(
          "__init__",
          [](EpochArguments* self, LockedDataset& dataset, std::vector<std::string> fetches,
             nb::object on_print, int64_t print_period, int64_t first_batch, int threads) {
            new (self) EpochArguments{&dataset,     std::move(fetches), std::move(on_print),
                                      print_period, first_batch,        threads};
          },
          nb::keep_alive<1, 2>(), nb::arg("dataset"), nb::arg("fetches"),
          nb::arg("on_print").none(), nb::arg("print_period"), nb::arg("first_batch"),
          nb::arg("threads"));
  nb::class_<LockedDataset>(m, "Dataset")
      .def_static("create",
                  [](const Handle& program, const DatasetOptions& options) {
                    return LockedDataset(without_gil(
                        [&] { return value_of(Dataset::create(*program.program, options)); }));
                  })
      .def("set_files",
           [](LockedDataset& self, const std::vector<std::string>& files) {
             of_dataset(self, [&] { check(self.dataset.set_files(files)); });
           })
      .def("set_arrow",
           [](LockedDataset& self, const nb::list& pairs) {
             const std::vector<api::ArrowSource> sources = sources_from(pairs);
             of_dataset(self, [&] { check(self.dataset.set_arrow(sources)); });
           })
      .def("fed_vars",
           [](LockedDataset& self) {
             nb::list names;
             for (const std::string& name :
                  of_dataset(self, [&] { return self.dataset.fed_vars(); }))
               names.append(to_text(name));
             return names;
           })
      .def("load_into_memory",
           [](LockedDataset& self) {
             of_dataset(self, [&] { check(self.dataset.load_into_memory()); });
           })
      .def("preload",
           [](LockedDataset& self) { of_dataset(self, [&] { check(self.dataset.preload()); }); })
      .def("wait_preload",
           [](LockedDataset& self) {
             of_dataset(self, [&] { check(self.dataset.wait_preload()); });
           })
      .def("release_memory",
           [](LockedDataset& self) {
             of_dataset(self, [&] { check(self.dataset.release_memory()); });
           })
      .def("examples_in_memory",
           [](LockedDataset& self) {
             return of_dataset(self, [&] { return self.dataset.examples_in_memory(); });
           })
      .def("local_shuffle",
           [](LockedDataset& self) {
             of_dataset(self, [&] { check(self.dataset.local_shuffle()); });
           })
      .def("exchange",
           [](LockedDataset& self, const api::Ranks& ranks) {
             of_dataset(self, [&] { check(self.dataset.global_shuffle(ranks)); });
           })
      .def("global_shuffle", [](LockedDataset& self, int trainers) {
        of_dataset(self, [&] { check(self.dataset.global_shuffle(trainers)); });
      });
}

}  // namespace millrace::python
