// A module of another build.
extern "C" const char* millrace_module(const void** functions) {
  *functions = nullptr;
  return "0.0.0 of long ago";
}
