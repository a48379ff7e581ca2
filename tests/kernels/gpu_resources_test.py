"""What gpu_resources.py reads and refuses, from texts in the form of the compiler's."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_resources as checked  # noqa: E402

TEXT = """ptxas info    : Compiling entry function '_Z8run_each1A' for 'sm_90'
ptxas info    : Function properties for _Z8run_each1A
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers
ptxas info    : Compiling entry function '_Z8run_rows1B' for 'sm_90'
ptxas info    : Function properties for _Z8run_rows1B
    {frame} bytes stack frame, {stores} bytes spill stores, 0 bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, {shared} bytes smem
"""


def found(frame=0, stores=0, registers=56, shared=256):
    return checked.kernels(TEXT.format(frame=frame, stores=stores, registers=registers, shared=shared))


class Resources(unittest.TestCase):
    def test_reads_each_kernel(self):
        self.assertEqual(found(), [("_Z8run_each1A", 0, 0, 24, 0), ("_Z8run_rows1B", 0, 0, 56, 256)])
        self.assertEqual([p for k in found() for p in checked.problems(k)], [])

    def test_names_what_is_too_much(self):
        for settings, text in (({"frame": 8}, "frame of 8"), ({"stores": 4}, "spills 4"),
                               ({"registers": 97}, "97 registers, limit 96"), ({"shared": 99999}, "99999 bytes of shared")):
            self.assertIn(text, " ".join(checked.problems(found(**settings)[1])))
        tangent = ("_Z8run_eachI8GradientI3TanEE", 32, 0, 20, 0)
        self.assertEqual(list(checked.problems(tangent)), [])
        self.assertIn("frame of 64", " ".join(checked.problems((tangent[0], 64, 0, 20, 0))))
        self.assertIn("no known kind", " ".join(checked.problems(("other", 0, 0, 1, 0))))


if __name__ == "__main__":
    unittest.main()
