#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tests/gpu/run without a GPU: its message, the time limits of its stages, the computation of rooflines and limits, and
programs that take turns."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))

import stages  # noqa: E402
import two_processes  # noqa: E402
from bench import roofline, measure, side_by_side  # noqa: E402


def load_run():
    loader = importlib.machinery.SourceFileLoader("gpu_run", str(HERE / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_run", loader))
    loader.exec_module(module)
    return module


def has_gpu():
    return shutil.which("nvidia-smi") is not None and subprocess.run(["nvidia-smi"], capture_output=True).returncode == 0


class WithoutGpu(unittest.TestCase):
    @unittest.skipIf(has_gpu(), "there is a GPU here")
    def test_each_command_says_so_in_one_message(self):
        for command in ("check", "bench"):
            with self.subTest(command), tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "out"
                ended = subprocess.run(
                    [HERE / "run", out, command, "--commit", "abc", "--build", f"{folder}/build/gpu"],
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                self.assertEqual(ended.returncode, 1, ended.stdout + ended.stderr)
                self.assertEqual(ended.stderr, "")
                report = json.loads((out / "report.json").read_text())
                self.assertEqual((report["command"], report["commit"]), (command, "abc"))
                [machine] = report["stages"]
                self.assertEqual((machine["name"], machine["status"]), ("machine", "failed"))
                self.assertRegex(machine["reason"], r"^there is no NVIDIA GPU here that can be used: nvidia-smi [^.]*$")
                text = (out / "report.txt").read_text()
                self.assertIn(machine["reason"], text)
                self.assertTrue(ended.stdout.endswith(text + "\n"))
                self.assertLessEqual(sum(1 for path in out.rglob("*") if path.is_file()), 8)


class Stages(unittest.TestCase):
    def setUp(self):
        quiet = contextlib.redirect_stdout(io.StringIO())
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)

    def test_what_later_stages_need_is_kept_for_them(self):
        run = load_run()

        class Settings:
            build, carried, anyway = pathlib.Path("b"), pathlib.Path("c"), False

        out = pathlib.Path("o")
        for made in (
            run.check_stages(None, out, Settings),
            run.bench_stages(None, out, Settings, measure.Measured(out, out, out)),
        ):
            self.assertTrue(all(stage.least <= stage.limit for stage in made))
            self.assertLessEqual(sum(stage.least for stage in made), stages.TOTAL_SECONDS)
            [build] = [i for i, stage in enumerate(made) if stage.name == "build"]
            # A build may use at least half of the time.
            self.assertGreaterEqual(
                stages.TOTAL_SECONDS - sum(stage.least for stage in made[build + 1 :]) - 20, stages.TOTAL_SECONDS / 2
            )

    def test_a_program_s_json_is_what_it_prints_last(self):
        for printed, expected in (
            ('noise\n{}\n{"a": {"b": 1}}\n', {"a": {"b": 1}}),
            ('{\n "a": [\n  {"b": 2}]\n}', {"a": [{"b": 2}]}),
        ):
            self.assertEqual(stages.json_of(["printf", "%s", printed], 5, None), expected)
        for printed in ("", "noise", "{ noise", "{} noise"):
            with self.assertRaisesRegex(stages.Failed, "printf printed no JSON"):
                stages.json_of(["printf", "%s", printed], 5, None)
        with self.assertRaisesRegex(stages.Failed, "^false ended with status 1"):
            stages.json_of(["false"], 5, None)

    def test_assertions_that_failed_are_listed_once_with_their_values(self):
        run = load_run()
        output = (
            f"7: {run.ROOT}/tests/ops/a_test.cpp:12: ERROR: CHECK( error < 1e-5 ) is NOT correct!\n7:   values: CHECK( 0.1 < 1e-5 )\n"
            f"{run.ROOT}/tests/ops/a_test.cpp:12: ERROR: CHECK( error < 1e-5 ) is NOT correct!\n  values: CHECK( 0.1 < 1e-5 )\n\n"
            "b_test.cpp:3: FATAL ERROR: test case THREW exception: no GPU\n\n"
        )
        self.assertEqual(
            run.assertions_failed(output),
            [
                "tests/ops/a_test.cpp:12: CHECK( error < 1e-5 ) is NOT correct!: CHECK( 0.1 < 1e-5 )",
                "b_test.cpp:3: test case THREW exception: no GPU",
            ],
        )

    def test_a_stage_has_what_is_left_without_the_least_of_the_later_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            report = stages.Report(pathlib.Path(folder), "check", "abc")
            report.left = lambda: 100
            given = []
            report.run(
                [
                    stages.Stage("a", 300, 5, given.append),
                    stages.Stage("b", 20, 10, given.append),
                    stages.Stage("c", 90, 30, given.append),
                ]
            )
            self.assertEqual(given, [60, 20, 90])

    def test_a_stage_reports_how_it_ended_and_the_next_has_its_turn_unless_it_is_needed(self):
        def raises(error):
            def body(_):
                raise error

            return body

        with tempfile.TemporaryDirectory() as folder:
            report = stages.Report(pathlib.Path(folder), "bench", "abc")
            report.run(
                [
                    stages.Stage("passes", 10, 1, lambda _: {"found": math.nan, "lines": ["a line"]}),
                    stages.Stage("skips", 10, 1, raises(stages.Skipped("there is none"))),
                    stages.Stage("breaks", 10, 1, raises(KeyError("x"))),
                    stages.Stage("takes long", 10, 1, lambda _: stages.run(["sleep", "30"], 0.2)),
                    stages.Stage("fails", 10, 1, raises(stages.Failed("two are wrong", {"tests": [], "kept": 1})), needed=True),
                    stages.Stage("never comes", 10, 1, lambda _: None),
                ]
            )
            said = json.loads(
                (pathlib.Path(folder) / "report.json").read_text(), parse_constant=lambda name: self.fail(f"{name} is no JSON")
            )
            self.assertEqual(
                [(stage["name"], stage["status"]) for stage in said["stages"]],
                [
                    ("passes", "passed"),
                    ("skips", "skipped"),
                    ("breaks", "failed"),
                    ("takes long", "failed"),
                    ("fails", "failed"),
                ],
            )
            self.assertIsNone(said["stages"][0]["found"])
            self.assertEqual(said["stages"][4]["kept"], 1)
            text = (pathlib.Path(folder) / "report.txt").read_text()
            for part in (
                "    a line",
                "skips  0.0 s: there is none",
                "KeyError: 'x'",
                "it was ended after 10 s",
                "fails  0.0 s: two are wrong",
            ):
                self.assertIn(part, text)
            self.assertTrue(report.failed())


# Stands in for the program: it records its arguments and environment, and ends as it would with NCCL.
TWO_PROCESSES = """
import json, os, pathlib, signal, sys
result, process, processes = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
noted = {name: os.environ.get(name) for name in ("NCCL_HOSTID", "NCCL_NET", "CUDA_VISIBLE_DEVICES", "CUPOLA_NCCL_ID")}
with open(os.environ["NOTES"], "a") as notes:
    print(json.dumps({"name": result.stem, **noted}), file=notes)
how = os.environ.get("ONE_HOST_BY", "SHM") if noted["NCCL_HOSTID"] is None else "NET"
pathlib.Path(os.environ["NCCL_DEBUG_FILE"]).write_text(f"host:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[0] via {how}/x")
if "on-one-gpu" in result.stem:
    print("error: replica 0 (rank 0 of 2) in the start of the communicator: NCCL's last call failed with invalid usage")
    sys.exit(int(os.environ.get("REFUSED_WITH", 3)))
if "--die-at" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
if "survivor" in result.stem:
    print("error: replica 0 (rank 0 of 2) in the sum of the gradients of step 5: it is late; the heartbeat of rank 1 has stopped")
    sys.exit(3)
result.write_text(json.dumps({"losses": [2.0, 1.0], "parameters": [0.5, 0.25]}))
"""


class TwoProcesses(unittest.TestCase):
    def checked(self, **variables):
        """What was found, or the error, and how each process was started."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            program = folder / "program"
            program.write_text(f"#!{sys.executable}\n{TWO_PROCESSES}")
            program.chmod(0o755)
            notes = folder / "notes"
            environment = {"NOTES": str(notes), "NCCL_HOSTID": "a-host", "CUPOLA_NCCL_ID": "00", **variables}
            with unittest.mock.patch.dict(os.environ, environment):
                try:
                    found = two_processes.run_two_processes(program, folder, folder / "log", 60)
                except stages.Failed as reason:
                    found = str(reason)
            starts = [json.loads(line) for line in notes.read_text().splitlines()]
            return found, {start.pop("name"): start for start in starts}

    def test_processes_pass_for_two_hosts_and_are_of_one_on_a_gpu_each(self):
        found, starts = self.checked(CUDA_VISIBLE_DEVICES="4,6")
        self.assertEqual(found["transports"], ["NET"])
        self.assertEqual((found["one_host"]["gpus"], found["one_host"]["transports"]), (2, ["SHM"]))
        self.assertIn("rank 1 has stopped", found["one_host"]["error"])
        for name in ("two-ranks", "survivor", "killed"):
            for process, gpu in ((0, "4"), (1, "6")):
                if (name, process) in (("survivor", 1), ("killed", 0)):
                    continue
                hosts, host = starts[f"{name}-{process}"], starts[f"{name}-of-one-host-{process}"]
                self.assertEqual((hosts["NCCL_HOSTID"], hosts["NCCL_NET"]), (f"cupola-{process}", "Socket"))
                self.assertEqual((host["NCCL_HOSTID"], host["NCCL_NET"], host["CUDA_VISIBLE_DEVICES"]), (None, None, gpu))
                self.assertIsNone(host["CUPOLA_NCCL_ID"])

    def test_ranks_of_one_host_that_talk_by_sockets_are_a_failure(self):
        found, _ = self.checked(CUDA_VISIBLE_DEVICES="0,1", ONE_HOST_BY="NET")
        self.assertEqual(found, "processes of one host: the ranks of one host are connected by NET")

    def test_on_one_gpu_nccl_s_refusal_ends_both(self):
        found, starts = self.checked(CUDA_VISIBLE_DEVICES="3")
        self.assertEqual(len(found["one_host"]["refused"]), 2)
        for process in (0, 1):
            start = starts[f"two-ranks-on-one-gpu-{process}"]
            self.assertEqual((start["NCCL_HOSTID"], start["CUDA_VISIBLE_DEVICES"]), (None, "3"))
        found, _ = self.checked(CUDA_VISIBLE_DEVICES="3", REFUSED_WITH="0")
        self.assertIn("two-ranks-on-one-gpu-0, which NCCL rejects, ended with status 0", found)


class Roofline(unittest.TestCase):
    rates = {"operations": 100e12, "bytes": 4e12}
    parts = [
        {
            "name": "conv1",
            "what": "Conv2d",
            "pass": "forward",
            "seconds": 20e-6,
            "operations": 1e9,
            "bytes": 8e6,
        },  # 10 and 2 us
        {"name": "", "what": "loss", "pass": "", "seconds": 5e-6, "operations": 0, "bytes": 0},
        {"name": "", "what": "optimiser", "pass": "", "seconds": 6e-6, "operations": 0, "bytes": 12e6},
    ]  # 3 us

    def test_a_part_is_bound_by_the_longer_of_its_times(self):
        self.assertAlmostEqual(roofline.of_part(self.parts[0], self.rates), 10e-6)
        self.assertAlmostEqual(roofline.of_part(self.parts[2], self.rates), 3e-6)
        self.assertEqual(roofline.of_part(self.parts[1], self.rates), 0)

    def test_a_step_has_the_sum_of_its_parts_and_never_less_than_all_together(self):
        found = roofline.of_step(self.parts, self.rates)
        self.assertEqual((found["operations"], found["bytes"]), (1e9, 20e6))
        self.assertAlmostEqual(found["seconds"], 13e-6)
        self.assertAlmostEqual(found["whole"], 10e-6)  # 10 us of operations, 5 us of bytes

    def test_the_tutorial_network_has_the_operations_that_the_cpu_benchmark_counts(self):
        # Multiply-adds of a sample, taps inside the image: forward, and backward twice but for the first layer's input.
        def conv(size, channels_in, channels_out):
            taps = sum(min(size, i + 3) - max(0, i - 2) for i in range(size))
            return taps * taps * channels_in * channels_out

        forward = [conv(24, 3, 64), conv(12, 64, 64), 2304 * 384, 384 * 192, 192 * 10]
        parts = [
            {"operations": 2 * count * factor, "bytes": 0} for i, count in enumerate(forward) for factor in (1, 2 if i else 1)
        ]
        found = roofline.of_step(parts, {"operations": 1e9, "bytes": 1})
        sys.path.append(str(HERE.parent / "benchmarks"))
        import steps

        self.assertAlmostEqual(found["seconds"], steps.GFLOP_PER_SAMPLE["lrn"], places=9)

    def test_a_kernel_has_its_name_without_arguments(self):
        self.assertEqual(
            roofline.short_name("void cupola::v0_1_avx2::impl::f<int (*)(long)>(int, void (*)(long))"), "f<int (*)(long)>"
        )
        self.assertEqual(roofline.short_name("sm90_xmma_fprop"), "sm90_xmma_fprop")
        self.assertEqual(len(roofline.short_name("x" * 500)), 110)

    def test_the_table_names_what_bounds_each_part(self):
        lines = roofline.lines_of({"parts": self.parts, "seconds": 40e-6, "rest": 9e-6}, self.rates)
        self.assertEqual([line.split()[-1] for line in lines[1:4]], ["operations", "12.5%", "bytes"])
        self.assertIn("conv1 forward", lines[1])
        self.assertEqual(lines[1].split()[2:6], ["20.0", "50.0%", "10.0", "0.50"])
        self.assertIn("13.0", lines[-1])


class Bars(unittest.TestCase):
    profile = {"parts": Roofline.parts}

    def row(self, own, compiled, captured, precision="bfloat16", batch=128):
        return measure.row_of(
            precision,
            batch,
            {"cupola": own, "compiled": compiled, "captured": captured},
            {},
            self.profile,
            {precision: Roofline.rates},
        )

    def test_a_ratio_is_taken_within_each_round_and_the_median_counts(self):
        row = self.row([1e-4, 2e-4, 1e-4], [3e-4, 5e-4, 2.1e-4], [1.1e-4, 2.4e-4, 1.3e-4])
        self.assertAlmostEqual(row["ratios"]["compiled"]["median"], 2.5)
        self.assertAlmostEqual(row["ratios"]["captured"]["least"], 1.1)
        self.assertEqual([bar["met"] for bar in row["bars"]], [True, True])
        self.assertAlmostEqual(row["images_per_second"]["median"], 128 / 1e-4)
        self.assertAlmostEqual(row["roofline"]["reached"], 0.13)
        self.assertIn("2.50 (2.10 to 3.00)", measure.line_of(row))

    def test_ahead_is_more_than_as_fast_and_one_row_asks_for_twice(self):
        self.assertEqual([bar["met"] for bar in self.row([1e-4], [1.99e-4], [1e-4])["bars"]], [False, False])
        self.assertEqual([bar["met"] for bar in self.row([1e-4], [1.01e-4], [1.01e-4], "float")["bars"]], [True, True])

    def test_what_was_not_measured_is_not_met(self):
        row = measure.row_of("float", 512, {"cupola": [1e-4]}, {"compiled": "it was not made"}, None, None)
        self.assertEqual([bar["met"] for bar in row["bars"]], [None, None])
        problem = measure.bars_missed([{**bar, "what": bar["over"]} for bar in row["bars"]])
        self.assertEqual(
            problem, "2 of 2 bars are not met: compiled is not measured, asked 1; captured is not measured, asked 1"
        )
        self.assertIn("not measured", measure.line_of(measure.row_of("float", 512, {}, {}, None, None)))

    def test_batches_have_to_be_five_times_as_many_as_a_step_takes(self):
        said = "\n".join(json.dumps({"batch": batch, "images_per_second": 6e6}) for batch in measure.BATCHES)
        own = {batch: 1e6 for batch in measure.BATCHES}
        self.assertEqual([bar["met"] for bar in measure.batches_found(0, said, own)["bars"]], [True] * 3)
        with self.assertRaises(stages.Failed) as failed:
            measure.batches_found(0, said, {**own, 512: 2e6})
        self.assertEqual(
            str(failed.exception), "1 of 3 bars are not met: batches of 512 over the step's own rate is 3.00, asked 5"
        )
        with self.assertRaises(stages.Failed):
            measure.batches_found(1, "bench_batches: no GPU", own)


PEER = """
import json, sys, time
print("noise"); print(json.dumps({"name": "a peer"}), flush=True)
for line in sys.stdin:
    *what, count = line.split()
    if what == ["breaks"]: sys.exit("it broke")
    if what == ["hangs"]: time.sleep(3)
    print(json.dumps({"seconds": [float(what[0]) if what else 0.001], "loss": 1}), flush=True)
"""


class SideBySide(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = pathlib.Path(self.folder.name) / "peers.log"

    def program(self, code=PEER):
        program = side_by_side.Program("the peer", [sys.executable, "-c", code], self.log)
        self.addCleanup(program.stop)
        return program

    def test_programs_take_turns_and_one_that_breaks_costs_only_itself(self):
        first, second, third = self.program(), self.program(), self.program()
        self.assertEqual([program.ready(20)["name"] for program in (first, second, third)], ["a peer"] * 3)
        found, missing = side_by_side.take_turns(
            {"a": (first, ""), "b": (second, "0.5"), "c": (third, "breaks")}, 3, 0.05, time.monotonic() + 60
        )
        self.assertEqual(found, {"a": [0.001] * 3, "b": [0.5] * 3})
        self.assertEqual(missing, {"c": "the peer ended with status 1: it broke"})

    def test_a_program_that_says_nothing_is_given_up(self):
        program = self.program()
        program.ready(20)
        with self.assertRaisesRegex(side_by_side.Stopped, "printed nothing for 0 s"):
            program.work(3, 0.2, "hangs")
        begin = time.monotonic()
        with self.assertRaisesRegex(side_by_side.Stopped, "ended with status 3: no such thing"):
            self.program("import sys; print('no such thing', file=sys.stderr); sys.exit(3)").ready(20)
        self.assertLess(time.monotonic() - begin, 15)

    def test_no_round_begins_that_would_end_too_late(self):
        program = self.program()
        program.ready(20)
        found, _ = side_by_side.take_turns({"a": (program, "0.001")}, 50, 1.0, time.monotonic() + 0.5)
        self.assertEqual(found, {"a": [0.001]})

    def test_a_queued_peer_answers_with_the_mean_of_its_steps(self):
        code = f"""
import sys; sys.path.insert(0, {str(HERE.parent / 'benchmarks/peers')!r})
import protocol
done = []
protocol.serve_queued({{"name": "queued"}}, {{"8 fast": (done.append, lambda: float(len(done)))}})
"""
        program = self.program(code)
        self.assertEqual(program.ready(20), {"name": "queued"})
        self.assertLess(program.work(1000, 20, "8 fast"), 0.01)
        program.process.stdin.write(b"8 fast 5\n")
        self.assertEqual(program.answer(20)["loss"], 1005.0)


OWN_STEP = """#!{python}
import json, sys, time
batch, words = int(sys.argv[1]), sys.argv[2:]
if "nodes" in words:
    print("noise"); print(json.dumps({{"seconds": 3e-4, "rest": 1e-4, "steps": 30, "parts": [
        {{"name": "conv1", "what": "Conv2d", "pass": "forward", "seconds": 2e-4, "operations": 1e6 * batch, "bytes": 1e3}}]}}))
    sys.exit()
if "kernels" in words:
    print(json.dumps({{"steps": 20, "seconds": 3e-4, "busy": 2e-4, "kernels": [
        {{"name": "void cupola::v0_1::impl::strided_kernel<cupola::v0_1::impl::Relu<4> >(long, cupola::v0_1::impl::Relu<4>)",
          "count": 2, "seconds": 1e-4}}]}}))
    sys.exit()
print(json.dumps({{"name": "Cupola", "how": "captured"}}), flush=True)
for line in sys.stdin:
    print(json.dumps({{"seconds": [batch * 1e-6], "loss": 1}}), flush=True)
"""
OTHERS = {
    "bench_machine": """
import json
print(json.dumps({"device": "a GPU", **{name: {"operations": 1e13, "bytes": 1e12} for name in ("float", "tf32", "bfloat16")}}))""",
    "bench_batches": 'for batch in (128, 512, 2048): print(f\'{{"batch": {batch}, "images_per_second": 6000000}}\')',
}
FULL_PEER = """
import json, sys
kinds = ("compiled", "captured")
programs = {f"{batch} {kind}": {"lrn": "slices", "tried": {}} for batch in (128, 512, 2048) for kind in kinds}
print(json.dumps({"name": "PyTorch", "version": "2", "how": "as it is", "programs": programs}), flush=True)
for line in sys.stdin:
    batch, kind, count = line.split()
    print(json.dumps({"seconds": [int(batch) * (3e-6 if kind == "compiled" else 1.5e-6)], "loss": 1}), flush=True)
"""


class WholeBench(unittest.TestCase):
    """All stages of bench after the build, with stand-ins for the programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        programs = {
            "bench_step_float": OWN_STEP.format(python=sys.executable),
            "bench_step_bfloat16": OWN_STEP.format(python=sys.executable),
        }
        programs.update({name: f"#!{sys.executable}\n{code}\n" for name, code in OTHERS.items()})
        for name, code in programs.items():
            (self.folder / name).write_text(code)
            (self.folder / name).chmod(0o755)
        turn = unittest.mock.patch.object(measure, "TURN_SECONDS", 0.01)
        turn.start()
        self.addCleanup(turn.stop)

    def run_with(self, **peers):
        with measure.Measured(self.folder, self.folder / "cache", self.folder) as measured, contextlib.redirect_stdout(
            io.StringIO()
        ):
            measured.peers = {
                name: side_by_side.Program(name, [sys.executable, "-c", code], self.folder / "peers.log")
                for name, code in peers.items()
            }
            report = stages.Report(self.folder / "out", "bench", "abc")
            report.run(
                [
                    stage
                    for stage in load_run().bench_stages(
                        report, self.folder, argparse.Namespace(build=self.folder, anyway=True), measured
                    )
                    if stage.name not in ("machine", "configure", "build", "PyTorch's programs are started")
                ]
            )
        return {stage["name"]: stage for stage in report.data["stages"]}, (self.folder / "out/report.txt").read_text()

    def test_all_stages_pass_where_all_bars_are_met(self):
        found, text = self.run_with(float=FULL_PEER, tf32=FULL_PEER, bfloat16=FULL_PEER)
        self.assertEqual({name: stage["status"] for name, stage in found.items()}, dict.fromkeys(found, "passed"), text)
        rows = found["training step against PyTorch"]["rows"]
        self.assertEqual(len(rows), 9)
        self.assertEqual(rows[0]["rounds"], {"cupola": 5, "compiled": 5, "captured": 5})
        self.assertAlmostEqual(rows[0]["ratios"]["compiled"]["median"], 3)
        self.assertAlmostEqual(rows[0]["roofline"]["reached"], 1e6 * 128 / 1e13 / 128e-6)
        self.assertAlmostEqual(found["batches made on the device"]["bars"][0]["measured"], 6)
        self.assertEqual(len(found["where the time of a step goes"]["nodes"]), 9)
        self.assertIn("conv1 forward", text)
        self.assertIn("300.0 us/step, in 100.0 us of it nothing runs", text)
        self.assertIn("    100.0 us  33.3%     2 x  strided_kernel<Relu<4> >\n", text)

    def test_a_program_that_was_not_built_costs_its_rows_and_no_more(self):
        (self.folder / "bench_step_bfloat16").unlink()
        found, text = self.run_with(float=FULL_PEER, tf32=FULL_PEER, bfloat16=FULL_PEER)
        self.assertEqual(found["where the time of a step goes"]["status"], "failed")
        steps = found["training step against PyTorch"]
        self.assertIn("6 of 18 bars are not met: bfloat16 128 over PyTorch, compiled is not measured, asked 2", steps["reason"])
        self.assertIn("could not be started", text)
        self.assertEqual([len(row["milliseconds"]) for row in steps["rows"]], [3, 3, 2] * 3)
        self.assertLessEqual(sum(1 for path in self.folder.glob("*.log")), 2)

    def test_a_peer_that_is_missing_costs_its_bars_and_no_more(self):
        found, text = self.run_with(float=FULL_PEER, tf32="import sys; sys.exit('no GPU for PyTorch')", bfloat16=FULL_PEER)
        self.assertEqual(found["PyTorch's programs are compiled"]["status"], "failed")
        self.assertIn("no GPU for PyTorch", text)
        steps = found["training step against PyTorch"]
        self.assertIn("6 of 18 bars are not met: tf32 128 over PyTorch, compiled is not measured, asked 1", steps["reason"])
        self.assertIn("cupola", steps["rows"][1]["milliseconds"])
        self.assertEqual(found["batches made on the device"]["status"], "passed")


if __name__ == "__main__":
    unittest.main()
