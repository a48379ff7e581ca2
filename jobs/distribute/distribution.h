#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"
#include "transpiler/distribute/heter_programs.h"
#include "transpiler/distribute_config.h"
#include "transpiler/pass_manager.h"

namespace millrace::jobs {

/// A file in the folder of a job.
struct JobFile {
  std::string role;   ///< sub-folder, "trainer_0"; empty: the folder of the job
  std::string name;   ///< in that folder
  std::string bytes;  ///< its content
};

/// How a training program is distributed over the roles of a job, and what is written of it.
struct DistributionOptions {
  std::string transpiler = "distribute";  ///< distribute, geo or federated
  transpiler::DistributeTranspilerConfig config;
  transpiler::TranspileArguments arguments;  ///< trainer_id is replaced by each of `trainers`
  std::vector<int64_t> trainers;             ///< whose programs are made; empty: all of the job
  std::string sparse_tables;       ///< JSON: embeddings that become typed tables; empty: none
  transpiler::HeterWorkers heter;  ///< run ops for the trainers; no endpoints: none
  std::string io_programs;   ///< folder that save and load programs name; empty: no such programs
  bool verify = true;        ///< check the programs that are made
  bool strip_debug = false;  ///< without op_callstack
  bool as_text = false;      ///< programs in the text form
  bool report = false;       ///< report.html as well
  int threads = 1;           ///< at least 1
  /// How the passes of the first trainer run; null: without checks and instruments.
  const transpiler::PassManagerOptions* first_passes = nullptr;
};

/// A program distributed over the roles of a job. Each trainer has a plan of its own; that of the
/// first one also makes the programs of the servers. Movable. Thread-safety: const functions may
/// run concurrently.
class Distribution {
 public:
  /// Makes the files of all roles, then those of the whole job: slices.json, tables.json with typed
  /// tables, report.html. Only one program per thread and the bytes of all files are in memory.
  /// \param main, startup  must verify; they are released as soon as they are no longer needed
  /// \param registry       must outlive the result
  /// Errors: those of transpiler::Transpilation::create(); kInvalidArgument for bad settings of a
  /// table; kUnimplemented for tables with another transpiler than distribute or another mode than
  /// pserver, and for heter workers in a job without servers or a federated one; kInternal for a
  /// program that does not verify.
  static StatusOr<Distribution> make(std::unique_ptr<Program> main,
                                     std::unique_ptr<Program> startup,
                                     const ops::OpRegistry& registry,
                                     const DistributionOptions& options);
  Distribution(Distribution&&) noexcept;
  Distribution& operator=(Distribution&&) = delete;
  Distribution(const Distribution&) = delete;
  Distribution& operator=(const Distribution&) = delete;
  ~Distribution();

  /// The files, role by role; those of a role are made by one thread.
  [[nodiscard]] const std::vector<std::vector<JobFile>>& files() const;
  /// Number of trainers and servers of the job; no servers in modes without them.
  [[nodiscard]] int64_t trainers() const;
  [[nodiscard]] int64_t servers() const;
  /// Number of heter workers of the job.
  [[nodiscard]] int64_t heter_workers() const;
  /// True if there are typed tables.
  [[nodiscard]] bool has_tables() const;
  /// Endpoints of the servers, in order.
  [[nodiscard]] std::vector<std::string> endpoints() const;
  /// Remarks on what was done; more with config.print_log.
  [[nodiscard]] std::vector<std::string> remarks() const;
  /// "2 trainers x 2 pservers, 8 vars -> 12 slices, imbalance 1.02"; counts the trainers whose
  /// programs were made.
  [[nodiscard]] std::string summary() const;
  /// Which server got which slice, and why, as text or JSON. Errors: those of the cost model.
  [[nodiscard]] StatusOr<std::string> explanation(bool as_json) const;

  /// Frees the programs, which takes as long as writing them. Afterwards only files() may be
  /// called.
  void release();

 private:
  class Roles;
  Distribution();

  std::unique_ptr<Roles> roles_;
  std::vector<std::vector<JobFile>> files_;
  bool has_tables_ = false;
};

}  // namespace millrace::jobs
