import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import millrace

MODEL = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "data", "models", "fit_a_line_2018")


class MigrateTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def results(self, folder, **options):
        session = millrace.Session.open_model(folder, **options)
        rows = np.arange(26, dtype=np.float32).reshape(2, 13) / 26
        return session.run({session.inputs[0]: rows})[session.outputs[0]]

    def test_there_and_back(self):
        want = self.results(MODEL)
        millrace.migrate.to_onnx(MODEL, self.path("m.onnx"))
        millrace.migrate.to_pir(MODEL, self.path("m"))
        for source in ("m.onnx", "m.json"):
            millrace.migrate.to_program(self.path(source), self.path(source + ".program"))
            np.testing.assert_allclose(self.results(self.path(source + ".program")), want, rtol=1e-6)
        millrace.migrate.to_onnx(self.path("m.json"), self.path("again.onnx"), opset=18, input_dims={"x": (2, 13)})
        millrace.migrate.to_pir(self.path("m.onnx"), self.path("n"), replace=True)

    def test_report(self):
        report = millrace.migrate.report(MODEL)
        self.assertIn("inference model", str(report))
        with self.assertRaises(millrace.InvalidDataError):
            millrace.migrate.report(self.folder.name)

    def test_errors(self):
        with self.assertRaises(millrace.UsageError) as raised:
            millrace.migrate.to_onnx(MODEL, self.path("m.onnx"), input_dims={"x": (2, -7)})
        self.assertIn("--input-dims", str(raised.exception))
        with self.assertRaises(millrace.InvalidDataError) as raised:
            millrace.migrate.to_program(self.path("absent.onnx"), self.path("p"))
        self.assertIn("absent.onnx", raised.exception.message)
        programs = os.path.join(os.path.dirname(MODEL), "..", "programs")
        with self.assertRaises(millrace.UnimplementedError) as raised:
            millrace.migrate.to_onnx(os.path.join(programs, "paddlerec_startup.pb"), self.path("c"))
        self.assertEqual(raised.exception.code, "unimplemented")
        self.assertFalse(os.path.exists(self.path("c")))

    def test_every_tool_starts(self):
        scripts = os.path.dirname(sys.executable)
        for name in ("checkpoint", "diff-program", "inspect-program", "job-report", "launch", "migrate", "millrace",
                     "pserver", "quantize-program", "run-program", "status", "transpile-program"):
            done = subprocess.run([os.path.join(scripts, name), "--help"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            self.assertIn("usage: " + name, done.stdout)


if __name__ == "__main__":
    unittest.main()
