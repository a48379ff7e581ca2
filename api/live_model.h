#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/connection.h"
#include "api/job.h"
#include "executor/array.h"
#include "framework/base/status.h"

namespace millrace::api {

class Dataset;
struct EpochOptions;
struct EpochResult;

/// Settings of a live model.
struct LiveModelOptions {
  /// The place that the model takes among the trainers of the job, from 0; no trainer of the job
  /// may have it at the same time. A job for training and serving is written with one trainer more.
  int trainer = 0;
  int threads = 1;       ///< that a run may use, at least 1
  bool optimize = true;  ///< the program is rewritten to run faster
  /// Longest time of one call to a server.
  std::chrono::milliseconds deadline{180'000};
  std::chrono::milliseconds heartbeat{0};  ///< interval of signs of life; 0: none
  Log log = {};
};

/// Inference with the variables of running parameter servers: dense parameters as fetched last,
/// rows of remote tables as they are during each run. For asynchronous jobs, whose servers answer
/// at any time, and for servers that only serve snapshots.
///
///   MILLRACE_ASSIGN_OR_RETURN(LiveModel model, LiveModel::open(trainer_files("job", 2), {"ids"},
///                                                              {"guess"}, connection,
///                                                              {.trainer = 2}));
///   MILLRACE_ASSIGN_OR_RETURN(const Arrays results, model.run(feeds));
///   model.refresh();  // fetches the dense parameters again
///
/// Movable between calls. Thread-safety: one call at a time.
class LiveModel {
 public:
  /// Connects to the servers, takes the part of the trainer's program that computes the outputs
  /// from the inputs, and fetches the parameters.
  /// \param files    of the trainer in the job; params and load_program must be empty
  /// \param inputs   names of vars to feed  \param outputs  names of vars to return
  /// Errors: kInvalidArgument for names that the program does not have; kInvalidProgram if the
  /// outputs need more than the inputs; kUnimplemented for a synchronous job, whose servers would
  /// wait for this trainer's gradients, for geo jobs, and for jobs of the fleet API (Fleet has
  /// save_inference_model()); kDistributed for servers that cannot be reached, and for a trainer
  /// whose place is taken.
  static StatusOr<LiveModel> open(const RoleFiles& files, const std::vector<std::string>& inputs,
                                  const std::vector<std::string>& outputs,
                                  const Connection& connection,
                                  const LiveModelOptions& options = {});
  LiveModel(LiveModel&&) noexcept;
  LiveModel& operator=(LiveModel&&) noexcept;
  LiveModel(const LiveModel&) = delete;
  LiveModel& operator=(const LiveModel&) = delete;
  /// Without close(), servers wait for this trainer until they take it for lost.
  ~LiveModel();

  /// Runs the model once. \param feeds  all inputs by name; dtype and dims as declared
  /// \returns the outputs by name
  /// Errors: those of PreparedProgram::run(); kDistributed for a lookup that a server does not
  /// answer by the deadline; kInvalidArgument after close().
  StatusOr<Arrays> run(const Arrays& feeds);
  /// Runs the model once for every batch of a data set (api/dataset.h), with the variables as they
  /// are during each run. \param options  its fetches must be outputs of the model
  /// Errors: those of run(), with the number of the batch; those of the readers of the data set.
  StatusOr<EpochResult> infer_from_dataset(Dataset& dataset, const EpochOptions& options);
  /// Fetches the dense parameters from the servers. After an error the parameters may be of
  /// different times. Errors: kDistributed; kInvalidArgument after close().
  Status refresh();
  /// Leaves the job: servers no longer wait for this trainer. Errors: kDistributed.
  Status close();

 private:
  struct Parts;
  explicit LiveModel(std::unique_ptr<Parts> parts);
  PartsPtr<Parts> parts_;
};

}  // namespace millrace::api
