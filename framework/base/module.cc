#include "framework/base/module.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <dlfcn.h>
#include <sys/auxv.h>

#include "framework/base/errors.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// Base address of the program or library that contains the address; null if unknown. `file`
// receives its path as dladdr() reports it.
const void* base_of(const void* address, std::string& file) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return nullptr;
  file = info.dli_fname == nullptr ? "" : info.dli_fname;
  return info.dli_fbase;
}

// The folder of the program or shared library that this function was linked into. For the main
// program, dladdr() reports only argv[0], so /proc/self/exe is used.
fs::path own_folder() {
  std::string file;
  std::string program;
  const void* const own = base_of(reinterpret_cast<const void*>(&load_module), file);
  const void* const main = base_of(reinterpret_cast<const void*>(getauxval(AT_PHDR)), program);
  std::error_code error;
  const fs::path path =
      own == main ? fs::read_symlink("/proc/self/exe", error) : fs::canonical(file, error);
  return path.parent_path();
}

Status other_build(const std::string& file, const char* stamp) {
  return Status(StatusCode::kInvalidData,
                fmt::format("the module is from another build: expected '{}', found '{}'",
                            build_stamp(), stamp))
      .in_file(file)
      .with_hint("reinstall millrace with all its modules");
}

}  // namespace

StatusOr<const void*> load_module(std::string_view name) {
  const fs::path folder = own_folder();
  const std::string leaf = fmt::format("{}.so", name);
  // First path: relative to a program. Second: relative to a shared library next to the folder
  // "millrace".
  const std::array<fs::path, 2> places = {
      (folder / MILLRACE_MODULE_FOLDER / leaf).lexically_normal(), folder / "millrace" / leaf};
  std::error_code error;
  const fs::path& path = fs::exists(places[1], error) ? places[1] : places[0];
  if (!fs::exists(path, error)) {
    return NotFound("the module '{}' is unavailable: no such file", name)
        .in_file(path)
        .with_hint("modules are installed with the programs, in <library folder>/millrace");
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr)
    return IoError("the module '{}' cannot be loaded: {}", name, dlerror()).in_file(path);
  void* const entry = dlsym(library, kModuleEntry);
  if (entry == nullptr)
    return InvalidData("not a millrace module: expected a function {}, found none", kModuleEntry)
        .in_file(path);
  const void* functions = nullptr;
  const char* const stamp = reinterpret_cast<ModuleEntry*>(entry)(&functions);
  if (std::strcmp(stamp, build_stamp()) != 0) return other_build(path, stamp);
  return functions;
}

}  // namespace millrace
