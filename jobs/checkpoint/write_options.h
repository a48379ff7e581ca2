#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"

namespace millrace::jobs {

/// How the values of a source are written elsewhere.
struct WriteOptions {
  Replace replace = Replace::kNo;        ///< whether outputs that exist may be replaced
  bool sync = true;                      ///< wait until the data is on disk
  int64_t step = 0;                      ///< of a checkpoint that is written
  std::shared_ptr<io::FileCalls> calls;  ///< file calls that fail after a stop; null: the system's
  std::function<Status()> proceed = [] {
    return Ok();
  };  ///< called before each value; its error ends the work
  std::function<void(uint64_t)> progress = [](uint64_t) {};  ///< receives the bytes of each value
};

}  // namespace millrace::jobs
