"""Programs find the stand-in for CUDA only in its own folder, and it says what it is.

    programs_test.py BUILD_FOLDER
"""
import os
import subprocess
import sys
import unittest

BUILD = sys.argv.pop(1)


def devices(folder, count):
    """The exit status and output of inspect-program --devices."""
    env = {**os.environ, "MILLRACE_STANDIN_GPUS": count}
    done = subprocess.run([f"{BUILD}/{folder}/inspect-program", "--devices"], capture_output=True, text=True, env=env)
    return done.returncode, done.stdout + done.stderr


class ProgramsTest(unittest.TestCase):
    def test_its_name_says_that_it_is_a_stand_in(self):
        status, text = devices("standin", "2")
        self.assertEqual(status, 0, text)
        found = [line.split("  ")[:2] for line in text.splitlines()]
        libraries = [["", "cuBLASLt 13.0.0"], ["", "cuDNN 9.19.0"]]
        self.assertEqual(found[:3], [["gpu:0", "stand-in for a GPU (tests only)"], *libraries])
        self.assertEqual(found[3:], [["gpu:1", "stand-in for a GPU (tests only)"], *libraries])

    def test_no_devices(self):
        status, text = devices("standin", "0")
        self.assertEqual(status, 7)
        self.assertIn("no GPU can be used: no CUDA-capable device is detected", text)

    def test_tools_do_not_find_it(self):
        self.assertNotIn("stand-in", devices("tools", "1")[1])

    def test_nothing_of_it_is_installed(self):
        with open(f"{BUILD}/tests/cuda_standin/cmake_install.cmake", encoding="utf-8") as file:
            self.assertNotIn("file(INSTALL", file.read())

    def test_blocking_launches(self):
        env = {**os.environ, "CUDA_LAUNCH_BLOCKING": "1", "LD_LIBRARY_PATH": f"{BUILD}/standin/lib"}
        done = subprocess.run([f"{BUILD}/standin/standin_runtime_test", "--gtest_filter=Runtime.AskingForTheState*"],
                              capture_output=True, text=True, env=env)
        self.assertEqual(done.returncode, 1)  # nothing is left to be done when it asks
        self.assertIn("cudaStreamQuery(stream_)", done.stdout)


if __name__ == "__main__":
    unittest.main()
