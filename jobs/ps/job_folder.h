#pragma once

#include <string>

#include "framework/base/status.h"

namespace millrace::jobs {

/// The folder of a transpiled job: trainer_<i>, pserver_<i> and heter_<i> with their programs, and
/// slices.json.
struct JobFolder {
  std::string path;
  int trainers = 0;
  int servers = 0;
  int heter_workers = 0;

  /// Files of a role, "trainer", "pserver" or "heter".
  [[nodiscard]] std::string program(const char* role, int index) const;
  [[nodiscard]] std::string startup(const char* role, int index) const;
  [[nodiscard]] std::string slices() const { return path + "/slices.json"; }
};

/// Counts the trainers, servers and heter workers of the folder. Errors: kNotFound if there are
/// none.
StatusOr<JobFolder> open_job_folder(const std::string& path);

}  // namespace millrace::jobs
