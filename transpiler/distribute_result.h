#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/program.h"
#include "transpiler/vars_distributed.h"

namespace millrace::transpiler {

/// A main program and the startup program that belongs to it.
struct RolePrograms {
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
};

/// Facts of the trainer program object that the format does not carry (the original keeps them as
/// attributes of the Python object); written to slices.json.
struct ProgramProperties {
  bool is_distributed = false;
  bool is_chief = false;
  std::string ps_endpoint;
  std::vector<std::string> endpoints;
  std::string distributed_lookup_table;  ///< empty: none
  // nccl2
  std::vector<std::string> trainers_endpoints;
  int64_t nccl_comm_num = 1;
  bool use_hierarchical_allreduce = false;
  int64_t hierarchical_allreduce_inter_nranks = 0;
};

}  // namespace millrace::transpiler
