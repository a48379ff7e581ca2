#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/core.h"

namespace millrace::python {

nb::object exception_of(const Status& status) {
  const Location& place = status.location();
  nb::dict location;
  const auto put = [&location](const char* key, const std::string& text) {
    if (!text.empty()) location[key] = to_text(text);
  };
  put("file", place.file);
  if (place.block >= 0) location["block"] = place.block;
  if (place.op >= 0) location["op"] = place.op;
  put("op_type", place.op_type);
  put("slot", place.slot);
  if (place.slot_index >= 0) location["slot_index"] = place.slot_index;
  put("attr", place.attr);
  put("var", place.var);
  put("source", place.source);
  nb::list notes;
  for (const std::string& note : status.notes()) notes.append(to_text(note));
  return nb::module_::import_("millrace._errors")
      .attr("exception_of")(std::string(status_code_name(status.code())), to_text(status.message()),
                            location, to_text(status.hint()), notes, to_text(status.to_string()));
}

}  // namespace millrace::python
