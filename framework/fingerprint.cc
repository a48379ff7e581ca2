#include "framework/fingerprint.h"

#include <llvm/Support/xxhash.h>

#include "framework/export.h"

namespace millrace {

uint64_t fingerprint(const Program& program) {
  return llvm::xxHash64(export_program(program, ExportOptions{.canonical = true}));
}

}  // namespace millrace
