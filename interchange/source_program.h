#pragma once

#include <map>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/block.h"
#include "framework/op.h"
#include "io/params.h"
#include "ops/registry.h"

/// What every export reads from an inference program: feeds, fetches, parameters, inferred dims.
namespace millrace::interchange {

/// The ops of a type, "feed" or "fetch", in the order of their attribute `col`.
std::vector<const Op*> in_columns(const Block& block, llvm::StringRef type);

/// The fetch ops. Errors: kInvalidProgram if there are none.
StatusOr<std::vector<const Op*>> fetches_of(const Block& block);

/// The declaration of the var that a feed op sets, with the given dims if `input_dims` has its
/// name. Errors: kInvalidProgram for a var without declared dims; kInvalidArgument for another
/// number of dims than declared.
StatusOr<Var*> fed_var(Block& block, const Op& feed, const std::map<std::string, Dims>& input_dims);

/// Errors: kInvalidArgument if `input_dims` names a var that no feed op sets.
Status check_input_names(const Block& block, const std::map<std::string, Dims>& input_dims);

/// The parameters that ops read and no feed op sets, sorted by name. Persistable vars that an op
/// sets before they are read are left out. Errors: kNotFound for one without a value.
StatusOr<std::map<std::string, const Tensor*>> read_params(const Block& block,
                                                           const io::ParamValues& params);

/// Errors: kUnimplemented, with the name of the format, if the op reads a var that is no dense
/// tensor.
Status check_dense_inputs(const Op& op, llvm::StringRef format);

/// The block of a loop or branch; null for other ops.
Block* owned_block(const Op& op);

/// Shape inference of one op. Extents that it does not know stay as they were declared.
/// Errors: those of ops::infer_op().
Status infer_dims(const ops::OpRegistry& registry, Op& op);

}  // namespace millrace::interchange
