#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ops/registry.h"

/// Inference models extracted from training programs: `__model__` and the parameters that it reads.
/// Source: spec/distributed_io.md sections 5 and 6, spec/model_format.md sections 1 and 3.
namespace millrace::executor {

/// The part of a program that computes the fetches from the feeds: gradients, optimizers and
/// everything else that the fetches do not depend on are dropped, ops get their inference
/// behaviour, and feed and fetch ops are added.
///
/// \param program  forward or training program; not changed
/// \param feeds    each gets a feed op, even if nothing depends on it
/// Errors: kInvalidArgument for a name that the program does not have, if there are no fetches, and
/// if the fetches need more than the feeds.
StatusOr<std::unique_ptr<Program>> make_inference_program(const Program& program,
                                                          const ops::OpRegistry& registry,
                                                          const std::vector<std::string>& feeds,
                                                          const std::vector<std::string>& fetches);

/// Options for writing an inference model.
struct SaveModelOptions {
  std::string model_filename = "__model__";  ///< in the folder
  std::string params_filename;  ///< one combined file of this name; empty: one file per var
  bool program_only = false;    ///< do not write parameters
  Replace replace = Replace::kNo;
};

/// Writes make_inference_program() and its persistable vars into a folder, which is created. The
/// program is written last, so a folder that has it is complete. The files are those of the
/// original. A manifest of them (io/params_manifest.h) is written next to the folder; loading
/// checks it if it exists, and works without it.
/// Errors: also those of io::save_persistables().
Status save_inference_model(const std::string& folder, const Program& program,
                            const ops::OpRegistry& registry, const Scope& scope,
                            const std::vector<std::string>& feeds,
                            const std::vector<std::string>& fetches,
                            const SaveModelOptions& options = {});

/// The same as bytes: the contents of `__model__`, and of a combined parameter file.
struct ModelBytes {
  std::string program;
  std::string params;
};
StatusOr<ModelBytes> inference_model_bytes(const Program& program, const ops::OpRegistry& registry,
                                           const Scope& scope,
                                           const std::vector<std::string>& feeds,
                                           const std::vector<std::string>& fetches);

/// An inference model whose parameters are in a scope.
struct InferenceModel {
  std::unique_ptr<Program> program;
  std::vector<std::string> feeds;    ///< in order of their columns
  std::vector<std::string> fetches;  ///< in order of their columns
};

/// Reads a model folder of the original; its parameters go into a scope.
///
/// \param model_filename   file name in the folder; empty: `__model__`
/// \param params_filename  file name of a combined file in the folder; empty: one file per var
/// Errors: kNotFound for a folder or file that does not exist; kInvalidData for a file that differs
/// from its manifest; kInvalidProgram for bytes that are not a program or have an unknown version;
/// those of io::load_persistables().
StatusOr<InferenceModel> load_inference_model(const std::string& folder, Scope& scope,
                                              const std::string& model_filename = {},
                                              const std::string& params_filename = {});

/// The same from bytes. Errors: also kInvalidArgument if the program has parameters but no
/// parameter bytes are given.
StatusOr<InferenceModel> load_inference_model_bytes(std::string program, std::string_view params,
                                                    Scope& scope);

/// Loads the model of a program that looks tables up on servers (ops prefetch and
/// distributed_lookup_table): those tables are not loaded, and the server endpoints in the program
/// are replaced by the given ones.
///
/// \param pserver_endpoints  in the order in which the program lists its servers; empty: the
///                           program is not changed and all its persistable vars are loaded
/// Source: spec/distributed_io.md section 5. Errors: also kNotFound with the name of a folder that
/// does not exist, and kInvalidArgument for another number of servers.
StatusOr<InferenceModel> load_inference_model_distributed(
    const std::string& folder, Scope& scope, const std::string& model_filename = {},
    const std::string& params_filename = {},
    const std::vector<std::string>& pserver_endpoints = {});

/// The same from bytes. Errors: also kInvalidArgument if no parameter bytes are given.
StatusOr<InferenceModel> load_inference_model_distributed_bytes(
    std::string program, std::optional<std::string_view> params, Scope& scope,
    const std::vector<std::string>& pserver_endpoints = {});

}  // namespace millrace::executor
