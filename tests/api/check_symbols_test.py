#!/usr/bin/env python3
"""Tests of check_symbols.py."""
import unittest

from check_symbols import compare, declared, name_of

HEADER = """#pragma once
#include "x.h"  // not(this)
namespace a::b {
/// Calls f().
class C final : public D {
 public:
  explicit C(int x);
  ~C();
  C& operator=(C&&) noexcept;
  Status f(const std::string& text = "g(") const;
};
void free(int x);
}  // namespace a::b
void outside();
"""


class CheckSymbols(unittest.TestCase):
    def test_names_of_a_header(self):
        names = declared(HEADER)
        for name in ("a::b::C::C", "a::b::C::~C", "a::b::C::operator=", "a::b::C::f", "a::b::free", "outside"):
            self.assertIn(name, names)
        self.assertNotIn("a::b::g", " ".join(names))
        self.assertNotIn("not", names)

    def test_names_of_symbols(self):
        self.assertEqual(name_of("a::C::f[abi:cxx11](int) const"), "a::C::f")
        self.assertEqual(name_of("a::C::operator=(a::C&&)"), "a::C::operator=")

    def test_differences(self):
        stored = {"transpiler": {"f()"}, "runtime": set(), "distributed": {"h()"}}
        found = {"transpiler": set(), "runtime": {"g()"}, "distributed": {"h()"}}
        lines = list(compare(stored, found))
        self.assertEqual(len(lines), 2)
        self.assertIn("libmillrace_transpiler.so: missing: f()", lines[0])
        self.assertIn("--write): g()", lines[1])


if __name__ == "__main__":
    unittest.main()
