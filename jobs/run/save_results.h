#pragma once

#include <string>
#include <vector>

#include "executor/runtime.h"
#include "framework/base/file.h"
#include "framework/base/status.h"
#include "framework/import.h"
#include "jobs/run/session.h"

namespace millrace::jobs {

/// What a run saves of the values that its session has after the last step.
struct SaveOptions {
  std::string params;         ///< folder or file in the original's format; empty: none
  std::string model;          ///< folder for an inference model; empty: none
  std::string model_program;  ///< file of the program that it is taken from; empty: that of the run
  std::string params_filename;             ///< combined file in `model`; empty: one file per var
  std::vector<std::string> model_feeds;    ///< input vars of the model
  std::vector<std::string> model_fetches;  ///< output vars of the model
  Replace replace = Replace::kNo;          ///< replace files that exist
  ImportOptions reading;                   ///< limits for model_program
};

/// Writes the parameters, then the model. Errors: those of io::save_parameters(), of reading
/// model_program and of executor::save_inference_model().
Status save_results(const SaveOptions& options, const Session& session,
                    const executor::Runtime& runtime);

/// The persistable vars of a session as the bytes of an npz.
/// \param all_devices  those of every device, as "devD/<name>"; needs a session with several
StatusOr<std::string> persistables_npz(const Session& session, bool all_devices);

}  // namespace millrace::jobs
