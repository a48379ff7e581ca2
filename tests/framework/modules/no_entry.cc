// A shared library that is no module: what it has is not exported.
extern "C" int nothing() {
  return 0;
}
