"""Programs find the stand-in for CUDA only in its own folder, and it says what it is.

    programs_test.py BUILD_FOLDER
"""
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = sys.argv.pop(1)


TRAINED = """# millrace
block 0 {
    persist w: f32(3, 1)
    persist lr: f32(1)
    var x: f32(-1, 3)
    var y: f32(-1, 1)
    var loss: f32(1)
    var loss@GRAD: f32(1)
    var y@GRAD: f32(-1, 1)
    var w@GRAD: f32(3, 1)
    mul X=x Y=w -> Out=y
    mean X=y -> Out=loss
    fill_constant -> Out=loss@GRAD {dtype: 5, op_role: 257, shape: [1], value: 1.0}
    mean_grad Out@GRAD=loss@GRAD X=y -> X@GRAD=y@GRAD {op_role: 1}
    mul_grad Out@GRAD=y@GRAD X=x Y=w -> Y@GRAD=w@GRAD {op_role: 1, op_role_var: ["w", "w@GRAD"]}
    sgd Grad=w@GRAD LearningRate=lr Param=w -> ParamOut=w {op_role: 2, op_role_var: ["w", "w@GRAD"]}
}
"""
STARTED = """# millrace
block 0 {
    persist w: f32(3, 1)
    persist lr: f32(1)
    fill_constant -> Out=w {dtype: 5, shape: [3, 1], value: 0.5}
    fill_constant -> Out=lr {dtype: 5, shape: [1], value: 0.5}
}
"""


def train(env, *flags):
    """The exit status and output of four steps with feeds that run-program makes, and the seconds that they took."""
    with tempfile.TemporaryDirectory() as work:
        for name, text in (("main.txt", TRAINED), ("startup.txt", STARTED)):
            with open(f"{work}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        start = time.monotonic()
        done = subprocess.run([f"{BUILD}/standin/run-program", "--program", f"{work}/main.txt", "--startup", f"{work}/startup.txt",
                               "--feed", "x=6x3xf32=random:1", "--steps", "4", "--fetch", "loss,w", *flags],
                              capture_output=True, text=True, env={**os.environ, **env})
        return done.returncode, done.stdout + done.stderr, time.monotonic() - start


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

    def test_two_gpus_train_as_one_does(self):
        alone = train({}, "--devices", "gpu:0")
        status, text, _ = train({"MILLRACE_STANDIN_GPUS": "2"}, "--devices", "gpu:0,1", "--merge-fetches=false")
        self.assertEqual([alone[0], status], [0, 0], text)
        one, two = ([[float(number) for number in re.findall(r"[-+.\de]+", line)]
                     for line in re.findall(r"step3/(?:dev\d/)?w: .*\n(.*)", output)] for output in (alone[1], text))
        self.assertEqual([len(values) for values in two], [3, 3], text)
        self.assertEqual(two[0], two[1])
        for found, wanted in zip(two[0], one[0]):
            self.assertAlmostEqual(found, wanted, places=5)

    def test_a_failure_of_one_gpu_ends_the_step_on_all(self):
        for fails, note in (("1:3", "the call fails"), ("1:3:later", "queued work fails")):
            status, text, seconds = train({"MILLRACE_STANDIN_GPUS": "3", "MILLRACE_STANDIN_NCCL_FAILS": fails},
                                          "--devices", "gpu:0,1,2")
            self.assertEqual(status, 5, text)
            self.assertIn("exchange_end", text)
            self.assertIn("on device 1 in step 2", text)
            self.assertIn(note, text)
            self.assertLess(seconds, 60)

    def test_nccl_is_needed_for_several(self):
        status, text, _ = train({"MILLRACE_STANDIN_GPUS": "2", "LD_LIBRARY_PATH": f"{BUILD}/standin/broken"},
                                "--devices", "gpu:0,1")
        self.assertEqual(status, 7, text)
        self.assertIn("libnccl.so.2", text)
        self.assertIn("for exchanges between the GPUs of a process", text)

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
