#include "tools/transpile/tune_allocator.h"

#ifdef MILLRACE_MIMALLOC
#include <mimalloc.h>
#endif

namespace millrace::tools {

void tune_allocator() {
#ifdef MILLRACE_MIMALLOC
  // Sets the default only, so that MIMALLOC_... in the environment overrides it.
  mi_option_set_default(mi_option_large_os_pages, 1);
  mi_option_set_default(mi_option_allow_decommit, 0);
  mi_option_set_default(mi_option_eager_commit_delay, 0);
#endif
}

}  // namespace millrace::tools
