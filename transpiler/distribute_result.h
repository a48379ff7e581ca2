#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

/// What the geo communicator needs to know about one parameter (an entry of the original's
/// vars_info).
struct GeoVar {
  std::string origin;                  ///< the parameter
  std::vector<std::string> var_names;  ///< its slices
  std::vector<int64_t> sections;       ///< rows of each slice
  std::vector<std::string> epmap;      ///< endpoint of each slice
  bool is_sparse = false;              ///< only the rows that were looked up are sent
  bool operator==(const GeoVar&) const = default;
};

/// What the geo communicator needs to know; no program contains it.
struct GeoFacts {
  int64_t push_nums = 100;   ///< steps between two pushes (geo_sgd_need_push_nums)
  int64_t trainers = 1;      ///< number of trainers; changes are divided by it
  std::vector<GeoVar> vars;  ///< in the order of (param, grad) pairs
  bool operator==(const GeoFacts&) const = default;
};

/// Facts of the trainer program object that the format does not carry (the original keeps them as
/// attributes of the Python object); written to slices.json.
struct ProgramProperties {
  bool is_distributed = false;
  bool is_chief = false;
  std::string ps_endpoint;
  std::vector<std::string> endpoints;
  std::string distributed_lookup_table;  ///< empty: none
  std::vector<std::string> rates;        ///< learning-rate vars on the servers, sorted
  std::vector<std::string> schedule;     ///< vars that the schedules on the servers keep, sorted
  /// How the servers train, a fact a line, for processes that compare it: the mode with the number
  /// of trainers, and the op that updates each parameter; empty: not known.
  std::vector<std::string> training;
  // nccl2
  std::vector<std::string> trainers_endpoints;
  int64_t nccl_comm_num = 1;
  bool use_hierarchical_allreduce = false;
  int64_t hierarchical_allreduce_inter_nranks = 0;
  // geo
  std::optional<GeoFacts> geo;
};

}  // namespace millrace::transpiler
