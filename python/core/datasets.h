#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/api/dataset.h>

#include "python/core/core.h"

namespace millrace::python {

/// A data set. A call while another one runs, or an epoch, is an error: it would wait for minutes.
struct LockedDataset {
  /// Takes over a data set.
  explicit LockedDataset(api::Dataset made) : dataset(std::move(made)) {}
  LockedDataset(LockedDataset&&) noexcept = default;
  LockedDataset& operator=(LockedDataset&&) = delete;
  LockedDataset(const LockedDataset&) = delete;
  LockedDataset& operator=(const LockedDataset&) = delete;
  /// Ends the data set without the GIL: threads that read Arrow streams may wait for it, and the
  /// data set waits for them.
  ~LockedDataset() {
    const GilRelease release;
    const api::Dataset ended = std::move(dataset);
  }

  api::Dataset dataset;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();  ///< of one call
};

/// Arguments of train_from_dataset() and infer_from_dataset() in Python.
struct EpochArguments {
  LockedDataset* dataset = nullptr;
  std::vector<std::string> fetches;  ///< names of vars
  nb::object on_print;               ///< None, or called with batch, examples, fetches and text
  int64_t print_period = 100;        ///< batches between calls of on_print
  int64_t first_batch = 0;           ///< batches before it are not run
  int threads = 1;                   ///< Hogwild threads
};

/// Runs an epoch without the GIL, and alone among the users of the locks, which are taken in their
/// order. They are free while on_print runs, which must be called
/// in the thread of the caller unless there are no locks. Ctrl-C is noticed every print_period
/// batches. \param run  called once, with the data set and the options \returns a millrace.Epoch
/// Errors: those of run; exceptions of on_print.
nb::object run_epoch(const EpochArguments& arguments, const std::vector<std::mutex*>& locks,
                     const std::function<StatusOr<api::EpochResult>(
                         api::Dataset& dataset, const api::EpochOptions& options)>& run);

}  // namespace millrace::python
