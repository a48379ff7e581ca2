#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/runtime.h"
#include "framework/base/status.h"
#include "jobs/data/feed_options.h"
#include "jobs/run/session.h"

namespace millrace::jobs {

/// One program of a list of programs that are run one after another, each with its own values.
struct BatchCase {
  std::string program;    ///< file; empty: that of model_dir
  std::string model_dir;  ///< inference model folder; may be empty
  std::string startup;    ///< file of the startup program; may be empty
  std::string params;     ///< as SessionOptions::params
  std::string feed;       ///< npz with the feeds; may be empty
  std::string output;     ///< npz that receives the fetched values, replaced if it exists; or empty
  std::vector<std::string> fetches;  ///< empty: the fetch targets of the program
};

/// Reads a case from a JSON object with "program", "feed", "fetch", "output", "params", "startup"
/// and "model_dir". Errors: kInvalidData.
StatusOr<BatchCase> parse_batch_case(const std::string& line);

/// What a case did.
struct BatchResult {
  int64_t ops_on_cpu = 0;  ///< of a program that ran on a GPU: ops without a GPU kernel
};

/// Runs one step of a case and writes the fetched values.
/// \param session  options that all cases share; program, values and fetches are ignored
/// \param feed     likewise
/// \param result   receives what is known, also if writing fails
/// Errors: those of open_session(), of reading feeds, of the executor and of writing.
Status run_batch_case(const BatchCase& one, SessionOptions session, FeedOptions feed,
                      const std::shared_ptr<const executor::Runtime>& runtime, BatchResult& result);

}  // namespace millrace::jobs
