#pragma once

#include <cstdint>
#include <string>

#include <llvm/ADT/StringRef.h>

/// Every generated variable name is built here and nowhere else. Names are never parsed: roles,
/// slices and trainers are fields of the plan. Source of the spellings: spec/transpiler.md and
/// spec/backward.md.
namespace millrace::names {

/// Placeholder argument for "no variable here" in gradient slots.
inline constexpr const char* kEmpty = "@EMPTY@";
/// Infix of the gradient variables that clipping and regularization create.
inline constexpr const char* kNewGrad = "@NEWGRAD@";
/// Training-step counter of learning-rate schedules.
inline constexpr const char* kLrCounter = "@LR_DECAY_COUNTER@";
/// Buffer that holds all gradients of one process.
inline constexpr const char* kFusedGrads = "fused_output";
/// Marker that a geo trainer has received its parameters.
inline constexpr const char* kParamInit = "param_init";

/// "w@GRAD"
std::string grad(llvm::StringRef var);
/// "w.block0"
std::string block(llvm::StringRef var, int64_t index);
/// "w.trainer_1"
std::string trainer(llvm::StringRef var, int64_t trainer);
/// "w.block0.trainer_1"
std::string trainer_block(llvm::StringRef var, int64_t index, int64_t trainer);
/// "w.pserver_1"
std::string pserver(llvm::StringRef var, int64_t pserver);
/// "w.delta"
std::string delta(llvm::StringRef var);
/// "w@SNAPSHOT"
std::string snapshot(llvm::StringRef var);
/// "x@ENTRY", the value of a var at the start of a loop iteration
std::string loop_entry(llvm::StringRef var);
/// "x@VERSION@0", an earlier value of a var that a later op overwrites, counted from 0
std::string version(llvm::StringRef var, int64_t number);
/// "w.opti.trainer_1", the copy of a parameter that a trainer sends in the federated variant
std::string federated(llvm::StringRef var, int64_t trainer);
/// "w.block0.trainer_1_bak", the copy of the values that a trainer last read, for delay
/// compensation
std::string dc_backup(llvm::StringRef block, int64_t trainer);
/// "w.block0.local_bak"
std::string dc_local_backup(llvm::StringRef block);
/// "nccl_id_0", the communicator id of a ring in collective mode
std::string comm_id(int64_t ring);
/// "NCCLID" for the first communicator, "NCCLID_1" for the next
std::string nccl_id(int64_t communicator);
/// "Hierarchical_inter_NCCLID_0", "Hierarchical_exter_NCCLID_0"
std::string inter_nccl_id(int64_t communicator);
std::string exter_nccl_id(int64_t communicator);
/// "tmp_dc_output_3", temporaries of delay compensation, numbered within a program
std::string dc_output(int64_t number);
/// "prefetch_compress_in_tmp_1" and "prefetch_compress_out_tmp_1": ids sent to, and rows received
/// from, one server
std::string prefetch_in(int64_t pserver);
std::string prefetch_out(int64_t pserver);
/// "y@UPGRADED@xshape", a var that the upgrade of an old program adds for `var`
std::string upgraded(llvm::StringRef var, llvm::StringRef what);
/// "__control_var@3", numbered in order of creation
std::string control(int64_t number);

}  // namespace millrace::names
