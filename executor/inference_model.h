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

/// Inference models made of training programs: `__model__` and the parameters that it reads.
/// Source: spec/distributed_io.md sections 5 and 6, spec/model_format.md sections 1 and 3.
namespace millrace::executor {

/// The part of a program that computes the fetches from the feeds: gradients, optimizers and
/// everything else that they do not depend on are dropped, ops behave as in inference, and feed and
/// fetch ops stand around it.
///
/// \param program  forward or training program; stays as it is
/// \param feeds    each gets a feed op, also one that nothing depends on
/// Errors: kInvalidArgument for a name that the program does not have, and without fetches;
/// kInvalidProgram if the fetches need more than the feeds.
StatusOr<std::unique_ptr<Program>> make_inference_program(const Program& program,
                                                          const ops::OpRegistry& registry,
                                                          const std::vector<std::string>& feeds,
                                                          const std::vector<std::string>& fetches);

/// How an inference model is written.
struct SaveModelOptions {
  std::string model_filename = "__model__";  ///< in the folder
  std::string params_filename;  ///< one combined file of this name; empty: one file a var
  bool program_only = false;    ///< no parameters
  Replace replace = Replace::kNo;
};

/// Writes make_inference_program() and its persistable vars into a folder, which is made; the
/// program last, so that a folder with it is complete. The files are those of the original. Beside
/// the folder comes a manifest of them (io/params_manifest.h), which loading compares where it is
/// there; a folder that is handed on without it is loaded as it is.
/// Errors: also those of io::save_persistables().
Status save_inference_model(const std::string& folder, const Program& program,
                            const ops::OpRegistry& registry, const Scope& scope,
                            const std::vector<std::string>& feeds,
                            const std::vector<std::string>& fetches,
                            const SaveModelOptions& options = {});

/// The same as bytes: of `__model__`, and of a combined parameter file.
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
  std::vector<std::string> fetches;  ///< likewise
};

/// Reads a model folder of the original; its parameters go into a scope.
///
/// \param model_filename   its last component; empty: `__model__`
/// \param params_filename  its last component, a combined file; empty: one file a var
/// Errors: kNotFound for a folder or file that is not there; kInvalidData for a file that differs
/// from its manifest; kInvalidProgram for bytes that are no
/// program or a version that is not known; those of io::load_persistables().
StatusOr<InferenceModel> load_inference_model(const std::string& folder, Scope& scope,
                                              const std::string& model_filename = {},
                                              const std::string& params_filename = {});

/// The same from bytes. Errors: also kInvalidArgument if there are no bytes of parameters, though
/// the program has some.
StatusOr<InferenceModel> load_inference_model_bytes(std::string program, std::string_view params,
                                                    Scope& scope);

/// The same of a program that looks tables up on servers (ops prefetch and
/// distributed_lookup_table): those tables are not loaded, and the servers that the program names
/// become the given ones.
///
/// \param pserver_endpoints  in the order in which the program names its servers; empty: the
/// program
///                           stays as it is and all its persistable vars are loaded
/// Source: spec/distributed_io.md section 5. Errors: also kNotFound with the name of a folder that
/// is not there, and kInvalidArgument for another number of servers.
StatusOr<InferenceModel> load_inference_model_distributed(
    const std::string& folder, Scope& scope, const std::string& model_filename = {},
    const std::string& params_filename = {},
    const std::vector<std::string>& pserver_endpoints = {});

/// The same from bytes. Errors: kInvalidArgument also where there are no bytes of parameters at
/// all.
StatusOr<InferenceModel> load_inference_model_distributed_bytes(
    std::string program, std::optional<std::string_view> params, Scope& scope,
    const std::vector<std::string>& pserver_endpoints = {});

}  // namespace millrace::executor
