#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/op.h"

namespace millrace::ps {

/// What `listen_and_serv` or `fl_listen_and_serv` says a server has to do, read once from the op.
/// Source: spec/ps_runtime.md sections 2 and 3, spec/transpiler.md section 6.
struct ServePlan {
  /// When gradients are applied.
  enum class Mode {
    kSync,   ///< when those of all trainers are there
    kAsync,  ///< each when it arrives; half-async looks the same from here
    kGeo,    ///< as kAsync, and pulls of sparse tables give the rows that changed
  };

  Mode mode = Mode::kSync;
  bool federated = false;  ///< trainers send parameters, whose mean is taken
  bool dc_asgd = false;    ///< late gradients are compensated
  int trainers = 1;
  int server = 0;  ///< own place among the servers; 0 where the op does not say
  std::string endpoint;
  std::vector<std::string> inputs;           ///< X: vars that arrive
  std::vector<std::vector<int32_t>> groups;  ///< optimize blocks; those of a group run side by side
  std::map<std::string, int32_t> grad_blocks;        ///< block that a gradient starts
  std::map<std::string, int32_t> prefetch_blocks;    ///< block that looks the ids in a var up
  std::map<std::string, int32_t> message_blocks;     ///< block that a message starts
  std::map<std::string, std::string> sparse_params;  ///< parameter of a sparse gradient
  int32_t lr_block = -1;                             ///< computes the learning rate; -1: none
  int32_t checkpoint_block = -1;                     ///< saves the distributed table; -1: none

  /// Errors: kInvalidProgram for an op without optimize blocks, for blocks that do not exist, and
  /// for "name:block" entries that are none.
  static StatusOr<ServePlan> read(const Op& op);
};

}  // namespace millrace::ps
