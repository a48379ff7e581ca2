#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/scope.h"
#include "framework/base/status.h"

namespace millrace {
class Program;
}

/// Saving and loading the variables of a program in the files of the original, and inference
/// models. All functions read or write the scope, so no run of it may be in progress; otherwise
/// they are pure and may be called from any thread.
namespace millrace::api {

/// How files of variables are written.
struct SaveVarsOptions {
  std::string filename = {};  ///< one combined file of this name; empty: one file per var
  bool replace = false;       ///< replace files that exist; otherwise they are an error (kUsage)
  bool sync = true;           ///< wait until the bytes are on the disk
  /// Write a manifest with sizes and checksums next to the files, which loading then checks.
  bool manifest = true;
};

/// Writes the persistable vars of all blocks (dense tensors and rows of matrices; holders of feeds
/// and the like are left out) to a folder, which is created if missing.
/// \returns their number; nothing is written if it is 0
/// Errors: kNotFound with the var if it has no value; kUsage; kInvalidData for a name that leads
/// out of the folder; kIo; kResource.
StatusOr<int64_t> save_persistables(const Program& program, const Scope& scope,
                                    const std::string& folder, const SaveVarsOptions& options = {});
/// The same for the vars with the given names. Errors: also kNotFound for a name that the program
/// does not declare as a var that has a file.
StatusOr<int64_t> save_vars(const Program& program, const Scope& scope,
                            const std::vector<std::string>& names, const std::string& folder,
                            const SaveVarsOptions& options = {});

/// Reads the persistable vars from a folder into the scope. After an error the scope is unchanged.
/// \param filename  combined file in the folder; empty: one file per var
/// Errors: kNotFound with var and path; kInvalidData for another dtype or other dims than the
/// program declares, for files that are cut off, and for files that differ from their manifest.
Status load_persistables(const Program& program, const Scope& scope, const std::string& folder,
                         const std::string& filename = {});
/// The same for the vars with the given names. Errors: as save_vars() and load_persistables().
Status load_vars(const Program& program, const Scope& scope, const std::vector<std::string>& names,
                 const std::string& folder, const std::string& filename = {});

/// The bytes of the combined file that save_persistables() would write. Errors: as there.
StatusOr<std::string> persistables_to_memory(const Program& program, const Scope& scope);
/// Reads such bytes into the scope. Errors: as load_persistables().
Status persistables_from_memory(const Program& program, const Scope& scope, std::string_view bytes);

/// How an inference model is written.
struct SaveModelOptions {
  std::string model_filename = "__model__";  ///< in the folder
  std::string params_filename = {};          ///< one combined file; empty: one file per var
  bool program_only = false;                 ///< do not write parameters
  bool replace = false;                      ///< replace files that exist
};

/// Writes the part of a program that computes the fetches from the feeds, and the parameters that
/// it reads, as an inference model folder of the original; the folder is created.
/// Errors: kInvalidArgument for a name that the program does not have, and without fetches;
/// kInvalidProgram if the fetches need more than the feeds; those of save_persistables().
Status save_inference_model(const Program& program, const Scope& scope, const std::string& folder,
                            const std::vector<std::string>& feeds,
                            const std::vector<std::string>& fetches,
                            const SaveModelOptions& options = {});

/// A program for inference whose parameters are in a scope.
struct InferenceModel {
  std::shared_ptr<const Program> program;
  std::vector<std::string> feeds;    ///< in order of their columns
  std::vector<std::string> fetches;  ///< in order of their columns
};

/// Reads a model folder; its parameters go into the scope.
/// \param model_filename   empty: `__model__`
/// \param params_filename  combined file in the folder; empty: one file per var
/// Errors: kNotFound for a folder or file that does not exist; kInvalidProgram for bytes that are
/// not a program; those of load_persistables().
StatusOr<InferenceModel> load_inference_model(const std::string& folder, const Scope& scope,
                                              const std::string& model_filename = {},
                                              const std::string& params_filename = {});

}  // namespace millrace::api
