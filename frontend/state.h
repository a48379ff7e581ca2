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

/// What a network and its handles share.
struct State {
  explicit State(int32_t seed);

  std::unique_ptr<ops::OpRegistry> registry;
  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
  std::unique_ptr<ops::Builder> builder;
  int32_t random_seed = 0;
  Status status;                        ///< the first mistake
  std::vector<std::string> parameters;  ///< that are trained, in order of creation
  std::set<std::string> frozen;         ///< those that are not
  std::map<std::string, ParameterOptions> parameter_options;

  /// Keeps a mistake unless there is one already.
  void fail(const char* layer, Status status, std::source_location where);
};

/// "File "net.cc", line 12, in main", the form of op_callstack.
std::string frame_text(std::source_location where);

}  // namespace millrace::frontend
