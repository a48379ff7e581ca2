#include <array>

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {
namespace {

// Attributes of file ops that hold a path below the directory of the run.
constexpr std::array<llvm::StringLiteral, 6> kPathAttrs = {"file_path", "dirname",   "dir",
                                                           "filename",  "file_name", "path"};

// Why a path may lead out of the directory of the run; empty if it cannot.
std::string_view fault_of_path(llvm::StringRef path) {
  if (path.contains('\0')) return "contains a NUL byte";
  if (path.startswith("/") || path.startswith("\\")) return "is absolute";
  if (path.size() >= 2 && path[1] == ':') return "is absolute";
  llvm::SmallVector<llvm::StringRef, 8> parts;
  path.split(parts, '/');
  for (const llvm::StringRef part : parts) {
    if (part == "..") return "leads out of its directory";
  }
  return {};
}

void check_path(Context& context, const OpView& view, llvm::StringRef attr, llvm::StringRef path) {
  const std::string_view fault = fault_of_path(path);
  if (fault.empty()) return;
  Location where = Context::place(view);
  where.attr = attr.str();
  context.error(view, "path",
                InvalidProgram("path '{}' in attribute '{}' {}", text(path.take_front(256)),
                               text(attr), fault)
                    .with_hint("a program may only name files below the directory it is given"),
                std::move(where));
}

void check_paths(Context& context, const OpView& view) {
  for (const llvm::StringRef name : kPathAttrs) {
    const AttrValue* const value = view.op.find_attr(name);
    if (value == nullptr) continue;
    if (value->kind() == AttrKind::kString) check_path(context, view, name, value->string());
    if (value->kind() == AttrKind::kStrings) {
      for (const std::string& path : value->strings()) check_path(context, view, name, path);
    }
  }
}

void refuse(Context& context, const OpView& view, std::string_view rule, std::string_view what) {
  context.error(view, rule, InvalidProgram("op type '{}' {}", text(view.op.type()), what),
                Context::place(view));
}

}  // namespace

void check_capability(Context& context, const OpView& view) {
  if (view.type.def == nullptr) return;
  switch (view.type.def->capability()) {
    case Capability::kPure:
      return;
    case Capability::kFile:
      if (!context.options.allow_outside_paths) check_paths(context, view);
      return;
    case Capability::kNetwork:
      if (!context.options.allow_network) {
        refuse(context, view, "network", "opens sockets, which this role may not do");
      } else if (!context.options.allow_outside_paths) {
        check_paths(context, view);
      }
      return;
    case Capability::kHostCode:
      if (!context.options.allow_host_code)
        refuse(context, view, "host-code", "runs code of the host language, which is refused");
      return;
  }
}

}  // namespace millrace::ops::verify
