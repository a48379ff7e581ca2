"""The examples of docs/python.md and of docstrings."""

import doctest
import importlib
import os
import pkgutil
import unittest

import millrace

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def load_tests(loader, tests, pattern):
    os.chdir(ROOT)
    tests.addTest(doctest.DocFileSuite(os.path.join(ROOT, "docs", "python.md"), module_relative=False))
    for module in pkgutil.iter_modules(millrace.__path__):
        if module.name != "_core":
            tests.addTest(doctest.DocTestSuite(importlib.import_module("millrace." + module.name),
                                               extraglobs={"Scope": millrace.Scope}))
    return tests


class PublicNames(unittest.TestCase):
    def test_everything_public_has_a_docstring(self):
        for name in millrace.__all__:
            value = getattr(millrace, name)
            with self.subTest(name):
                self.assertTrue((value.__doc__ or "").strip())

    def test_names_exist(self):
        self.assertEqual(sorted(millrace.__all__), sorted(set(millrace.__all__)))


if __name__ == "__main__":
    unittest.main()
