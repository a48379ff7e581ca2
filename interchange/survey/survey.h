#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/import.h"
#include "framework/program.h"
#include "interchange/survey/program_kind.h"
#include "io/params.h"

/// Looks at program files and says of each what it is and what can be done with it.
namespace millrace::interchange {

/// Whether something can be done with a program.
enum class Answer {
  kYes,
  kNo,
  kUnknown,   ///< nothing is in the way but what is not there: parameters, other processes
  kNotMeant,  ///< not for programs of this kind: only inference models are converted
};

/// An answer with its reasons.
struct Verdict {
  Answer answer = Answer::kNotMeant;
  std::vector<std::string> reasons;  ///< one line each; for kNo and kUnknown
};

/// A format that programs can be converted to.
struct Target {
  std::string name;  ///< "onnx"
  /// Op types that have a converter; others are reported without trying.
  std::vector<std::string> op_types;
  /// Converts; the survey drops what is written. Errors are the reasons of the verdict.
  std::function<Status(const Program& program, const io::ParamValues& params)> convert;
  bool takes_training = false;  ///< forward, training and startup programs can be converted as well
};

/// How programs are looked at.
struct SurveyOptions {
  ImportOptions reading;
  int threads = 1;  ///< that read parameters
  std::vector<Target> targets;
  /// Compiles a program for this machine; null: the answer is kUnknown. Not called for programs
  /// of distributed jobs, which need their peers.
  std::function<Status(const Program& program)> compile;
};

/// What was found out about a program file.
struct SurveyedProgram {
  std::string path;
  Status unreadable;  ///< not ok: no program, or ONNX that the import refuses; the rest is not set
  ProgramKind kind = ProgramKind::kEmpty;
  std::string release;  ///< release_of()
  size_t blocks = 0;
  size_t ops = 0;                          ///< of all blocks
  std::map<std::string, size_t> op_types;  ///< number of ops by type
  std::vector<std::string> inputs;         ///< "img f32[-1,1,28,28]", in the order of the feed ops
  std::vector<std::string> outputs;
  size_t param_count = 0;    ///< persistable vars that have to be loaded; 0 for startup programs
  std::string params;        ///< file or folder of the parameters; empty: not found, or none
  Status params_status;      ///< why they cannot be read
  size_t upgrade_count = 0;  ///< differences that upgrade-program makes
  std::vector<std::string> upgrades;  ///< the first of them, one line each
  Verdict runs;                       ///< here, after upgrade-program
  std::vector<Verdict> targets;       ///< as SurveyOptions::targets
};

/// Looks at one program file.
SurveyedProgram survey_program(const std::string& path, const SurveyOptions& options);

/// Looks at all programs below a folder: those of find_programs(). Errors: those of
/// find_programs(); a file that is no program is a result.
StatusOr<std::vector<SurveyedProgram>> survey(const std::string& folder,
                                              const SurveyOptions& options);

}  // namespace millrace::interchange
