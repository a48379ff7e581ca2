#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/status.h"

/// Files of an earlier job in the output folder that a run of the new job would use by mistake:
/// roles beyond its number of trainers, servers and heter workers, and tables that it does not
/// have.
namespace millrace::jobs {

/// What the new job writes.
struct WrittenJob {
  int64_t trainers = 0;            ///< of the job, whether their programs are written or not
  int64_t servers = 0;             ///< likewise
  std::vector<std::string> roles;  ///< folders that this job writes; empty names are ignored
  bool is_fleet = false;           ///< of the fleet API: has no slices.json
  bool has_tables = false;         ///< has tables.json
  int64_t heter_workers = 0;       ///< of the job
  bool is_downpour = false;        ///< has fleet_desc.txt and opt_info.json
};

/// Removes such files. \param output  folder of the job
/// Errors: kInvalidArgument naming the first one if they may not be replaced; kIo.
Status clear_earlier_job(const std::string& output, const WrittenJob& job, Replace replace);

}  // namespace millrace::jobs
