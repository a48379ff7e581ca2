#pragma once

#include <map>
#include <memory>
#include <set>
#include <source_location>
#include <string>
#include <vector>

#include "framework/program.h"
#include "frontend/network.h"
#include "ops/construct/builder.h"

namespace millrace::frontend {

/// State shared by a network and its handles.
struct State {
  explicit State(int32_t seed);

  std::unique_ptr<ops::OpRegistry> registry;  ///< schemas of all ops
  std::unique_ptr<Program> main;              ///< ops of the layers
  std::unique_ptr<Program> startup;           ///< ops that fill parameters
  std::unique_ptr<ops::Builder> builder;      ///< appends to the programs
  int32_t random_seed = 0;                    ///< for initializers without a seed
  Status status;                              ///< the first error
  std::vector<std::string> parameters;        ///< trained parameters, in order of creation
  std::set<std::string> frozen;               ///< parameters that are not trained
  std::map<std::string, ParameterOptions> parameter_options;  ///< by name, for minimize()

  /// Records an error, unless there is one already.
  void fail(const char* layer, Status status, std::source_location where);
};

/// "File "net.cc", line 12, in main", the format of op_callstack.
std::string frame_text(std::source_location where);

}  // namespace millrace::frontend
