#pragma once

#include <string>
#include <vector>

#include "transpiler/distribute_result.h"
#include "transpiler/vars_distributed.h"

/// A small distribution for tests of code that uses an overview: w of 4 x 2 and its momentum
/// velocity sliced over two servers, beta whole on both of them, bias b on the first.
namespace millrace::transpiler {

inline VarFacts float_var(std::string name, std::vector<int64_t> shape, bool persistable = true) {
  VarFacts facts;
  facts.name = std::move(name);
  facts.shape = std::move(shape);
  facts.persistable = persistable;
  return facts;
}

inline DistributedVar whole_var(const VarFacts& origin, std::string vtype, std::string endpoint) {
  return {.origin = origin,
          .slice = origin,
          .vtype = std::move(vtype),
          .endpoint = std::move(endpoint)};
}

/// The second slice comes first, because state is listed server by server.
inline VarsDistributed small_overview() {
  VarsDistributed overview;
  const VarFacts w = float_var("w", {4, 2});
  const VarFacts velocity = float_var("w_velocity_0", {4, 2});
  for (const int64_t id : {1, 0}) {
    const std::string endpoint = id == 1 ? "h:1" : "h:2";
    DistributedVar slice{.origin = w,
                         .slice = float_var("w.block" + std::to_string(id), {2, 2}, false),
                         .is_slice = true,
                         .block_id = id,
                         .offset = id * 4,
                         .vtype = "Param",
                         .endpoint = endpoint};
    overview.add_distributed_var(slice);
    slice.origin = velocity;
    slice.slice = float_var("w_velocity_0", {2, 2});
    slice.vtype = "Optimizer";
    overview.add_distributed_var(slice);
    overview.add_distributed_var(whole_var(float_var("w_beta", {1}), "Optimizer", endpoint));
  }
  overview.add_distributed_var(whole_var(float_var("b", {2}), "Param", "h:1"));
  return overview;
}

inline ProgramProperties small_properties() {
  ProgramProperties properties;
  properties.is_distributed = true;
  properties.is_chief = true;
  properties.ps_endpoint = "h:2";
  properties.endpoints = {"h:1", "h:2"};
  return properties;
}

}  // namespace millrace::transpiler
