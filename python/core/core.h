#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/api/program.h>
#include <millrace/api/scope.h>
#include <millrace/executor/array.h>
#include <millrace/framework/base/status.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <unistd.h>

/// The extension module millrace._core. One file binds one or two headers of the library; classes
/// keep the names of C++, and the package turns them into what its users see.
namespace millrace::python {

namespace nb = nanobind;

/// Carries an error to the translator, which raises it as a subclass of millrace.Error.
struct StatusError {
  Status status;
};

/// Throws an error as StatusError. It may be called without the GIL.
inline void check(Status status) {
  if (!status.ok()) throw StatusError{std::move(status)};
}
/// The value of a result. Errors: as above.
template <typename T>
T value_of(StatusOr<T> result) {
  check(result.status());
  return std::move(result).value();
}

/// The Python exception that belongs to an error.
nb::object exception_of(const Status& status);

/// Text of files and names, which need not be UTF-8: other bytes are surrogates, as in os.fsdecode.
nb::str to_text(const std::string& bytes);
/// Inverse of to_text(); bytes stay as they are. Errors: TypeError naming what.
std::string from_text(nb::handle text, const char* what);

/// A numpy array that takes over the memory of an array; with LoD a millrace.LodArray. bfloat16
/// needs ml-dtypes. Errors: UnimplementedError without it.
nb::object to_numpy(Array array);
/// An array from anything that numpy or DLPack understands, copied; LoD is that of its `lod`.
/// Errors: TypeError naming the array.
Array from_numpy(const std::string& name, nb::handle value);
/// The same for a dict of arrays.
Arrays arrays_from(const nb::dict& values);
/// Arrays as they are in Python's memory, for one call.
class BorrowedArrays {
 public:
  /// Errors: as from_numpy().
  explicit BorrowedArrays(const nb::dict& values);
  [[nodiscard]] const ArrayViews& views() const { return views_; }
  /// What a view refers to.
  struct Kept {
    nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> array;  ///< the caller's, or a copy
    DType dtype = DType::kFloat32;
    std::vector<int64_t> dims;
    std::vector<std::vector<int64_t>> lod;
  };

 private:
  std::deque<Kept> kept_;
  ArrayViews views_;
};
/// A dict in the order of the names.
nb::dict to_dict(const std::vector<std::string>& names, Arrays arrays);
/// A dict in the order of the map.
nb::dict to_dict(Arrays arrays);

/// A scope, and the lock of everything that reads or writes its variables: Python threads run
/// without the GIL while they compute. Copies share both.
struct LockedScope {
  api::Scope scope;
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
};

/// A program that does not change.
struct Handle {
  api::ProgramPtr program;
};

/// Releases the GIL for a block, like nb::gil_scoped_release.
///
/// CPython before 3.14 ends a daemon thread that asks for the GIL after the interpreter has ended:
/// it unwinds the stack of the thread, and the first destructor on it calls std::terminate(). Here
/// such a thread sleeps until the process has exited, as in CPython 3.14.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() {
    sleep_if_unwound([&] { PyEval_RestoreThread(state_); });
  }

  /// Calls a function of CPython that may end the thread. It does not return in that case.
  template <typename F>
  static void sleep_if_unwound(F&& call) noexcept {
    try {
      call();
    } catch (...) {
      while (true) ::pause();
    }
  }

 private:
  PyThreadState* state_;  ///< of this thread, while it does not have the GIL
};

/// Takes the GIL for a block, on any thread, also on one that CPython does not know. A thread that
/// may not have it because the interpreter ends sleeps as above.
class GilAcquire {
 public:
  GilAcquire() {
    GilRelease::sleep_if_unwound([&] { state_ = PyGILState_Ensure(); });
  }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;
  ~GilAcquire() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_{};  ///< whether this thread had the GIL before
};

/// Runs a function without the GIL.
template <typename F>
auto without_gil(F&& call) {
  const GilRelease release;
  return std::forward<F>(call)();
}
/// Runs a function without the GIL, and alone among those with the same mutex.
template <typename F>
auto alone(std::mutex& mutex, F&& call) {
  const GilRelease release;
  const std::scoped_lock lock(mutex);
  return std::forward<F>(call)();
}

/// What each source adds to the module. Docstrings are in the package.
void bind_programs(nb::module_& m);    ///< files, verify, compare, passes, views
void bind_editor(nb::module_& m);      ///< blocks, ops and vars
void bind_executors(nb::module_& m);   ///< scopes, executors, sessions
void bind_files(nb::module_& m);       ///< variables and inference models
void bind_datasets(nb::module_& m);    ///< files of examples
void bind_training(nb::module_& m);    ///< minimize() and its options
void bind_transpiler(nb::module_& m);  ///< DistributeTranspiler, folders of jobs
void bind_parallel(nb::module_& m);    ///< several devices
void bind_jobs(nb::module_& m);        ///< connections, servers, trainers
void bind_serving(nb::module_& m);     ///< live models, communicators, snapshots
void bind_fleet(nb::module_& m);       ///< processes of fleet jobs

}  // namespace millrace::python
