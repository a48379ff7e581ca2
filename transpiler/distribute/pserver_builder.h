#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/DenseMap.h>

#include "framework/program.h"
#include "transpiler/distribute/job.h"
#include "transpiler/pass.h"

namespace millrace::transpiler {

/// State shared by the functions that build the program of one server.
struct PserverBuilder {
  PserverBuilder(const Program& origin_program, const PassContext& pass_context,
                 const DistributionJob& the_job, size_t server_index);

  const Program& origin;
  const PassContext& context;
  const DistributionJob& job;
  size_t server;
  std::unique_ptr<Program> program;

  llvm::DenseMap<uint32_t, uint32_t> slice_of_pair;  ///< slices that this server holds
  std::vector<std::string> received;                 ///< X of listen_and_serv
  std::vector<int32_t> optimize_blocks;
  std::vector<std::string> grad_to_block_id;
  std::vector<std::string> sparse_grad_to_param;
  std::vector<std::string> prefetch_to_block_id;
  int32_t lr_block = -1;
  int32_t checkpoint_block = -1;
  int64_t next_dc_output = 0;

  [[nodiscard]] Block& root() const { return program->root(); }
  /// The slice of the pair that this server holds; null if it holds none.
  [[nodiscard]] const PlacedSlice* owned(uint32_t pair) const;
  /// The name that a var of the trainer has on this server: params and gradients map to the slices
  /// held here.
  [[nodiscard]] std::string local_name(llvm::StringRef name) const;
  /// Declares a var of the original program in block 0, persistable, unless it is declared already.
  /// Errors: kInvalidProgram if the original does not declare it in a block visible to the op.
  Status clone_var(llvm::StringRef name, const Op& user);
  /// Copies an op into the block with its names made local and its vars declared.
  /// \param sliced  set to true if a name changed
  StatusOr<Op*> copy_op(Block& block, const Op& op, bool& sliced);
};

/// Spec of a var with this kind, dtype and dims and no flags.
VarSpec plain_spec(VarKind kind, DType dtype, llvm::ArrayRef<int64_t> dims);

/// Declaration of a server's copy of a var: persistable, so that it is kept between steps; scopes
/// and raw vars are declared as they are.
VarSpec server_spec(const Var& var);

/// Learning-rate block and its sub-blocks (section 8).
Status build_lr_block(PserverBuilder& b);
/// One block per optimizer op (section 6.4).
Status build_optimize_blocks(PserverBuilder& b);
/// Appends delay compensation of a gradient; returns the name of the compensated one.
std::string append_dc_asgd(PserverBuilder& b, Block& block, const PlacedSlice& owned,
                           const ParamGrad& pair, const std::string& grad);
/// Optimize, prefetch and checkpoint blocks of a distributed table (section 9).
Status build_table_blocks(PserverBuilder& b, int32_t parent);

}  // namespace millrace::transpiler
