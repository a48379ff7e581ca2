#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "transpiler/distribute_result.h"
#include "transpiler/vars_distributed.h"

/// slices.json, the file next to the programs of a distribution: where every slice is, and the
/// facts of the program objects that the program format does not carry.
namespace millrace::transpiler {

/// Values of the members "schema" and "version" of the file.
inline constexpr const char* kSlicesSchema = "millrace.slices";
inline constexpr int kSlicesVersion = 1;

/// The entries of one origin var.
struct OriginSlices {
  VarFacts origin;
  std::string vtype;
  std::vector<const DistributedVar*> slices;  ///< in order of the overview
};

/// Origins in order of their first entry. Pointers are into the overview.
std::vector<OriginSlices> slices_by_origin(const VarsDistributed& overview);

/// Bytes that a server holds for one slice; 0 if the shape has an unknown dim.
int64_t slice_bytes(const VarFacts& slice);

/// What one server holds.
struct ServerBytes {
  std::string endpoint;
  int64_t param_bytes = 0;  ///< parameters, including prefetched tables
  int64_t state_bytes = 0;  ///< optimizer state
  int64_t slices = 0;       ///< entries of the overview
  [[nodiscard]] int64_t bytes() const { return param_bytes + state_bytes; }
};

/// One entry per endpoint, in order of the endpoints; including servers that hold nothing.
std::vector<ServerBytes> bytes_by_server(const ProgramProperties& properties,
                                         const VarsDistributed& overview);

/// Largest share divided by the mean share; 1 means even. 1 if there are no shares or all are 0.
double imbalance(const std::vector<double>& shares);

/// Writes the file. Members: schema, version, overview (is_distributed, is_chief, ps_endpoint,
/// endpoints, distributed_lookup_table, vars), vars (by origin, each with its slices; offsets in
/// elements, sizes in bytes), servers, imbalance, rates, schedule and training if not empty (see
/// ProgramProperties), listed_whole if not empty (name of the state and DistributedVar::param of
/// each state that has one; param is null if empty), and in geo mode geo (push_nums, trainers,
/// vars: name, var_names, sections, epmap, is_sparse). Strings that are not UTF-8 get replacement
/// characters.
std::string slices_json(const ProgramProperties& properties, const VarsDistributed& overview);

/// What parse_slices_json() reads.
struct SlicesFile {
  ProgramProperties properties;
  VarsDistributed overview;
};

/// Reads the overview, and rates, schedule, training, listed_whole and geo if present, of a
/// slices.json. Errors: kInvalidData naming the member that is missing or of the wrong kind,
/// another schema, or a version above kSlicesVersion.
StatusOr<SlicesFile> parse_slices_json(const std::string& text);

}  // namespace millrace::transpiler
