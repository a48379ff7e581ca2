#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringSet.h>

#include "transpiler/distribute/dispatcher.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/distribute/slice.h"
#include "transpiler/distribute_config.h"
#include "transpiler/distribute_result.h"
#include "transpiler/pass.h"
#include "transpiler/vars_distributed.h"

namespace millrace::transpiler {

/// One slice of a parameter with the matching slice of its gradient.
struct PlacedSlice {
  Slice slice;
  std::string param;        ///< name on trainer and server
  std::string grad;         ///< name on this trainer
  std::string server_grad;  ///< name of the merged gradient on the server
  Dims grad_dims;
  int32_t endpoint = -1;  ///< index of the server
};

/// A parameter and its gradient, and how they are distributed.
struct ParamGrad {
  std::string param;
  std::string grad;             ///< name in the input program
  std::string grad_on_trainer;  ///< grad, or its renamed form if it is sent whole
  VarKind grad_kind = VarKind::kLodTensor;
  VarKind param_kind = VarKind::kLodTensor;
  DType dtype = DType::kFloat32;
  int32_t lod_level = 0;
  std::vector<PlacedSlice> slices;
  std::string send_control;     ///< control variable of its send op
  bool has_server_ops = false;  ///< servers compute the update's gradient from the one that is sent
  bool prefetched = false;      ///< table of a remote_prefetch lookup: only rows of it are fetched

  [[nodiscard]] bool is_sliced() const { return slices.size() > 1; }
};

/// A slice held by a server.
struct OwnedSlice {
  uint32_t pair = 0;
  uint32_t slice = 0;
};

/// The distributed lookup table of a program (section 9 of the spec), if it has one.
struct DistributedTable {
  std::string param;  ///< empty: none
  std::string grad;
  std::vector<std::string> grad_vars;  ///< per server, names on this trainer
  std::vector<std::string> ids_vars;   ///< prefetch_compress_in_tmp_i
  std::vector<std::string> out_vars;   ///< prefetch_compress_out_tmp_i
  VarSpec ids_spec;
  VarSpec out_spec;
  int64_t padding_idx = -1;  ///< shared by all lookups; -1: none
  [[nodiscard]] bool exists() const { return !param.empty(); }
};

/// Everything the passes of one distribution know. Ops are pointers into the program that the
/// passes run on.
struct DistributionJob final : Facts {
  // input
  DistributeTranspilerConfig config;
  TranspileArguments arguments;
  std::vector<std::string> endpoints;
  int64_t trainers = 1;

  // found by collect-optimizers and find-tables
  std::vector<Op*> optimize_ops;
  std::set<std::string> sparse_tables;  ///< the servers initialize them; in order of their names
  DistributedTable table;
  std::vector<Op*> prefetch_lookups;

  // the plan
  std::vector<ParamGrad> pairs;      ///< in pair order
  std::vector<uint32_t> send_order;  ///< indices of pairs
  llvm::StringMap<uint32_t> pair_of_param;
  llvm::StringMap<uint32_t> pair_of_grad;           ///< by every name a gradient has on the trainer
  std::vector<std::vector<OwnedSlice>> owned;       ///< per server, in dispatch order
  std::vector<std::vector<const Op*>> ops_of_pair;  ///< optimize ops of each pair, in program order
  std::vector<const Op*>
      lr_ops;                ///< learning-rate ops of block 0 after all steps, in program order
  std::string step_counter;  ///< "<counter>.trainer_<id>" of an asynchronous schedule; empty: none
  VarsDistributed overview;
  std::vector<std::string> rates;     ///< vars of learning rates that updates read, sorted
  std::vector<std::string> schedule;  ///< vars that schedules keep between steps, sorted

  // federated mode
  std::unique_ptr<Program> recv;  ///< receives the params; declares all vars of the main program
  size_t first_send = 0;          ///< ops of the main program from this one on send the copies

  // control variables
  ControlVars controls;
  ControlVars startup_controls;
  std::vector<std::string> barrier_inputs;
  std::string barrier_control;
  std::string table_control;
  std::vector<std::string> recv_outputs;

  /// Appends a pair and makes it the one of its parameter and of its gradient.
  void add_pair(ParamGrad pair);
  /// Distributes slices over the servers: sets their endpoints and fills `owned`.
  /// \param slices  what the dispatcher knows about each
  /// \param which   the same slices in `pairs`, in the same order
  void place(Dispatcher& dispatcher, const std::vector<Placeable>& slices,
             const std::vector<OwnedSlice>& which);
  /// The graph waits for all trainers each step.
  [[nodiscard]] bool sync() const { return arguments.sync_mode; }
  /// Servers hold one gradient variable per trainer and merge them.
  [[nodiscard]] bool merges_per_trainer() const {
    return sync() || (config.completely_not_async && trainers > 1);
  }
  /// Value of listen_and_serv's distributed_mode.
  [[nodiscard]] int32_t distributed_mode() const;
};

}  // namespace millrace::transpiler
