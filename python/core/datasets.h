#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <millrace/api/dataset.h>

#include "python/core/core.h"

namespace millrace::python {

/// A data set. A call while another one runs, or an epoch, is an error: it would wait for minutes.
struct LockedDataset {
  api::Dataset dataset;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
};

/// Arguments of train_from_dataset() and infer_from_dataset() in Python.
struct EpochArguments {
  LockedDataset* dataset = nullptr;
  std::vector<std::string> fetches;
  nb::object on_print;  ///< None, or called with batch, examples, fetches and text
  int64_t print_period = 100;
  int64_t first_batch = 0;
  int threads = 1;
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
