#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "transpiler/distribute_result.h"
#include "transpiler/vars_distributed.h"

/// slices.json, the file beside the programs of a distribution: what went where, and the facts of
/// the program objects that the format of programs does not carry.
namespace millrace::transpiler {

/// Name and version that stand in the file as "schema" and "version".
inline constexpr const char* kSlicesSchema = "millrace.slices";
inline constexpr int kSlicesVersion = 1;

/// What the file says of one origin var.
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
  int64_t param_bytes = 0;  ///< parameters, prefetched tables among them
  int64_t state_bytes = 0;  ///< optimizer state
  int64_t slices = 0;       ///< entries of the overview
  [[nodiscard]] int64_t bytes() const { return param_bytes + state_bytes; }
};

/// One entry per endpoint, in order of the endpoints; servers without anything included.
std::vector<ServerBytes> bytes_by_server(const ProgramProperties& properties,
                                         const VarsDistributed& overview);

/// Largest share over mean share; 1 is even. 1 if there is nothing or nobody.
double imbalance(const std::vector<double>& shares);

/// The file. Members: schema, version, overview (is_distributed, is_chief, ps_endpoint, endpoints,
/// distributed_lookup_table, vars), vars (by origin, each with its slices, offsets in elements,
/// sizes in bytes), servers, imbalance, where there are some rates and schedule
/// (ProgramProperties), and in geo mode
/// geo (push_nums, trainers, vars: name, var_names, sections, epmap, is_sparse). Strings that are
/// no UTF-8 get replacement characters.
std::string slices_json(const ProgramProperties& properties, const VarsDistributed& overview);

/// What can be read back from the file.
struct SlicesFile {
  ProgramProperties properties;
  VarsDistributed overview;
};

/// Reads the overview, and rates, schedule and geo if they are there, of a slices.json. Errors:
/// kInvalidData naming the member that is missing or of the wrong kind, another schema, or a
/// version above kSlicesVersion.
StatusOr<SlicesFile> parse_slices_json(const std::string& text);

}  // namespace millrace::transpiler
