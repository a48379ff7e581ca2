import io
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from contextlib import redirect_stderr

import numpy

import millrace
from millrace import optimizer
from nets import batches, linear_net, sgd_by_numpy


def trained(rate=0.1, **options):
    main, startup, loss = linear_net()
    return millrace.minimize(main, startup, loss, optimizer.SGD(), learning_rate=rate, **options), loss


class ExecutorTest(unittest.TestCase):
    def test_training_is_that_of_numpy(self):
        program, loss = trained()
        scope, executor = millrace.Scope(), millrace.Executor()
        executor.run(program.startup, scope)
        history = millrace.train(executor.prepare(program.main, scope).run, batches(20), [loss])
        losses, w, b = sgd_by_numpy(batches(20), 0.1)
        numpy.testing.assert_allclose(history[loss], losses, rtol=1e-4)
        numpy.testing.assert_allclose(scope["w"], w, rtol=1e-4)
        numpy.testing.assert_allclose(scope["b"], b, rtol=1e-4)

    def test_several_devices_are_one(self):
        program, loss = trained()
        scope = millrace.Scope()
        millrace.Executor().run(program.startup, scope)
        parallel = millrace.ParallelExecutor(program.main, scope, devices=2, loss_name=loss)
        self.assertEqual(parallel.device_count, 2)
        for feeds in batches(20):
            self.assertEqual(parallel.run(feeds, [loss])[loss].shape, (2,))
        numpy.testing.assert_allclose(scope["w"], sgd_by_numpy(batches(20), 0.1)[1], rtol=1e-4)
        numpy.testing.assert_allclose(parallel.get(1, "w"), scope["w"])
        halves = [{name: array[half * 4:half * 4 + 4] for name, array in feeds.items()} for half in (0, 1)]
        self.assertEqual(parallel.run(halves, ["guess"])["guess"].shape, (8, 1))
        self.assertEqual([part.shape for part in parallel.run_unmerged(feeds, ["guess"])["guess"]], [(4, 1)] * 2)
        self.assertEqual(parallel.runs, 22)
        strategy = millrace.BuildStrategy(reduce_strategy=millrace.BuildStrategy.ReduceStrategy.Reduce)
        millrace.ParallelExecutor(program.main, scope, devices=2, loss_name=loss, build_strategy=strategy)

    def test_wrong_feeds_and_fetches(self):
        program, loss = trained()
        scope, executor = millrace.Scope(), millrace.Executor()
        executor.run(program.startup, scope)
        prepared = executor.prepare(program.main, scope)
        feeds = next(batches(1))
        with self.assertRaisesRegex(millrace.InvalidArgumentError, "w"):
            prepared.run({**feeds, "w": numpy.zeros((3, 1), "float32")}, [loss])
        with self.assertRaises(millrace.NotFoundError):
            prepared.run(feeds, ["nothing"])
        with self.assertRaises(millrace.Error):
            prepared.run({"x": feeds["x"]}, [loss])
        with self.assertRaisesRegex(TypeError, "expected numbers"):
            prepared.run({**feeds, "x": "text"}, [loss])
        with self.assertRaisesRegex(TypeError, f"fetches: expected a list of names, found the string '{loss}'"):
            prepared.run(feeds, loss)
        self.assertEqual(prepared.run(feeds, [loss])[loss].dtype, numpy.float32)

    def test_threads_run_without_the_gil(self):
        # Two scopes at once, and one scope from two threads: the latter must come one after another.
        program, loss = trained()
        executor = millrace.Executor()
        scopes = [millrace.Scope(), millrace.Scope()]
        prepared = []
        for scope in scopes:
            executor.run(program.startup, scope)
            prepared.append(executor.prepare(program.main, scope))
        threads = [threading.Thread(target=millrace.train, args=(prepared[i % 2].run, list(batches(50)), [loss]))
                   for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numpy.testing.assert_array_equal(scopes[0]["w"].shape, scopes[1]["w"].shape)
        numpy.testing.assert_allclose(scopes[0]["w"], [[1], [-2], [0.5]], atol=1e-3)

    def test_sequences(self):
        program = millrace.Program()
        program.root.add_var("x", "f32", (-1, 1), lod_level=1)
        for name in ("out", "index"):
            program.root.add_var(name, "f32" if name == "out" else "i32", (-1, 1))
        program.root.add_var("copy", "f32", (-1, 1), lod_level=1)
        program.root.add_op("sequence_pool", {"X": "x"}, {"Out": "out", "MaxIndex": "index"}, {"pooltype": "SUM"})
        program.root.add_op("scale", {"X": "x"}, {"Out": "copy"}, {"scale": 2.0})
        words = millrace.LodArray([[1], [2], [3], [4], [5]], lod=[[0, 2, 5]], dtype="float32")
        results = millrace.Session(program).run({"x": words}, ["out", "copy"])
        self.assertEqual(results["out"].tolist(), [[3], [12]])
        self.assertEqual(results["copy"].lod, [[0, 2, 5]])
        self.assertEqual(results["copy"][:1].lod, [])

    def test_rows_in_another_order_are_no_sequences(self):
        lod = [[0, 2, 5]]
        words = millrace.LodArray(numpy.arange(25).reshape(5, 5), lod=lod, dtype="float32")
        weights = numpy.ones((5, 5), "float32")
        words *= 1
        for same in (words, words * 2, 1 - words, numpy.exp(words), words @ weights, words.copy(), words.astype("float64"),
                     words[:, 1:], words[..., 0], words[:], numpy.clip(words, 0, 1), words[:, 0].T, words.reshape(5, 5, 1)):
            self.assertEqual(same.lod, lod)
        for other in (words[::-1], words[numpy.arange(5)], words[words[:, 0] >= 0], words.T, words.transpose(1, 0),
                      words.swapaxes(0, 1), words.take(range(5), axis=0), numpy.flip(words, 0), numpy.roll(words, 1, 0),
                      numpy.sort(words, 0), words.sum(axis=0), numpy.sum(words, axis=0), weights @ words, words[None],
                      numpy.add.reduce(words, 0), words[:, 0] + weights, numpy.argsort(words, 0), words[0]):
            self.assertEqual(getattr(other, "lod", []), [])
        with self.assertRaisesRegex(TypeError, "float"):
            millrace.LodArray(words, lod=[[0, 2.5, 5]])

    def test_what_is_no_number_is_refused(self):
        scope = millrace.Scope()
        with self.assertRaisesRegex(TypeError, "'x': expected numbers, found masked elements"):
            scope["x"] = numpy.ma.masked_array([1.0, 2.0], [False, True])
        scope["x"] = numpy.ma.masked_array([1.0, 2.0], [False, False])
        with self.assertRaisesRegex(TypeError, "float"):
            scope["g"] = millrace.Rows([0.7, 2], 4, numpy.ones((2, 2), "float32"))

    def test_arrays_that_cannot_be_read_are_named(self):
        scope = millrace.Scope()
        with self.assertRaisesRegex(ValueError, "array 'x': .*inhomogeneous"):
            scope["x"] = [[1, 2], [3]]
        with self.assertRaisesRegex(TypeError, "'x': expected numbers, found elements of type"):
            scope["x"] = numpy.ones(2, numpy.longdouble)

        class Sequences(numpy.ndarray):
            def lod(self):
                return [[0, 1]]

        with self.assertRaisesRegex(TypeError, "'x': lod: expected lists of offsets, found <bound method"):
            scope["x"] = numpy.ones((1, 1)).view(Sequences)

    def test_kinds_of_arguments(self):
        program, loss = trained()
        scope, executor = millrace.Scope(), millrace.Executor()
        executor.run(program.startup, scope)
        prepared, session = executor.prepare(program.main, scope), millrace.Session(program.main, program.startup)
        feeds = next(batches(1))
        with tempfile.TemporaryDirectory() as folder:
            numpy.savez(os.path.join(folder, "feeds.npz"), **feeds)
            with numpy.load(os.path.join(folder, "feeds.npz")) as read:
                expected = session.run(feeds, ["guess"])["guess"]
                numpy.testing.assert_array_equal(prepared.run(read, ["guess"])["guess"], expected)
        for run in prepared.run, session.run, lambda *given: executor.run(program.main, scope, *given):
            with self.assertRaisesRegex(TypeError, "feeds: expected a dict of arrays by name, found list"):
                run([feeds], [loss])
            with self.assertRaisesRegex(TypeError, "fetches: expected names, found <var guess"):
                run(feeds, [program.main.var("guess")])
            with self.assertRaisesRegex(TypeError, "array 'x': expected one value, found two"):
                run({**feeds, b"x": feeds["x"]}, [loss])
        with self.assertRaisesRegex(TypeError, "program: expected a Program, found str"):
            millrace.Session("model")
        with self.assertRaisesRegex(TypeError, "scope: expected a Scope, found NoneType"):
            executor.run(program.main, None)
        with self.assertRaisesRegex(TypeError, "ExecutorOptions.threads: expected int, found 1.5"):
            millrace.Executor(threads=1.5)
        with self.assertRaisesRegex(TypeError, "ExecutorOptions.seed: expected int within its limits, found -1"):
            millrace.Executor(seed=-1)

    def test_sequences_that_do_not_fit_are_named(self):
        program, _ = trained()
        session = millrace.Session(program.main, program.startup)
        feeds = next(batches(1))
        feeds["x"] = millrace.LodArray(feeds["x"], [[0, 3]])
        with self.assertRaisesRegex(millrace.InvalidDataError, "'x'.*: LoD level 0: expected a last offset of 8"):
            session.run(feeds, ["guess"])

    def test_forked_processes_run(self):
        with tempfile.TemporaryDirectory() as folder:
            code = """if True:
                import multiprocessing, numpy, signal, millrace
                signal.alarm(50)  # where it hangs
                program = millrace.Program()
                for name in "x", "y":
                    program.root.add_var(name, "f32", (-1, -1))
                program.root.add_op("matmul", {"X": "x", "Y": "x"}, {"Out": "y"}, {"transpose_Y": True})
                session = millrace.Session(program, threads=2)
                def step(_=None):
                    return float(session.run({"x": numpy.ones((600, 256), "float32")}, ["y"])["y"].min())
                assert step() == 256
                with multiprocessing.get_context("fork").Pool(2, signal.alarm, (40,)) as pool:
                    assert pool.map(step, range(4)) == [256] * 4
                assert step() == 256
            """
            subprocess.run([sys.executable, "-c", code], check=True, cwd=folder, timeout=60)

    def test_python_ends_while_a_daemon_thread_runs_steps(self):
        code = """if True:
            import threading, numpy, millrace
            program = millrace.Program()
            for name in "x", "y":
                program.root.add_var(name, "f32", (-1, 128))
            program.root.add_op("softmax", {"X": "x"}, {"Out": "y"})
            session, begun = millrace.Session(program), threading.Event()
            def steps():
                while True:
                    session.run({"x": numpy.ones((500, 128), "float32")}, ["y"])
                    begun.set()
            for _ in range(4):
                threading.Thread(target=steps, daemon=True).start()
            begun.wait()
        """
        for _ in range(3):
            ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
            self.assertEqual((ended.returncode, ended.stderr), (0, b""))

    def test_element_types(self):
        scope = millrace.Scope()
        for name in ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64"):
            value = numpy.arange(6).reshape(2, 3).astype(name)
            scope[name] = value
            self.assertEqual(scope[name].dtype, value.dtype)
            numpy.testing.assert_array_equal(scope[name], value)
        scope["swapped"] = numpy.arange(3, dtype=">f4")
        self.assertEqual(scope["swapped"].tolist(), [0, 1, 2])
        scope["strided"] = numpy.arange(12, dtype="float32").reshape(3, 4)[:, ::2].T
        self.assertEqual(scope["strided"].tolist(), [[0, 4, 8], [2, 6, 10]])
        scope["none"] = numpy.zeros((0, 4), "float32")
        self.assertEqual(scope["none"].shape, (0, 4))
        scope["number"] = 3.0
        self.assertEqual(scope["number"].shape, ())
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("no ml-dtypes")
        scope["bf16"] = numpy.array([1.5, -2], ml_dtypes.bfloat16)
        self.assertEqual(scope["bf16"].dtype, ml_dtypes.bfloat16)
        self.assertEqual(scope["bf16"].tolist(), [1.5, -2])

    def test_scopes(self):
        scope = millrace.Scope()
        scope["a"], scope["b"] = [1.0], [2]
        self.assertEqual((list(scope), len(scope), "a" in scope), (["a", "b"], 2, True))
        del scope["a"]
        self.assertNotIn("a", scope)
        with self.assertRaises(KeyError):
            del scope["a"]
        with self.assertRaises(millrace.NotFoundError):
            scope["a"]
        scope["rows"] = millrace.Rows([3, 1], 5, numpy.ones((2, 2), "float32"))
        rows = scope.rows("rows")
        self.assertEqual((rows.rows.tolist(), rows.height, rows.values.shape), ([3, 1], 5, (2, 2)))
        with self.assertRaises(millrace.InvalidArgumentError):
            scope["rows"] = millrace.Rows([7], 5, numpy.ones((1, 2), "float32"))

    def test_fetches_of_rows_and_lists(self):
        program = millrace.Program.from_bytes("""# millrace program 1
block 0 {
  var ids: i64(2, 1)
  var w: f32(6, 2)
  var g: f32(2, 2)
  var wg: selected_rows f32(6, 2)
  var one: i64(1)
  var list: lod_tensor_array f32(2, 2)

  lookup_table_grad W=w Ids=ids Out@GRAD=g -> W@GRAD=wg {is_sparse: true}
  fill_constant -> Out=one {shape: [1l], dtype: 3, value: 1.0}
  write_to_array X=g I=one -> Out=list
}""")
        g = numpy.array([[1, 2], [3, 4]], "float32")
        feeds = {"ids": [[4], [1]], "w": numpy.zeros((6, 2), "float32"), "g": g}
        results = millrace.Executor().prepare(program, millrace.Scope()).run(feeds, ["wg", "list"])
        self.assertEqual((results["wg"].rows.tolist(), results["wg"].height), ([4, 1], 6))
        self.assertEqual(results["wg"].values.tolist(), g.tolist())
        self.assertIsNone(results["list"][0])
        self.assertEqual(results["list"][1].tolist(), g.tolist())

    def test_results_outlive_their_scope(self):
        scope = millrace.Scope()
        scope["a"] = numpy.arange(1000.0)
        value = scope["a"]
        del scope["a"], scope
        value[0] = 5
        self.assertEqual(value[:2].tolist(), [5, 1])

    def test_files(self):
        program, loss = trained()
        scope, executor = millrace.Scope(), millrace.Executor()
        executor.run(program.startup, scope)
        with tempfile.TemporaryDirectory() as folder:
            for filename in ("", "all"):
                path = os.path.join(folder, "values" + filename)
                self.assertEqual(millrace.io.save_persistables(program.main, scope, path, filename=filename), 3)
                other = millrace.Scope()
                millrace.io.load_persistables(program.main, other, path, filename)
                self.assertEqual(list(other), list(scope))
            memory = millrace.Scope()
            millrace.io.persistables_from_memory(
                program.main, memory, millrace.io.persistables_to_memory(program.main, scope))
            numpy.testing.assert_array_equal(memory["w"], scope["w"])
            model = os.path.join(folder, "model")
            millrace.save_inference_model(program.main, scope, model, ["x"], ["guess"])
            loaded = millrace.load_inference_model(model, memory)
            self.assertEqual((loaded.feeds, loaded.fetches), (["x"], ["guess"]))
            self.assertEqual((loaded.program.feeds, loaded.program.fetches), (["x"], ["guess"]))
            x = next(batches(1))["x"]
            expected = x @ scope["w"] + scope["b"]
            numpy.testing.assert_allclose(executor.run(loaded.program, memory, {"x": x})["guess"], expected, rtol=1e-5)
            session = millrace.Session.open_model(model, threads=2)
            self.assertEqual((session.inputs, session.outputs), (["x"], ["guess"]))
            session["b"] = session["b"] + 1
            numpy.testing.assert_allclose(session.run({"x": x})["guess"], expected + 1, rtol=1e-5)
            session.save_params(os.path.join(folder, "params/"))
            session.load_params(os.path.join(folder, "params/"))
            numpy.savez(os.path.join(folder, "b.npz"), b=session["b"] + 1)
            with self.assertWarnsRegex(UserWarning, "b.npz has no values for w"):
                session.load_params(os.path.join(folder, "b.npz"))
            numpy.testing.assert_allclose(session.run({"x": x})["guess"], expected + 2, rtol=1e-5)
            with self.assertRaisesRegex(millrace.InvalidArgumentError, "'label': feed: the program has no such var"):
                session.run({"x": x, "label": x})

    def test_options(self):
        with self.assertRaisesRegex(TypeError, "no option 'thread'; it has .*threads"):
            millrace.Executor(thread=2)
        with self.assertRaises(millrace.InvalidArgumentError):
            millrace.Executor(threads=0)
        with self.assertRaises(millrace.Error):
            millrace.Executor(device="gpu:63")
        self.assertIn("beta1=0.5", repr(optimizer.Adam(beta1=0.5)))
        with self.assertRaisesRegex(TypeError, "beta3"):
            optimizer.Adam(beta3=1)

    def test_progress(self):
        shown = io.StringIO()
        with redirect_stderr(shown):
            millrace.train(lambda feeds, fetches: {"loss": numpy.ones(1)}, [{}] * 3, ["loss"], progress=True)
        self.assertIn("step 3/3", shown.getvalue())
        self.assertIn("loss 1", shown.getvalue())

    def test_import_is_quick_and_without_numpy(self):
        code = "import sys, millrace; assert 'numpy' not in sys.modules"
        best = 10.0
        for _ in range(3):
            begin = time.monotonic()
            subprocess.run([sys.executable, "-c", code], check=True)
            best = min(best, time.monotonic() - begin)
        self.assertLess(best, 1.0)


class TrainingTest(unittest.TestCase):
    def test_gradients(self):
        main, startup, loss = linear_net()
        result = millrace.append_backward(main, loss)
        self.assertEqual(dict(result.param_grads), {"w": "w@GRAD", "b": "b@GRAD"})
        self.assertEqual(len(main.ops), 5)
        session = millrace.Session(result.main, startup)
        feeds = next(batches(1))
        gradient = session.run(feeds, ["w@GRAD"])["w@GRAD"]
        error = feeds["x"] @ numpy.full((3, 1), 0.1) + 0.1 - feeds["t"]
        numpy.testing.assert_allclose(gradient, feeds["x"].T @ (2 * error / 8), rtol=1e-4)
        only = millrace.append_backward(main, loss, parameters=["b"], no_grad=["product"])
        self.assertEqual(only.param_grads, [("b", "b@GRAD")])

    def test_options_of_minimize(self):
        main, startup, loss = linear_net()
        result = millrace.minimize(
            main, startup, loss, optimizer.Momentum(0.9),
            learning_rate=optimizer.PiecewiseDecay(boundaries=[5], values=[0.1, 0.01]),
            clip=optimizer.ClipByGlobalNorm(1.0), regularization=optimizer.L2Decay(0.01),
            parameter_options={"b": optimizer.ParameterOptions(learning_rate=0.5)})
        types = [op.type for op in result.main.ops]
        self.assertEqual(types.count("momentum"), 2)
        self.assertIn("squared_l2_norm", types)
        with self.assertRaises(millrace.InvalidProgramError):
            millrace.minimize(main, startup, "nothing")
        with self.assertRaisesRegex(TypeError, "no option 'rate'"):
            millrace.minimize(main, startup, loss, rate=1)

    def test_every_optimizer(self):
        for name in ("SGD", "Momentum", "LarsMomentum", "Adagrad", "DecayedAdagrad", "Adadelta", "RMSProp", "Adam",
                     "AdamW", "Adamax", "Lamb", "Ftrl", "Dpsgd"):
            with self.subTest(name):
                main, startup, loss = linear_net()
                result = millrace.minimize(main, startup, loss, getattr(optimizer, name)(), learning_rate=0.01)
                session = millrace.Session(result.main, startup=result.startup)
                before = session["w"]
                history = millrace.train(session.run, batches(3), [loss])
                self.assertTrue(numpy.isfinite(history[loss]).all())
                self.assertFalse((session["w"] == before).all())


if __name__ == "__main__":
    unittest.main()
