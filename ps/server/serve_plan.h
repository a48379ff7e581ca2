#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/op.h"
#include "ps/protocol/kinds.h"

namespace millrace::ps {

/// The attributes of `listen_and_serv` or `fl_listen_and_serv`, parsed once.
/// Source: spec/ps_runtime.md sections 2 and 3, spec/transpiler.md section 6.
struct ServePlan {
  /// Asynchronous, whatever the attribute says, if the program does not merge the gradients of its
  /// trainers.
  ServerMode mode = ServerMode::kSync;
  bool federated = false;  ///< trainers send parameters, which are averaged
  bool dc_asgd = false;    ///< delayed gradients are compensated
  int trainers = 1;
  int server = 0;  ///< index of this server; 0 if the op does not have it
  std::string endpoint;
  std::vector<std::string> inputs;                   ///< X: vars that trainers send
  std::vector<std::vector<int32_t>> groups;          ///< optimize blocks; a group runs in parallel
  std::map<std::string, int32_t> grad_blocks;        ///< block to run when a gradient arrives
  std::map<std::string, int32_t> prefetch_blocks;    ///< block that looks up the ids of a var
  std::map<std::string, int32_t> message_blocks;     ///< block to run when a message arrives
  std::map<std::string, std::string> sparse_params;  ///< parameter of a sparse gradient
  int32_t lr_block = -1;                             ///< computes the learning rate; -1: none
  int32_t checkpoint_block = -1;                     ///< saves the distributed table; -1: none

  /// Errors: kInvalidProgram for an op without optimize blocks, for blocks that do not exist, and
  /// for malformed "name:block" entries.
  static StatusOr<ServePlan> read(const Op& op);
};

}  // namespace millrace::ps
