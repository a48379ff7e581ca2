#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "tools/ps/trainer_stats.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::tools {

/// A page of its own about a parameter-server job that has run: the loss over the steps (mean of
/// the trainers), examples per second, where each trainer's time went, and what each server holds.
/// \param title  of the page
std::string job_report_html(const std::string& title, const transpiler::SlicesFile& slices,
                            const std::vector<TrainerStats>& trainers);

/// The losses of all trainers, step by step their mean; as long as the shortest.
std::vector<double> mean_losses(const std::vector<TrainerStats>& trainers);

/// The same in one line: "loss 0.594 -> 0.467, 2 trainers, 153600 examples, 5123 examples/s".
std::string job_summary(const std::vector<TrainerStats>& trainers);

/// The report of a transpiled folder and what its trainers wrote down. Errors: those of reading
/// FOLDER/slices.json.
StatusOr<std::string> make_job_report(const std::string& folder,
                                      const std::vector<TrainerStats>& trainers);

}  // namespace millrace::tools
