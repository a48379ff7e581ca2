import copy
import os
import pickle
import tempfile
import unittest

import millrace
from nets import linear_net


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.main, self.startup, self.loss = linear_net()

    def test_files_of_both_forms(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "main.pb")
            self.main.write(path)
            again = millrace.Program.read(path)
            self.assertEqual(again.to_bytes(), self.main.to_bytes())
            self.assertEqual(millrace.Program.from_bytes(self.main.text()).diff(self.main), [])
            with self.assertRaises(millrace.UsageError):
                self.main.write(path)
            self.main.write(path, replace=True)

    def test_copies_are_independent(self):
        for other in (self.main.copy(), copy.deepcopy(self.main), pickle.loads(pickle.dumps(self.main))):
            self.assertEqual(other.to_bytes(), self.main.to_bytes())
            other.ops[0].attrs["x_num_col_dims"] = 2
            self.assertEqual(len(self.main.diff(other)), 1)
            self.assertEqual(self.main.ops[0].attrs["x_num_col_dims"], 1)

    def test_ops(self):
        op = self.main.ops[1]
        self.assertEqual((op.type, op.block, op.index), ("elementwise_add", 0, 1))
        self.assertEqual(op.inputs["X"], ["product"])
        self.assertEqual(op.input("Z"), [])
        self.assertEqual((op.input_names, op.output_names), (["product", "b"], ["guess"]))
        self.assertEqual(dict(op.attrs), {"axis": 1})
        self.assertEqual(op.attr_kind("axis"), "int")
        self.assertEqual(repr(op), "<op elementwise_add X=product Y=b -> Out=guess>")
        op.inputs["Y"] = "w"
        self.assertEqual(op.input("Y"), ["w"])
        op.type = "elementwise_mul"
        self.assertEqual(self.main.ops[1].type, "elementwise_mul")
        del op.attrs["axis"]
        self.assertEqual(len(op.attrs), 0)
        with self.assertRaises(KeyError):
            del op.attrs["axis"]
        del op.inputs["Y"]
        self.assertEqual(list(op.inputs), ["X"])

    def test_attributes_of_every_type(self):
        op = self.main.root.add_op("own", attrs={
            "bool": True, "int": 3, "long": 1 << 40, "float": 0.5, "text": "a", "bytes": b"\xff\x00",
            "bools": [True, False], "ints": (1, 2), "longs": [1 << 40], "floats": [1, 0.5], "texts": ["a", "b"],
            "none": [], "complex": 1 + 2j})
        kinds = {name: op.attr_kind(name) for name in op.attrs}
        self.assertEqual(kinds, {
            "bool": "bool", "int": "int", "long": "long", "float": "float", "text": "string", "bytes": "string",
            "bools": "bools", "ints": "ints", "longs": "longs", "floats": "floats", "texts": "strings", "none": "ints",
            "complex": "scalar"})
        self.assertEqual(op.attrs["bytes"].encode("utf-8", "surrogateescape"), b"\xff\x00")
        self.assertEqual(op.attrs["floats"], [1.0, 0.5])
        self.assertEqual(op.attrs["complex"], 1 + 2j)
        self.assertIs(op.attrs["bool"], True)
        op.set_attr("int", 7, kind="long")
        self.assertEqual(op.attr_kind("int"), "long")
        for name, value in {"int": "text", "float": [1.0], "mixed": [1, "a"], "object": object(), "big": 1 << 70}.items():
            with self.subTest(name), self.assertRaises((ValueError, TypeError)):
                op.attrs[name] = value
        with self.assertRaises(ValueError):
            op.set_attr("int", 1, kind="number")

    def test_ops_are_inserted_and_erased(self):
        added = self.main.root.add_op("scale", {"X": "x"}, {"Out": "x"}, {"scale": 2}, before=self.main.ops[0])
        self.assertEqual(self.main.ops[0], added)
        self.assertEqual(added.attr_kind("scale"), "float")
        self.assertEqual(self.main.verify(), [])
        added.erase()
        with self.assertRaises(millrace.NotFoundError):
            added.type
        self.assertEqual(len(self.main.ops), 5)

    def test_vars(self):
        var = self.main.var("w")
        self.assertEqual((var.dtype, var.dims, var.persistable, var.kind), ("f32", (3, 1), True, "lod_tensor"))
        var.dims = (-1, 1)
        self.assertEqual(self.main.vars["w"].dims, (-1, 1))
        with self.assertRaises(millrace.InvalidArgumentError):
            var.dims = (-7,)
        var.rename("weight")
        self.assertEqual(self.main.ops[0].input("Y"), ["weight"])
        with self.assertRaises(millrace.NotFoundError):
            self.main.var("w")
        inner = self.main.add_block(0)
        self.assertEqual((inner.index, inner.parent), (1, 0))
        self.assertEqual(inner.var("weight").persistable, True)
        var.erase()
        self.assertIn("undeclared-var", [problem.rule for problem in self.main.verify()])

    def test_problems_have_places(self):
        self.main.ops[0].type = "mull"
        with self.assertRaises(millrace.InvalidProgramError) as caught:
            self.main.check()
        self.assertEqual(caught.exception.location["op"], 0)
        self.assertEqual(caught.exception.location["op_type"], "mull")
        self.assertIn("mul", caught.exception.hint + str(caught.exception))
        with self.assertRaisesRegex(TypeError, "lint"):
            self.main.verify(lints=True)

    def test_passes(self):
        self.main.root.add_var("dead", "f32", (-1, 3))
        self.main.root.add_op("relu", {"X": "x"}, {"Out": "dead"})
        self.assertEqual(len(self.main.passes("remove-dead-ops{keep=[loss]}").ops), 5)
        with self.assertRaises(millrace.InvalidArgumentError):
            self.main.passes("no-such-pass")
        self.assertIn("remove-dead-ops", millrace.pass_names())
        self.assertIn("conv2d", millrace.op_types())

    def test_views(self):
        self.assertIn("<html", self.main.html())
        self.assertIn("iframe", self.main._repr_html_())
        self.assertIn("digraph", self.main.dot())
        self.assertIn("<svg", self.main.svg())
        self.assertIn("millrace.program", self.main.json())
        self.assertIn("5", self.main.summary())
        self.assertIn("5 ops", repr(self.main))

    def test_errors_say_where(self):
        with self.assertRaises(LookupError) as caught:
            millrace.Program.read("/no/such/file")
        self.assertEqual(caught.exception.code, "not-found")
        self.assertEqual(caught.exception.location, {"file": "/no/such/file"})
        self.assertIsInstance(caught.exception, millrace.Error)
        with self.assertRaises(millrace.InvalidProgramError):
            millrace.Program.from_bytes(b"\x0a\xff")
        for error in (caught.exception, *(cls("went wrong", {"file": "f"}, "a hint", ["a note"], "error: f: went wrong")
                                          for cls in millrace.Error.__subclasses__())):
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again), again.args, again.location),
                             (type(error), str(error), error.args, error.location))
            self.assertEqual(error.args, (error.message,))


if __name__ == "__main__":
    unittest.main()
