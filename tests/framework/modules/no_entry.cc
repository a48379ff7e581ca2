// A shared library that is not a module: it does not export the entry function.
extern "C" int nothing() {
  return 0;
}
