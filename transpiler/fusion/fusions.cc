#include "transpiler/fusion/fusions.h"

namespace millrace::transpiler {

void register_fusions(PassRegistry& passes) {
  register_fuse_fc(passes);
}

}  // namespace millrace::transpiler
