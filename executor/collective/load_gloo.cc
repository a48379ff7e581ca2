#include "executor/collective/engines.h"
#include "framework/base/module.h"

namespace millrace::executor {

bool has_gloo() {
  return true;
}

StatusOr<std::unique_ptr<CollectiveGroup>> open_gloo_group(const GroupSettings& settings,
                                                           const GlooPlace& place) {
  MILLRACE_ASSIGN_OR_RETURN(const GlooEngine* const engine, load_functions<GlooEngine>("gloo"));
  return engine->open(settings, place);
}

}  // namespace millrace::executor
