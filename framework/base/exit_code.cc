#include "framework/base/exit_code.h"

namespace millrace {

int exit_code(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kUsage:
      return 2;
    case StatusCode::kInvalidArgument:
    case StatusCode::kInvalidProgram:
    case StatusCode::kInvalidData:
    case StatusCode::kNotFound:
      return 3;
    case StatusCode::kExecution:
      return 4;
    case StatusCode::kDistributed:
      return 5;
    case StatusCode::kIo:
    case StatusCode::kResource:
      return 6;
    case StatusCode::kUnimplemented:
      return 7;
    case StatusCode::kInternal:
      return 70;
  }
  return 70;
}

}  // namespace millrace
