#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "io/params.h"
#include "ops/registry.h"

/// What all importers of models make.
namespace millrace::interchange {

/// An inference program with its parameters.
struct ImportedModel {
  std::unique_ptr<Program> program;
  io::ParamValues params;  ///< by the name of the var; exactly the persistable tensors
};

/// True for names that mean something else in a program than a var of the model.
bool is_reserved_name(llvm::StringRef name);

/// Declares the var `feed` or `fetch`.
void declare_holder(Block& block, llvm::StringRef name);
/// Appends a feed or fetch op. \param column  its position among the inputs or outputs
void append_link(Block& block, const char* type, const std::string& from, const std::string& to,
                 int32_t column);
/// Gives a fetched value the name of the output: a value that an op computes under another name is
/// copied. Errors: kUnimplemented for an output that is an input or a constant of that name.
/// \param format  for the message: "ONNX"
Status name_output(Block& block, const std::string& name, const std::string& var,
                   const char* format);
/// Removes ops whose results nothing reads, and vars that no op mentions, and checks the program.
/// Errors: those of the verifier.
StatusOr<ImportedModel> finish_import(const ops::OpRegistry& registry,
                                      std::unique_ptr<Program> program, io::ParamValues params);
/// Sets an attribute of an op; numbers are converted to the kind that the schema states. Errors:
/// kInternal for an attribute that the op lacks; kUnimplemented for a number that it cannot hold.
Status set_fitting(const ops::OpRegistry& registry, Op& op, const char* name,
                   const AttrValue& value, const char* format);

}  // namespace millrace::interchange
