#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "jobs/stats/trainer_stats.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {

/// The servers of a job.
struct JobServers {
  std::vector<transpiler::ServerBytes> servers;
  std::string unit;  ///< what ServerBytes::slices counts: "slices", or "tables" of fleet jobs
};

/// Reads the servers from a transpiled folder. Errors: those of reading FOLDER/slices.json, for
/// fleet jobs those of fleet_servers().
StatusOr<JobServers> servers_of(const std::string& folder);

/// A self-contained HTML page about a finished parameter-server job: the loss over the steps (mean
/// of the trainers), examples per second, the time of each trainer by activity, and the memory of
/// each server.
/// \param title  of the page
std::string job_report_html(const std::string& title, const JobServers& job,
                            const std::vector<TrainerStats>& trainers);

/// The mean over the trainers of the loss of each step; as long as the shortest list of losses.
std::vector<double> mean_losses(const std::vector<TrainerStats>& trainers);

/// A summary in one line: "loss 0.594 -> 0.467, 2 trainers, 153600 examples, 5123 examples/s".
std::string job_summary(const std::vector<TrainerStats>& trainers);

/// Makes the report from a transpiled folder and the statistics of its trainers. Errors: those of
/// servers_of(); kInvalidData for two statistics of one trainer.
StatusOr<std::string> make_job_report(const std::string& folder,
                                      const std::vector<TrainerStats>& trainers);

}  // namespace millrace::jobs
