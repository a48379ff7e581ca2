#include "jobs/run/step_records.h"

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

namespace millrace::jobs {

StepRecords::StepRecords(const RecordOptions& options, int devices)
    : options_(options), devices_(devices), timeline_(devices) {}

StatusOr<std::unique_ptr<StepRecords>> StepRecords::start(const RecordOptions& options,
                                                          Session& session) {
  if (options.check_nan && (options.profile || options.op_table))
    return Status(StatusCode::kUsage, "expected only one of options.check_nan and options.profile");
  if (options.op_table && session.parallel != nullptr) {
    return Status(StatusCode::kUsage,
                  "options.op_table: supported for one device only; expected options.profile for "
                  "several");
  }
  const int devices = session.parallel == nullptr ? 0 : session.parallel->device_count();
  std::unique_ptr<StepRecords> records(new StepRecords(options, devices));
  for (int d = 0; d < devices; ++d) {
    if (options.check_nan) session.parallel->observe(d, &records->nan_check_);
    if (options.profile) session.parallel->observe(d, &records->timeline_.lane(d));
  }
  if (session.prepared != nullptr) {
    if (options.check_nan) session.prepared->observe(&records->nan_check_);
    if (options.profile || options.op_table) session.prepared->observe(&records->trace_);
  }
  return records;
}

bool StepRecords::observes() const {
  return options_.check_nan || options_.profile || options_.op_table;
}

std::string StepRecords::chrome_json() const {
  return devices_ > 0 ? timeline_.chrome_json() : trace_.chrome_json();
}

std::vector<std::string> StepRecords::lines() const {
  std::vector<std::string> lines;
  if (!options_.profile && !options_.op_table) return lines;
  for (int d = 0; d < devices_; ++d) {
    const executor::Timeline::Load load = timeline_.load(d);
    lines.push_back(fmt::format("device {}: {:.3f} ms in ops, {:.3f} ms in exchanges", d,
                                load.total_ms, load.exchange_ms));
  }
  if (devices_ > 0) return lines;
  const std::string table = trace_.op_table();
  llvm::SmallVector<llvm::StringRef, 32> rows;
  llvm::StringRef(table).split(rows, '\n', -1, false);
  for (const llvm::StringRef row : rows) lines.push_back(row.str());
  return lines;
}

}  // namespace millrace::jobs
